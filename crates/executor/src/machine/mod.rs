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
//! A request is in one state (`entry`), and each state has one list, which one part owns: `queues` those of Until,
//! Keyed, Named and Ready, `workers` that of Running, `runs` that of Accepting, Claiming and Ending. A request that its
//! worker has not begun may come back from Running (`runs::ahead`).
//!
//! `Machine` turns events into calls of its parts: `queues` knows whose turn is next, `workers` which of them run what,
//! `admission` what fits, `runs` what is between a decision and the disk, `schedules` what is submitted by itself. Parts
//! do not know each other's data; what several of them change in one step is in `parts`. After each event `settle` does
//! what became possible.
//!
//! Nothing is announced before it is on disk: an id after the commit of its row, an end after the commit of its end.
//! Until then the request stays in the register, so that a failed commit can be undone or repeated.
//!
//! The invariants are those of `docs/concepts/executor.md`; the simulation checks them after each event.

mod admission;
mod audit;
mod entry;
mod figures;
mod jitter;
mod notes;
mod parts;
mod policy;
mod queues;
mod register;
mod runs;
mod schedules;
mod submitters;
mod why;
mod workers;

use std::sync::Arc;

pub use admission::Cordon;
pub use figures::{Figures, LaneFigures, RequestView, WorkerView};
pub use policy::{Capacity, Policy};
pub use queues::Waits;
pub use runs::{AdoptedRun, AdoptedWorker, Cancelled};
pub use schedules::cron::Cron;
pub use schedules::{SUBMITTER as SCHEDULE_SUBMITTER, ScheduleView};
pub use why::Why;

use crate::action::Action;
use crate::error::Refusal;
use crate::id::RequestId;
use crate::news::News;
use crate::op::{Act, KnownChild, Op, Restored};
use crate::request::{Death, Millis, Options, Outcome, Request, Slot, Status, Submission};
use entry::{Entry, State};
use parts::Parts;
use runs::Runs;
use schedules::{Due, Schedules};

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

/// The decisions of one server.
#[derive(Debug)]
pub struct Machine {
    /// The latest time of an event.
    now: Millis,
    parts: Parts,
    runs: Runs,
    schedules: Schedules,
}

impl Machine {
    /// A machine without requests and workers. Guaranteed workers start with the first definitions of their lane.
    pub fn new(policy: Policy, now: Millis) -> Self {
        Self {
            now,
            runs: Runs::new(policy.seed),
            parts: Parts::new(policy),
            schedules: Schedules::default(),
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
        self.schedules.install(now, definitions)?;
        let parts = &mut self.parts;
        parts.queues.lift_limits();
        for definition in definitions {
            parts.queues.limit(&definition.name, definition.concurrency);
            parts.workers.use_lane(definition.options.lane);
        }
        parts.workers.install(code);
        parts.replace_old_code();
        parts.queues.reopen_names(&mut parts.register, now);
        self.settle(now);
        Ok(())
    }

    /// Dispatches and starts nothing until it is called with `None`: a reload, or an import that failed.
    pub fn hold(&mut self, now: Millis, reason: Option<Arc<str>>) {
        self.parts.admission.hold(reason);
        self.settle(now);
    }

    /// Dispatches and starts nothing until it is called with `None`, and accepts submissions all the same: another
    /// server is to run them.
    pub fn pause(&mut self, now: Millis, reason: Option<Arc<str>>) {
        let pauses = reason.is_some();
        self.parts.admission.pause(reason);
        if pauses {
            // A handed request has not begun.
            self.parts.recall_all();
        }
        self.settle(now);
    }

    /// Dispatches for another capacity. Workers above it stay until they are idle or have ended.
    pub fn set_capacity(&mut self, now: Millis, capacity: Capacity) {
        self.parts.policy = self.parts.policy.with_capacity(capacity);
        self.settle(now);
    }

    /// Dispatches nothing and accepts no submission any more; what runs continues to its end.
    pub fn drain(&mut self, now: Millis) {
        self.parts.admission.drain();
        // A handed request has not begun: it waits for the next server instead.
        self.parts.recall_all();
        self.settle(now);
    }

    /// Takes no submission until it is called with `None`. Unless the cordon says otherwise, what was accepted is
    /// dispatched.
    pub fn cordon(&mut self, now: Millis, cordon: Option<Cordon>) {
        let stops = cordon.as_ref().is_some_and(|one| !one.dispatches);
        self.parts.admission.set_cordon(cordon);
        if stops {
            // As for a drain: a handed request has not begun.
            self.parts.recall_all();
        }
        self.settle(now);
    }

    /// Who let it take no submissions.
    pub fn cordoned(&self) -> Option<&Cordon> {
        self.parts.admission.cordon()
    }

    /// Nothing runs and nothing is on its way to the disk.
    pub fn is_idle(&self) -> bool {
        self.parts.workers.runs_nothing() && self.runs.is_all_written()
    }

    /// Nothing runs, and the store cannot write: waiting would not change that.
    pub fn is_stuck(&self) -> bool {
        self.parts.workers.runs_nothing() && self.runs.is_stuck()
    }

    /// Takes out the actions to perform, in their order.
    pub fn actions(&mut self) -> impl Iterator<Item = Action> + '_ {
        self.parts.actions.drain(..)
    }

