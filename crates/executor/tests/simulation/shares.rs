//! Lanes that compete for memory share it by their weights, and one that was empty does not catch up.

use std::sync::Arc;

use forebay_executor::action::Action;
use forebay_executor::id::RequestId;
use forebay_executor::machine::{Definition, Machine, Policy};
use forebay_executor::request::{Lane, Options, Outcome, Slot, Submission};

use super::chance::Chance;
use super::counted;
use super::drawn::GB;
use super::model::Verdict;

const LANES: [Lane; 2] = [Lane::Short, Lane::Long];

/// A machine in which one request fits at a time, whatever its lane.
struct Narrow {
    machine: Machine,
    /// Submitted and not yet run, by lane.
    waiting: [u32; 2],
}

impl Narrow {
    fn new(weights: [u32; 2]) -> Self {
        let policy = Policy {
            durable: false,
            burst: false,
            guaranteed: [1, 1, 0],
            memory_limit: Some(GB),
            lane_weights: [weights[0], weights[1], 1],
            ..Policy::default()
        };
        let mut machine = Machine::new(policy, 0);
        let definitions = LANES.map(|lane| Definition {
            name: format!("{lane:?}").into(),
            options: options(lane),
            concurrency: None,
            cron: None,
        });
        machine
            .install(0, "code".into(), &definitions)
            .expect("no schedules");
        let actions: Vec<Action> = machine.actions().collect();
        for action in actions {
            if let Action::Start { slot, .. } = action {
                machine.worker_ready(0, slot);
            }
        }
        Self {
            machine,
            waiting: [0; 2],
        }
    }

    fn submit(&mut self, lane: Lane) {
        let submission = Submission {
            name: format!("{lane:?}").into(),
            code: "code".into(),
            submitter: "ann".into(),
            arguments: Vec::new().into(),
            options: options(lane),
        };
        self.machine.submit(0, submission).expect("accepted");
        self.waiting[lane as usize] += 1;
    }

    /// The run that has begun since the last one ended.
    fn begun(&mut self) -> Result<(Slot, RequestId, Lane), String> {
        let actions: Vec<Action> = self.machine.actions().collect();
        let run = actions.iter().filter_map(|action| match action {
            Action::Dispatch { slot, id, .. } => Some((*slot, *id)),
            _ => None,
        });
        let runs: Vec<_> = run.collect();
        let [(slot, id)] = runs[..] else {
            return Err(format!("6: {} begin where one fits", runs.len()));
        };
        let request = self.machine.request(id).expect("a request that runs");
        let lane = request.submission.options.lane;
        self.waiting[lane as usize] -= 1;
        Ok((slot, id, lane))
    }
}

fn options(lane: Lane) -> Arc<Options> {
    Arc::new(Options {
        lane,
        memory_bytes: Some(GB / 5 * 3),
        ..Options::default()
    })
}

/// Since both have had something waiting, neither is more than a turn of each ahead of its share.
pub fn held(seed: u64) -> Verdict {
    let mut chance = Chance::new(seed);
    let weights = [(); 2].map(|()| 1 + u32::try_from(chance.below(8)).unwrap_or(0));
    let (first, alone) = (*chance.pick(&LANES), chance.below(60));
    let mut narrow = Narrow::new(weights);
    let mut got = [0_u32; 2];
    for turn in 0..200 {
        counted::step();
        for lane in LANES {
            while narrow.waiting[lane as usize] < 3 && (lane == first || turn >= alone) {
                narrow.submit(lane);
            }
        }
        let (slot, id, lane) = narrow.begun()?;
        // What began on turn `alone` was chosen while the other lane was empty.
        got[lane as usize] += u32::from(turn > alone);
        let [one, other] = [got[0] * weights[1], got[1] * weights[0]];
        if one.abs_diff(other) > 2 * (weights[0] + weights[1]) {
            return Err(format!(
                "law of shares: {got:?} by weights {weights:?}, {alone} turns after {first:?} began alone"
            ));
        }
        let outcome = Outcome::Succeeded(Vec::new().into());
        narrow.machine.finished(0, slot, id, 1, outcome, None);
    }
    Ok(())
}
