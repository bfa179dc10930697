//! What one request costs the machine, without a store, a socket or a worker.

use std::sync::Arc;
use std::time::Instant;

use forebay_executor::action::Action;
use forebay_executor::machine::{Definition, Machine, Policy};
use forebay_executor::request::{Blob, Options, Outcome, Submission};

const REQUESTS: u64 = 1_000_000;
const IN_FLIGHT: u64 = 1_024;
/// Changes that one commit takes.
const BATCH: usize = 64;

struct Bench {
    machine: Machine,
    submission: Submission,
    now: u64,
    submitted: u64,
    ended: u64,
    stored: usize,
    actions: Vec<Action>,
    result: Blob,
}

impl Bench {
    fn new(policy: Policy, options: Options) -> Self {
        let options = Arc::new(options);
        let mut machine = Machine::new(policy, 0);
        let definition = Definition {
            name: "work".into(),
            options: Arc::clone(&options),
            concurrency: None,
            cron: None,
        };
        machine
            .install(0, "code".into(), &[definition])
            .expect("no schedule");
        Self {
            machine,
            submission: Submission {
                name: "work".into(),
                code: "code".into(),
                submitter: "somebody".into(),
                arguments: vec![0; 100].into(),
                options,
            },
            now: 0,
            submitted: 0,
            ended: 0,
            stored: 0,
            actions: Vec::new(),
            result: vec![0; 10].into(),
        }
    }

    fn submit(&mut self) {
        self.submitted += 1;
        self.machine
            .submit(self.now, self.submission.clone())
            .expect("taken");
    }

    /// Performs what is wanted; a run ends as soon as it begins.
    fn perform(&mut self) {
        let mut actions = std::mem::take(&mut self.actions);
        actions.extend(self.machine.actions());
        for action in actions.drain(..) {
            match action {
                Action::Store(_) => self.stored += 1,
                Action::Start { slot, .. } => self.machine.worker_ready(self.now, slot),
                Action::Ended(..) => self.ended += 1,
                Action::Dispatch {
                    slot, id, attempt, ..
                } => {
                    let outcome = Outcome::Succeeded(Arc::clone(&self.result));
                    self.machine
                        .finished(self.now, slot, id, attempt, outcome, None);
                }
                _ => {}
            }
        }
        self.actions = actions;
    }

    fn run(&mut self) -> f64 {
        let begun = Instant::now();
        while self.ended < REQUESTS {
            while self.submitted - self.ended < IN_FLIGHT && self.submitted < REQUESTS {
                self.submit();
                self.perform();
            }
            self.perform();
            let count = self.stored.min(BATCH);
            self.stored -= count;
            self.machine.committed(self.now, count);
            self.now += u64::from(self.ended.is_multiple_of(40));
            self.machine.tick(self.now);
            std::hint::black_box(self.machine.next_tick());
        }
        begun.elapsed().as_secs_f64() * 1e9 / f64::from(u32::try_from(REQUESTS).expect("it fits"))
    }
}

/// Prints nanoseconds per request, from its submission to its end, 1,024 in flight, 64 changes a commit.
#[test]
#[ignore = "a measurement: cargo test --release --test machine_cost -- --ignored --nocapture"]
fn nanoseconds_per_request() {
    let policy = || Policy {
        guaranteed: [0, 2, 0],
        cores_milli: 2_000,
        ..Policy::default()
    };
    let limited = || Policy {
        memory_limit: Some(16_000_000_000),
        ..policy()
    };
    let hinted = Options {
        memory_bytes: Some(1_000_000),
        timeout_ms: Some(3_600_000),
        ..Options::default()
    };
    for (what, policy, options) in [
        ("durable", policy(), Options::default()),
        ("durable, memory, time-out", limited(), hinted),
        (
            "no store",
            Policy {
                durable: false,
                ..policy()
            },
            Options::default(),
        ),
    ] {
        let spent = Bench::new(policy, options).run();
        println!("{what}: {spent:.0} ns per request");
        assert!(spent < 1e6, "a millisecond per request is another machine");
    }
}
