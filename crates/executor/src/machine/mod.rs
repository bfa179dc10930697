//! Decides which request runs next and where, when workers start and end, and what a death means.
//!
//! No socket, no clock, no thread: each event comes with its time, and actions come out, which the driver performs in
//! their order. Times that stand still or go back are harmless.
//!
//! ```text
//!   submit -> Accepting -> After -> Until -> Keyed -> Ready <-> Named -> Running -> Ending -> (gone)
//!                |                    ^                ^                    |
//!                +-> Claiming --------|----------------|------> Running     |
//!                                     +--- back-off ---+--- worker lost ----+
//! ```
//! A request is in one state, and each state has one list: the lists' modules are `queues::timers` (Until),
//! `queues::keys` (Keyed, Named), `queues::queue` (Ready), `workers` (Running) and `runs::ledger` (Accepting, Claiming,
//! Ending). A request that its worker has not begun may come back from Running (`runs::ahead`).
//!
//! Nothing is announced before it is on disk: an id after the commit of its row, an end after the commit of its end.
//! Until then the request stays in the register, so that a failed commit can be undone or repeated.
//!
//! The invariants are those of `docs/concepts/executor.md`; the simulation checks them after each event.

mod admission;
mod audit;
mod entry;
mod figures;
mod policy;
mod queues;
mod runs;
mod schedules;
mod why;
mod workers;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

pub use figures::{Figures, LaneFigures, RequestView, WorkerView};
pub use policy::Policy;
pub use runs::cancel::Cancelled;
pub use schedules::cron::Cron;
pub use schedules::{SUBMITTER as SCHEDULE_SUBMITTER, ScheduleView};
pub use why::Why;

use crate::action::Action;
use crate::error::Refusal;
use crate::id::RequestId;
use crate::request::{Lane, Millis, Options, Request, Status};
use entry::{Key, Register, State};
use policy::Jitter;
use queues::keys::{Keys, Names};
use queues::queue::FairQueue;
use queues::timers::Timers;
use runs::ledger::Ledger;
use runs::restore::Recent;
use workers::Workers;
use workers::staff::Starts;

/// The application's definition of one kind of request.
#[derive(Clone, Debug)]
pub struct Definition {
    pub name: Arc<str>,
    /// The defaults, which a submission may override.
    pub options: Arc<Options>,
    /// The most that run at once.
    pub concurrency: Option<u32>,
    /// When it is submitted by itself, in cron's five fields, in UTC.
    pub cron: Option<Arc<str>>,
}

/// The outcome of a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// `Action::Accepted` or `Action::Refused` follows.
    New(RequestId),
    /// Its idempotency key is this request's, which may have ended, or be on its way to the disk.
    Known(RequestId),
}

/// One lane's queue, with its share of the workers so far.
#[derive(Debug, Default)]
struct LaneQueue {
    ready: FairQueue,
    /// Stride scheduling: grows by the inverse of the lane's weight with each dispatched request; the smallest is next.
    pass: u64,
    in_use: bool,
    burst: workers::burst::Burst,
    /// Its first request if that does not fit, and since when.
    blocked: Option<(RequestId, Millis)>,
    running: u32,
}

/// The decisions of one server.
#[derive(Debug)]
pub struct Machine {
    policy: Policy,
    jitter: Jitter,
    now: Millis,
    last: RequestId,
    code: Arc<str>,
    register: Register,
    names: Names,
    keys: Keys,
    /// By idempotency key: the request, and the index of its name.
    idempotency: HashMap<Arc<str>, (RequestId, u32)>,
    recent: Recent,
    lanes: [LaneQueue; 3],
    /// The pass of the lane that was served last.
    pass: u64,
    schedules: schedules::Schedules,
    wall: schedules::wall::Wall,
    timers: Timers,
    workers: Workers,
    starts: Starts,
    room: admission::Room,
    ledger: Ledger,
    actions: Vec<Action>,
    /// Ended requests whose results are being written to files first.
    filing: HashSet<RequestId>,
    /// Requests that are to fail because a predecessor did not succeed.
    doomed: Vec<(RequestId, RequestId)>,
    /// Why dispatch is held.
    hold: Option<Arc<str>>,
    draining: bool,
    counts: figures::Counts,
}

impl Machine {
    /// A machine without requests and workers. Guaranteed workers start with the first definitions of their lane.
    pub fn new(policy: Policy, now: Millis) -> Self {
        Self {
            jitter: Jitter(policy.seed),
            now,
            last: RequestId(0),
            code: "".into(),
            register: Register::default(),
            names: Names::default(),
            keys: Keys::default(),
            idempotency: HashMap::new(),
            recent: Recent::default(),
            lanes: Default::default(),
            pass: 0,
            schedules: schedules::Schedules::default(),
            wall: schedules::wall::Wall::default(),
            timers: Timers::default(),
            workers: Workers::new(policy.async_at_once),
            starts: Starts::default(),
            room: admission::Room::default(),
            ledger: Ledger::default(),
            actions: Vec::new(),
            filing: HashSet::new(),
            doomed: Vec::new(),
            hold: None,
            draining: false,
            counts: figures::Counts::default(),
            policy,
        }
    }

