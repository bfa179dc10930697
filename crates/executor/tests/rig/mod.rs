//! A machine, and what its tests need around it.

#![allow(dead_code)] // each test file uses some of it

use std::collections::HashMap;
use std::sync::Arc;

use forebay_executor::action::Action;
use forebay_executor::error::Refusal;
use forebay_executor::id::RequestId;
use forebay_executor::machine::{Definition, Machine, Policy, Submitted};
use forebay_executor::op::Restored;
use forebay_executor::request::{
    Death, Ending, Lane, Millis, Options, Outcome, Request, Slot, Status, Submission,
};

pub struct Rig {
    pub machine: Machine,
    pub now: Millis,
    requests: HashMap<RequestId, Arc<Request>>,
    pub endings: HashMap<RequestId, Arc<Ending>>,
    /// Actions that were looked at by `ended` and not yet taken.
    seen: Vec<Action>,
    store: usize,
}

pub fn options(change: impl FnOnce(&mut Options)) -> Options {
    let mut options = Options::default();
    change(&mut options);
    options
}

pub fn death(cause: &str) -> Death {
    Death {
        pid: 7,
        signal: Some(9),
        ..Death::of(cause)
    }
}

pub fn definition(name: &str, options: Options) -> Definition {
    Definition {
        name: name.into(),
        options: Arc::new(options),
        concurrency: None,
        cron: None,
    }
}

/// A request that the last server has left; its name is that of the long lane.
pub fn left(id: u64, status: Status, attempts: u32, options: Options) -> Restored {
    Restored {
        request: Request {
            id: RequestId(id),
            accepted_at: 0,
            submission: Submission {
                name: "Long".into(),
                code: "code".into(),
                submitter: "somebody".into(),
                arguments: Vec::new().into(),
                options: options.into(),
            },
        },
        status,
        attempts,
        forgiven: 0,
        retried: false,
        deaths: 0,
        wake_at: None,
        rebooted: false,
    }
}

impl Rig {
    pub fn new(policy: Policy) -> Self {
        Self {
            machine: Machine::new(policy, 0),
            now: 0,
            requests: HashMap::new(),
            endings: HashMap::new(),
            seen: Vec::new(),
            store: 0,
        }
    }

    /// Installs one name per lane, and has so many workers of them started and ready.
    pub fn workers_up(&mut self, lanes: &[Lane]) {
        let definitions: Vec<_> = lanes
            .iter()
            .map(|lane| {
                definition(
                    &format!("{lane:?}"),
                    options(|options| options.lane = *lane),
                )
            })
            .collect();
        self.machine
            .install(0, "code".into(), &definitions)
            .expect("definitions without schedules");
        for action in self.take() {
            if let Action::Start { slot, .. } = action {
                self.machine.worker_ready(self.now, slot);
            }
        }
    }

    pub fn try_submit(&mut self, name: &str, options: Options) -> Result<Submitted, Box<Refusal>> {
        self.try_submit_as("somebody", name, options)
    }

    pub fn try_submit_as(
        &mut self,
        submitter: &str,
        name: &str,
        options: Options,
    ) -> Result<Submitted, Box<Refusal>> {
        self.machine.submit(
            self.now,
            Submission {
                name: name.into(),
                code: "code".into(),
                submitter: submitter.into(),
                arguments: Vec::new().into(),
                options: Arc::new(options),
            },
        )
    }

    pub fn submit(&mut self, name: &str, options: Options) -> RequestId {
        self.submit_as("somebody", name, options)
    }

    pub fn submit_as(&mut self, submitter: &str, name: &str, options: Options) -> RequestId {
        let one = self
            .try_submit_as(submitter, name, options)
            .expect("accepted");
        let Submitted::New(id) = one else {
            panic!("a new request");
        };
        if let Some(request) = self.machine.request(id) {
            self.requests.insert(id, Arc::clone(request));
        }
        id
    }

    /// Takes what is to be done, and returns the runs that begin.
    pub fn dispatched(&mut self) -> Vec<(Slot, RequestId, u32)> {
        let actions = self.take().into_iter();
        let run = |action| match action {
            Action::Dispatch {
                slot, id, attempt, ..
            } => Some((slot, id, attempt)),
            _ => None,
        };
        actions.filter_map(run).collect()
    }

    /// Has the workers ready that are to be started, and returns the runs that begin.
    pub fn start_and_dispatch(&mut self) -> Vec<(Slot, RequestId, u32)> {
        let mut runs = Vec::new();
        loop {
            let actions = self.take();
            if actions.is_empty() {
                return runs;
            }
            for action in actions {
                match action {
                    Action::Start { slot, .. } => self.machine.worker_ready(self.now, slot),
                    Action::Dispatch {
                        slot, id, attempt, ..
                    } => runs.push((slot, id, attempt)),
                    _ => {}
                }
            }
        }
    }

    /// Takes what is to be done.
    pub fn take(&mut self) -> Vec<Action> {
        self.look();
        std::mem::take(&mut self.seen)
    }

    fn look(&mut self) {
        let actions: Vec<Action> = self.machine.actions().collect();
        for action in &actions {
            match action {
                Action::Ended(id, ending) => {
                    let before = self.endings.insert(*id, Arc::clone(ending));
                    assert!(before.is_none_or(|before| before.attempts < ending.attempts));
                }
                Action::Store(_) => self.store += 1,
                _ => {}
            }
        }
        self.seen.extend(actions);
    }

    /// Changes that the store was given since the last commit.
    pub fn store_ops(&mut self) -> usize {
        self.take();
        std::mem::take(&mut self.store)
    }

    /// Commits until nothing is left to commit.
    pub fn commit_all(&mut self) {
        loop {
            self.look();
            let count = std::mem::take(&mut self.store);
            if count == 0 {
                return;
            }
            self.machine.committed(self.now, count);
        }
    }

    pub fn succeed(&mut self, slot: Slot, id: RequestId, attempt: u32) {
        let outcome = Outcome::Succeeded(Vec::new().into());
        self.machine
            .finished(self.now, slot, id, attempt, outcome, None);
    }

    /// How a request ended, as it was told.
    pub fn ended(&mut self, id: RequestId) -> Option<Status> {
        self.look();
        self.endings.get(&id).map(|ending| ending.status)
    }

    /// Lets time pass and workers start until this run has begun.
    pub fn run_until_dispatched(&mut self, id: RequestId, attempt: u32) {
        for _ in 0..100 {
            let view = self.machine.view(id);
            if view.is_some_and(|one| one.slot.is_some() && one.attempt == attempt) {
                return;
            }
            for action in self.take() {
                match action {
                    Action::Start { slot, .. } => self.machine.worker_ready(self.now, slot),
                    Action::Dispatch {
                        id: one,
                        attempt: number,
                        ..
                    } if (one, number) == (id, attempt) => return,
                    _ => {}
                }
            }
            self.look();
            if self.seen.is_empty()
                && let Some(at) = self.machine.next_tick()
            {
                self.now = self.now.max(at);
                self.machine.tick(self.now);
            }
        }
        panic!(
            "run {attempt} never began: {:?}",
            self.machine.why(self.now, id)
        );
    }

    pub fn ended_as_restored(&self, id: RequestId) -> Restored {
        let ending = &self.endings[&id];
        Restored {
            request: Request::clone(&self.requests[&id]),
            status: ending.status,
            attempts: ending.attempts,
            forgiven: 0,
            retried: false,
            deaths: 0,
            wake_at: None,
            rebooted: false,
        }
    }
}