    /// Keeps what becomes of requests from now on, for `news`.
    pub fn keep_news(&mut self) {
        self.parts.keep_news();
    }

    /// Takes out what has become of requests since the last time, in its order: before the actions that it follows
    /// from are performed, since those may let the machine go on.
    pub fn news(&mut self) -> impl Iterator<Item = News> + '_ {
        self.parts.take_news()
    }

    /// Whether a schedule has submitted this request, as its newest one.
    pub fn is_scheduled(&self, id: RequestId) -> bool {
        self.schedules.has_submitted(id)
    }

    /// Whether nothing is dispatched, because that was asked for.
    pub fn is_held(&self) -> bool {
        self.parts.admission.is_held()
    }

    /// An unfinished request.
    pub fn request(&self, id: RequestId) -> Option<&Arc<Request>> {
        let entry = self.parts.register.by_id(id);
        entry.map(Entry::request)
    }

    /// Recounts everything that is counted incrementally, by a walk over all requests and workers.
    ///
    /// # Errors
    /// What disagrees.
    #[doc(hidden)]
    pub fn audit(&self) -> Result<(), String> {
        audit::audit(&self.parts)
    }

    /// Bytes that a worker may still grow by, as counted in the sum of all.
    #[doc(hidden)]
    pub fn promised_to(&self, slot: Slot) -> u64 {
        self.parts.admission.promised_to(slot)
    }

    /// After each event: does what it made possible.
    fn settle(&mut self, now: Millis) {
        // Events may carry times that go back; the machine's own time does not.
        self.now = self.now.max(now);
        self.runs.fail_doomed(&mut self.parts, now);
        runs::families::cancel_children(&mut self.runs, &mut self.parts, now);
        // Doomed requests first, since they free keys and names; workers before dispatch, which may order more of them.
        self.parts.staff(now);
        self.runs.dispatch(&mut self.parts, now);
        // A worker that is still free after dispatch can take over handed requests now. Whether one may be started for
        // them is left to `tick`, since this runs after each event.
        if self.parts.is_open() {
            self.parts.recall_late(self.now);
        }
    }

    fn settle_if(&mut self, changed: bool, now: Millis) {
        if changed {
            self.settle(now);
        }
    }
}

/// Time.
impl Machine {
    /// Time has passed.
    pub fn tick(&mut self, now: Millis) {
        let parts = &mut self.parts;
        while let Some(key) = parts.queues.pop_due(&mut parts.register, now) {
            match parts.register.get(key).map(Entry::state) {
                Some(State::Until) => parts.queues.advance(&mut parts.register, now, key),
                Some(State::Running(_)) => parts.time_is_up(now, key),
                _ => {}
            }
        }
        self.fire(now);
        self.parts.end_idle(now);
        self.settle(now);
        // After dispatch, which may have used the free worker.
        self.parts.recall_late(now);
    }