    /// Installs a code whose template serves. Workers of another code end after what they run.
    ///
    /// # Errors
    /// `invalid`: a cron pattern is invalid; then nothing was changed.
    pub fn install(
        &mut self,
        now: Millis,
        code: Arc<str>,
        definitions: &[Definition],
    ) -> Result<(), Box<Refusal>> {
        // First, because it may refuse: nothing else has changed then.
        self.schedules.install(self.wall.of(now), definitions)?;
        self.code = code;
        for (_, name) in self.names.all_mut() {
            // A name that the new code does not limit loses the old limit.
            name.limit = None;
        }
        for definition in definitions {
            let index = self.names.index(&definition.name);
            self.names.get_mut(index).limit = definition.concurrency;
            self.lanes[definition.options.lane as usize].in_use = true;
        }
        // The failures so far were those of the old code.
        self.starts.recovered();
        self.replace_old_code();
        self.reopen_names(now);
        self.settle(now);
        Ok(())
    }

    /// Limits have changed: requests that wait for their name are queued again.
    fn reopen_names(&mut self, now: Millis) {
        let full: Vec<u32> = self.names.all_mut().map(|(index, _)| index).collect();
        for index in full {
            // Dispatch turns them back if the limit is still reached.
            while let Some(key) = self.names.get_mut(index).waiting.take(0) {
                self.make_ready(now, key);
            }
        }
    }

    /// Dispatches and starts nothing until it is called with `None`: a reload, or an import that failed.
    pub fn hold(&mut self, now: Millis, reason: Option<Arc<str>>) {
        self.hold = reason;
        self.settle(now);
    }

    /// Dispatches nothing and accepts no submission any more; what runs continues to its end.
    pub fn drain(&mut self, now: Millis) {
        self.draining = true;
        // A handed request has not begun: it waits for the next server instead.
        self.recall_all();
        self.settle(now);
    }

    /// Nothing runs and nothing is on its way to the disk.
    pub fn is_idle(&self) -> bool {
        self.lanes.iter().all(|lane| lane.running == 0)
            && self.ledger.in_flight() == 0
            && self.ledger.kept() == 0
            && self.filing.is_empty()
    }

    /// Nothing runs, and the store cannot write: waiting would not change that.
    pub fn is_stuck(&self) -> bool {
        self.ledger.down.is_some()
            && self.ledger.in_flight() == 0
            && self.filing.is_empty()
            && self.lanes.iter().all(|lane| lane.running == 0)
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Millis) {
        while let Some(key) = self.timers.pop(now) {
            if let Some(entry) = self.register.get_mut(key) {
                entry.due = None;
                match entry.state {
                    State::Until => self.advance(now, key),
                    State::Running(_) => self.time_is_up(now, key),
                    _ => {}
                }
            }
        }
        self.fire(now);
        self.end_idle(now);
        self.settle(now);
        // After dispatch, which may have used the free worker.
        self.recall_late(now);
    }

    /// When `tick` has something to do, as far as is known now.
    pub fn next_tick(&self) -> Option<Millis> {
        let times = [
            self.timers.first(),
            self.idle_due(),
            self.starts_due(),
            self.recall_due(),
            self.schedules_due(),
        ];
        times.into_iter().flatten().min()
    }

    /// Takes out the actions to perform, in their order.
    pub fn actions(&mut self) -> impl Iterator<Item = Action> + '_ {
        self.actions.drain(..)
    }

    /// An unfinished request.
    pub fn request(&self, id: RequestId) -> Option<&Arc<Request>> {
        self.register.by_id(id).map(|entry| &entry.request)
    }

    /// After each event: does what it made possible.
    fn settle(&mut self, now: Millis) {
        // Events may carry times that go back; the machine's own time does not.
        self.now = self.now.max(now);
        self.fail_doomed(now);
        // Doomed requests first, since they free keys and names; workers before dispatch, which may order more of them.
        self.staff(now);
        self.dispatch(now);
        // A worker that is still free after dispatch can take over handed requests now. Whether one may be started for
        // them is left to `tick`, since this runs after each event.
        if self.is_open() {
            self.recall_late(self.now);
        }
    }

    fn status(entry: &entry::Entry) -> Status {
        match &entry.state {
            State::Running(_) => Status::Running,
            // Nothing has ended before the disk has it.
            State::Ending(_) if entry.attempts > 0 => Status::Running,
            _ => Status::Queued,
        }
    }

    fn lane_of(&self, key: Key) -> Option<Lane> {
        self.register.get(key).map(entry::Entry::lane)
    }

    /// Why nothing is dispatched at all, with what a person can do.
    fn stopped_because(&self, now: Millis) -> Option<(String, String)> {
        if let Some(reason) = &self.hold {
            return Some((reason.to_string(), String::new()));
        }
        if self.draining {
            return Some(("the server drains".into(), "start it again".into()));
        }
        if let Some(down) = &self.ledger.down {
            let next = "make room on the disk of the state directory".into();
            return Some((format!("the store cannot be written: {down}"), next));
        }
        if let Some(bytes) = self.ledger.is_behind() {
            let reason = format!("{bytes} bytes of results are being written to the disk");
            return Some((
                reason,
                "wait; a faster disk for the state directory helps".into(),
            ));
        }
        self.starts.reason(now)
    }
}