    /// When `tick` has something to do, as far as is known now.
    pub fn next_tick(&self) -> Option<Millis> {
        let parts = &self.parts;
        let times = [
            parts.queues.first_due(),
            parts.workers.idle_due(&parts.policy),
            parts.starts_due(self.now),
            parts.recall_due(),
            self.schedules.due().filter(|_| parts.admission.takes()),
        ];
        times.into_iter().flatten().min()
    }

    /// Reports the wall clock at `now`. Cost: a comparison, unless the clock was set since the last time.
    pub fn set_wall(&mut self, now: Millis, wall: Millis) {
        if let Some(step) = self.schedules.set_wall(now, wall) {
            let parts = &mut self.parts;
            parts.queues.move_waits(&mut parts.register, now, step);
            self.settle(now);
        }
    }
}

/// Requests.
impl Machine {
    /// Takes a submission. `Action::Accepted` or `Action::Refused` follows for a new one.
    ///
    /// # Errors
    /// `draining`, `store`, `limit` (`queued_max`), and `unknown` if a predecessor is neither unfinished nor in the
    /// recent history.
    pub fn submit(
        &mut self,
        now: Millis,
        submission: Submission,
    ) -> Result<Submitted, Box<Refusal>> {
        let submitted = self.runs.submit(&mut self.parts, now, submission)?;
        self.settle_if(matches!(submitted, Submitted::New(_)), now);
        Ok(submitted)
    }

    /// Ends a request in any state. A second cancel changes nothing.
    pub fn cancel(&mut self, now: Millis, id: RequestId) -> Cancelled {
        let cancelled = self.runs.cancel(&mut self.parts, now, id);
        // Of one that runs, the children are cancelled with it.
        self.settle_if(matches!(cancelled, Cancelled::Now | Cancelled::Asked), now);
        cancelled
    }

    /// Runs an ended request again for an operator: its retries and deaths count anew, its attempts continue.
    /// `Action::Retried` follows.
    ///
    /// `false`: it has not ended.
    ///
    /// # Errors
    /// `store`: the change would be lost with the server. `limit`: the queue is full, or its submitter's part of it.
    pub fn retry(&mut self, now: Millis, ended: Restored) -> Result<bool, Box<Refusal>> {
        let retried = self.runs.retry(&mut self.parts, now, ended)?;
        self.settle_if(retried, now);
        Ok(retried)
    }

    /// Keeps with a request who has cancelled or retried it.
    pub fn acted(&mut self, now: Millis, id: RequestId, act: Act, by: Arc<str>) {
        let op = Op::Acted { id, act, by };
        self.runs.note(&mut self.parts, now, op);
    }

    /// Whether this cancel of an unfinished request is the first, which alone is kept; the next one is not.
    pub fn first_cancel(&mut self, id: RequestId) -> bool {
        let register = &mut self.parts.register;
        let key = register.key(id);
        let entry = key.and_then(|key| register.get_mut(key));
        entry.is_some_and(Entry::first_cancel)
    }

    /// Takes over what the last server left, before anything else happens: `last` is the greatest id ever given,
    /// `learnt` the peaks by name and code, `fired` when each schedule last fired.
    ///
    /// What had not begun is queued. What had begun runs again if it may, and fails otherwise, with an unknown outcome
    /// if the machine was booted since. A predecessor that is neither unfinished nor remembered has been pruned and
    /// counts as succeeded: call `remember` first for those that ended otherwise.
    pub fn restore(
        &mut self,
        now: Millis,
        restored: Vec<Restored>,
        learnt: &[(Arc<str>, Arc<str>, Vec<u64>)],
        fired: &[(Arc<str>, Millis)],
        last: RequestId,
    ) {
        self.schedules.restore(now, fired);
        for one in &restored {
            self.schedules.restored(&one.request);
        }
        for (name, code, peaks) in learnt {
            let index = self.parts.queues.index_of(name);
            for bytes in peaks {
                self.parts.admission.remember_peak(index, code, *bytes);
            }
        }
        self.runs.restore(&mut self.parts, now, restored, last);
        runs::adopt::end_idle(&mut self.runs, &mut self.parts, now);
        self.settle(now);
    }

    /// Takes over workers of the last server with what they run, before [`Self::restore`]: they go on, are given nothing
    /// more, and are ended after their runs. The slot of each.
    pub fn adopt(&mut self, now: Millis, workers: &[AdoptedWorker]) -> Vec<Slot> {
        runs::adopt::adopt(&mut self.runs, &mut self.parts, now, workers)
    }

    /// Whether every run may go on under another server: it has begun, and nobody ends it.
    pub fn runs_undisturbed(&self) -> bool {
        self.parts.runs_undisturbed()
    }

    /// Nothing is on its way to the disk.
    pub fn is_written(&self) -> bool {
        self.runs.is_all_written()
    }

    /// Remembers an ended request that was read back from the store, so that others can come after it.
    pub fn remember(&mut self, id: RequestId, status: Status) {
        if status.has_ended() && self.parts.register.key(id).is_none() {
            self.runs.remember(id, status);
        }
    }

    /// Remembers the idempotency key of an ended request that is still in the store.
    pub fn remember_idempotency(&mut self, key: Arc<str>, id: RequestId, name: &Arc<str>) {
        let (runs, parts) = (&mut self.runs, &mut self.parts);
        runs.remember_idempotency(parts, key, id, name);
    }

    /// Remembers the children of unfinished requests, whose next run may ask for them, and cancels `orphans`, whose
    /// parents have ended without success; after [`Self::restore`].
    pub fn restore_children(&mut self, now: Millis, known: &[KnownChild], orphans: Vec<RequestId>) {
        self.runs.restore_children(&mut self.parts, known, orphans);
        self.settle(now);
    }

    /// The children of an unfinished request, ended ones included, in the order in which it submitted them.
    pub fn children(&self, id: RequestId) -> Vec<RequestId> {
        self.runs.children(id)
    }

    /// The request with this idempotency key was pruned: the key is free.
    pub fn forget(&mut self, name: &str) {
        self.runs.forget_pruned(&self.parts, name);
    }
}

/// Answers of the store.
impl Machine {
    /// The oldest `count` changes in flight are on disk.
    pub fn committed(&mut self, now: Millis, count: usize) {
        self.runs.committed(&mut self.parts, now, count);
        self.settle(now);
    }

    /// The oldest `count` changes in flight are not on disk. Submissions among them are refused; other changes are kept
    /// for `retry_store`. Until then nothing is dispatched and no submission accepted.
    pub fn not_committed(&mut self, now: Millis, count: usize, why: &str, permanent: bool) {
        let (runs, schedules) = (&mut self.runs, &mut self.schedules);
        runs.not_committed(&mut self.parts, schedules, now, count, why, permanent);
        self.settle(now);
    }

    /// The store may work again: gives it the kept changes once more, in order.
    pub fn retry_store(&mut self, now: Millis) {
        self.runs.retry_store(&mut self.parts);
        self.settle(now);
    }

    /// The file of a result is on disk, or cannot be created: then the store reports why when it is given the end.
    ///
    /// With `unfit`, the file that its worker left is not what the worker announced, for this reason: the request has
    /// failed.
    pub fn filed(&mut self, now: Millis, id: RequestId, unfit: Option<&str>) {
        let awaited = self.runs.filed(&mut self.parts, now, id, unfit);
        self.settle_if(awaited, now);
    }
}

/// Events of workers.
impl Machine {
    /// A worker can take requests.
    pub fn worker_ready(&mut self, now: Millis, slot: Slot) {
        let is_ready = self.parts.worker_ready(now, slot);
        self.settle_if(is_ready, now);
    }

    /// A worker could not be started, and there is no process.
    pub fn worker_failed(&mut self, now: Millis, slot: Slot, why: Arc<str>) {
        let has_failed = self.runs.worker_failed(&mut self.parts, now, slot, why);
        self.settle_if(has_failed, now);
    }

    /// A worker has died, or has exited as it was told to; `death` is its keeper's report.
    pub fn worker_gone(&mut self, now: Millis, slot: Slot, death: Death) {
        let is_gone = self.runs.worker_gone(&mut self.parts, now, slot, death);
        self.settle_if(is_gone, now);
    }

    /// A worker has replied. Ignored if the slot does not have this run: the reply is from before a death.
    pub fn finished(
        &mut self,
        now: Millis,
        slot: Slot,
        id: RequestId,
        attempt: u32,
        outcome: Outcome,
        peak: Option<u64>,
    ) {
        let (runs, run) = (&mut self.runs, (id, attempt));
        let had_it = runs.finished(&mut self.parts, now, slot, run, outcome, peak);
        self.settle_if(had_it, now);
    }

    /// A run waits for its children, or goes on. Ignored if the run is not that worker's, or has not begun.
    pub fn waits(&mut self, now: Millis, slot: Slot, id: RequestId, attempt: u32, waits: bool) {
        let changed = runs::families::waits(&mut self.parts, now, slot, (id, attempt), waits);
        self.settle_if(changed, now);
    }

    /// A worker has returned a run that it had not begun, and will not begin it. Ignored if the run is not that
    /// worker's.
    pub fn returned(&mut self, now: Millis, slot: Slot, id: RequestId, attempt: u32) {
        let (runs, parts) = (&mut self.runs, &mut self.parts);
        let had_it = runs.returned(parts, now, slot, id, attempt);
        self.settle_if(had_it, now);
    }

    /// Records a worker's private bytes. Call it for all workers before `machine_measured`.
    pub fn measured(&mut self, now: Millis, slot: Slot, private_bytes: u64) {
        let (runs, parts) = (&mut self.runs, &mut self.parts);
        let exists = runs.worker_measured(parts, now, slot, private_bytes);
        self.settle_if(exists, now);
    }

    /// Records that the machine or its cgroup has `resident` bytes of anonymous memory, and stalled for memory this
    /// fraction of the time (0 if the kernel does not say).
    pub fn machine_measured(&mut self, now: Millis, resident: u64, pressure: f32) {
        self.parts.admission.machine_measured(resident, pressure);
        self.parts.guard(now);
        self.settle(now);
    }
}

/// Schedules.
impl Machine {
    /// Submits what is due.
    fn fire(&mut self, now: Millis) {
        if !self.parts.admission.takes() || !self.schedules.is_due(now) {
            return;
        }
        for index in 0..self.schedules.len() {
            let parts = &self.parts;
            let is_unfinished = |id| parts.register.key(id).is_some();
            let code = parts.workers.code();
            let op = match self.schedules.take_due(now, index, code, is_unfinished) {
                Due::Nothing => continue,
                Due::Skipped(op) => op,
                Due::Submit(submission) => match self.submit(now, submission) {
                    Ok(Submitted::New(id) | Submitted::Known(id)) => {
                        self.schedules.submitted(now, index, id)
                    }
                    Err(refusal) => {
                        self.schedules.not_submitted(now, index, &refusal);
                        continue;
                    }
                },
            };
            self.runs.note(&mut self.parts, now, op);
        }
    }

    /// The schedules of the newest code.
    pub fn schedules(&self) -> Vec<ScheduleView> {
        self.schedules.view()
    }

    /// Pauses a schedule, or resumes it from `now`: times that passed meanwhile are not made up for. `false`: there is
    /// none of that name.
    pub fn set_schedule(&mut self, now: Millis, name: &str, paused: bool) -> bool {
        let Ok(op) = self.schedules.set(now, name, paused) else {
            return false;
        };
        if let Some(op) = op {
            self.runs.note(&mut self.parts, now, op);
        }
        true
    }

    /// Remembers a schedule that was paused when the last server ended.
    pub fn remember_paused(&mut self, name: Arc<str>) {
        self.schedules.remember_paused(name);
    }

    /// Remembers when a schedule was resumed, under any server: times before that are not made up for.
    pub fn remember_resumed(&mut self, name: Arc<str>, at: Millis) {
        self.schedules.remember_resumed(name, at);
    }
}
