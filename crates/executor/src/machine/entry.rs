//! One unfinished request: its state, and each transition to another one.
//!
//! Its fields are private to this module. A method names the transition and changes all that belongs to it; the lists
//! that hold the request are their owners' (`queues`, `workers`, `runs`), which change in the same step.

use std::sync::Arc;

use super::notes::Notes;
use crate::action::Step;
use crate::id::RequestId;
use crate::request::{
    Ending, Failure, Lane, Millis, Options, Outcome, Request, Slot, Status, Submission,
};

/// Why a run is being ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Cancel,
    Time,
}

/// How far the end of a run has gone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stop {
    pub reason: Reason,
    pub step: Step,
}

/// One run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub slot: Slot,
    pub began: Millis,
    /// It waits in its worker's inbox behind another run, and has not begun (`runs::ahead`).
    pub handed: bool,
    /// Its worker was asked to return it.
    pub recalled: bool,
    pub stop: Option<Stop>,
    /// It waits for its children, and has given its place back; of a handed one its worker says so, as it has begun.
    pub waits: bool,
    /// The most private memory of its worker that was measured during it.
    pub peak: Option<u64>,
}

/// The state of a request. Each state is left by the event that it names.
#[derive(Clone, Debug)]
pub(crate) enum State {
    /// Its row is being committed; `slot` is the worker reserved for it if one was idle.
    Accepting {
        slot: Option<Slot>,
    },
    /// Its row is on disk; the claim that was written with it is not.
    Claiming {
        slot: Slot,
    },
    /// An operator's retry is being committed.
    Retrying,
    /// Its worker has not begun it and will not: the withdrawal of its claim is being committed.
    Unclaiming,
    /// It waits for other requests.
    After,
    /// It waits for a time: its back-off or its `not_before`.
    Until,
    /// It waits until fewer requests hold its key.
    Keyed,
    /// It waits until fewer requests of its name run.
    Named,
    /// It waits for a worker, in its lane's queue.
    Ready,
    Running(Run),
    /// Its end is being committed.
    Ending(Arc<Ending>),
}

/// One unfinished request.
#[derive(Debug)]
pub(crate) struct Entry {
    request: Arc<Request>,
    state: State,
    /// Runs that began or were claimed.
    attempts: u32,
    /// The largest number of a run that was ever claimed, also of one that was given back.
    claimed: u32,
    /// Of the attempts, those before an operator's retry, which count no more.
    forgiven: u32,
    deaths: u32,
    /// The index of its name.
    name: u32,
    /// How many requests must succeed before it.
    waits_for: u32,
    /// Requests that wait for this one.
    dependents: Vec<RequestId>,
    not_before: Option<Millis>,
    /// Its entry among the timers.
    due: Option<Millis>,
    /// Since when it is in its lane's queue.
    ready_at: Millis,
    /// Since when it has waited for its next run: its acceptance, or the end of its last run. Of one that an earlier
    /// server queued again it is not known.
    queued_at: Option<Millis>,
    /// How long it waited for its last run, and how long that took, once it ends, as far as that is known.
    queued_ms: Option<u64>,
    run_ms: Option<u64>,
    /// Cancelled while a change of it was being committed.
    cancelled: bool,
    /// Who cancelled it first is kept.
    cancel_kept: bool,
    /// It is one of the holders of its key.
    holds_key: bool,
    notes: Notes,
}

/// What it is and has.
impl Entry {
    #[inline] // with `Register::add`: the entry is built in its place, and not copied twice
    pub(crate) fn new(request: Arc<Request>, state: State, name: u32) -> Self {
        Self {
            not_before: request.submission.options.not_before,
            queued_at: Some(request.accepted_at),
            request,
            state,
            attempts: 0,
            claimed: 0,
            forgiven: 0,
            deaths: 0,
            name,
            waits_for: 0,
            dependents: Vec::new(),
            due: None,
            ready_at: 0,
            queued_ms: None,
            run_ms: None,
            cancelled: false,
            cancel_kept: false,
            holds_key: false,
            notes: Notes::default(),
        }
    }

    pub(crate) fn id(&self) -> RequestId {
        self.request.id
    }

    pub(crate) fn request(&self) -> &Arc<Request> {
        &self.request
    }

    pub(crate) fn submission(&self) -> &Submission {
        &self.request.submission
    }

    pub(crate) fn options(&self) -> &Options {
        &self.request.submission.options
    }

    pub(crate) fn lane(&self) -> Lane {
        self.options().lane
    }

    /// The index of its name.
    pub(crate) fn name(&self) -> u32 {
        self.name
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// As it is reported, of an unfinished request.
    pub(crate) fn status(&self) -> Status {
        match &self.state {
            State::Running(_) => Status::Running,
            // Nothing has ended before the disk has it.
            State::Ending(_) if self.attempts > 0 => Status::Running,
            _ => Status::Queued,
        }
    }

    /// Runs that began or were claimed.
    pub(crate) fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The largest number of a run that was ever claimed.
    pub(crate) fn claimed(&self) -> u32 {
        self.claimed
    }

    /// Runs that count against its retries.
    pub(crate) fn counted_attempts(&self) -> u32 {
        self.attempts - self.forgiven
    }

    pub(crate) fn deaths(&self) -> u32 {
        self.deaths
    }

    /// How many requests must succeed before it.
    pub(crate) fn waits_for(&self) -> u32 {
        self.waits_for
    }

    pub(crate) fn not_before(&self) -> Option<Millis> {
        self.not_before
    }

    /// Its entry among the timers.
    pub(crate) fn due(&self) -> Option<Millis> {
        self.due
    }

    /// Since when it is in its lane's queue.
    pub(crate) fn ready_at(&self) -> Millis {
        self.ready_at
    }

    /// Since when it has waited for its next run, if that is known.
    pub(crate) fn queued_at(&self) -> Option<Millis> {
        self.queued_at
    }

    /// How long it waited for its last run, and how long that took, of one that ends: as far as that is known.
    pub(crate) fn took_ms(&self) -> (Option<u64>, Option<u64>) {
        (self.queued_ms, self.run_ms)
    }

    /// It was cancelled while a change of it was being committed, and ends as soon as that is answered.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled
    }

    pub(crate) fn holds_key(&self) -> bool {
        self.holds_key
    }

    /// The requests that wait for it; one that was retried is listed twice.
    pub(crate) fn dependents(&self) -> &[RequestId] {
        &self.dependents
    }

    pub(crate) fn notes(&self) -> &Notes {
        &self.notes
    }

    /// Whether it may run twice, so that its claim need not be on disk before its run begins.
    pub(crate) fn is_repeatable(&self) -> bool {
        self.options().retries > 0 || self.options().idempotent
    }

    /// Whether runs are left after the one that failed.
    pub(crate) fn has_retries(&self) -> bool {
        // The first run is not a retry: with two retries the third run is the last.
        self.counted_attempts() <= self.options().retries
    }

    /// The worker that has it, or that is reserved for it.
    pub(crate) fn slot(&self) -> Option<Slot> {
        match &self.state {
            State::Accepting { slot } => *slot,
            State::Claiming { slot } => Some(*slot),
            State::Running(run) => Some(run.slot),
            _ => None,
        }
    }

    pub(crate) fn run(&self) -> Option<&Run> {
        match &self.state {
            State::Running(run) => Some(run),
            _ => None,
        }
    }

    /// Whether it runs and waits for its children, so that its place is another's.
    pub(crate) fn waits_for_children(&self) -> bool {
        self.run().is_some_and(|run| run.waits && !run.handed)
    }

    /// The worker that has it, unless it has given its place back.
    pub(crate) fn place(&self) -> Option<Slot> {
        self.slot().filter(|_| !self.waits_for_children())
    }

    /// Whether it waits in its worker's inbox behind another run.
    pub(crate) fn is_handed(&self) -> bool {
        self.run().is_some_and(|run| run.handed)
    }
}

/// Its transitions.
impl Entry {
    /// A worker is reserved for it while its row is being committed.
    pub(crate) fn reserve(&mut self, slot: Slot) {
        self.state = State::Accepting { slot: Some(slot) };
    }

    /// Its row is on disk, and the claim that was written with it is not yet.
    pub(crate) fn await_claim(&mut self, slot: Slot) {
        self.state = State::Claiming { slot };
    }

    /// Counts the next run, and gives its number.
    pub(crate) fn claim(&mut self) -> u32 {
        self.attempts += 1;
        self.claimed = self.claimed.max(self.attempts);
        self.attempts
    }

    /// No worker received the run that was claimed: its number is used again, and no worker is reserved any more.
    pub(crate) fn unclaim(&mut self) {
        self.attempts -= 1;
        if let State::Accepting { slot } = &mut self.state {
            *slot = None;
        }
    }

    /// It waits for other requests.
    pub(crate) fn wait_for_others(&mut self) {
        self.state = State::After;
    }

    /// It waits for its time.
    pub(crate) fn wait_for_time(&mut self) {
        self.state = State::Until;
    }

    /// It waits for its key.
    pub(crate) fn wait_for_key(&mut self) {
        self.state = State::Keyed;
    }

    /// It waits for its name.
    pub(crate) fn wait_for_name(&mut self) {
        self.state = State::Named;
    }

    /// It waits for a worker.
    pub(crate) fn wait_for_worker(&mut self, now: Millis) {
        self.state = State::Ready;
        self.ready_at = now;
    }

    /// Its worker has it, and begins it at once unless it is `handed`.
    pub(crate) fn start(&mut self, slot: Slot, now: Millis, handed: bool) {
        self.state = State::Running(Run {
            slot,
            began: now,
            handed,
            recalled: false,
            stop: None,
            waits: false,
            peak: None,
        });
    }

    /// Its worker begins the run that was handed to it; gives whether that waits for its children already.
    pub(crate) fn begin_handed(&mut self, now: Millis) -> bool {
        let Some(run) = self.run_mut() else {
            return false;
        };
        run.handed = false;
        run.began = now;
        std::mem::take(&mut run.waits)
    }

    /// It waits for its children from now on, or goes on: its worker. `None`: it does so already, or counts as handed,
    /// since the answer to the run before it is on its way; then that is taken up when it begins.
    pub(crate) fn set_waits(&mut self, waits: bool) -> Option<Slot> {
        let run = self.run_mut()?;
        let changes = std::mem::replace(&mut run.waits, waits) != waits;
        (changes && !run.handed).then_some(run.slot)
    }

    /// Its handed run is recalled. `None`: it is not handed, or was recalled before.
    pub(crate) fn recall(&mut self) -> Option<Slot> {
        let run = self.run_mut().filter(|run| run.handed)?;
        (!std::mem::replace(&mut run.recalled, true)).then_some(run.slot)
    }

    /// Its worker will not begin its run: the run's number, which is given, is used again.
    pub(crate) fn give_back(&mut self) -> u32 {
        let stop = self.run().and_then(|run| run.stop);
        self.cancelled |= stop.is_some_and(|stop| stop.reason == Reason::Cancel);
        self.state = State::Unclaiming;
        let attempt = self.attempts;
        self.attempts -= 1;
        attempt
    }

    /// Its run is to end. `false`: that has begun before, or it does not run.
    pub(crate) fn interrupt(&mut self, reason: Reason) -> bool {
        let Some(run) = self.run_mut() else {
            return false;
        };
        match &mut run.stop {
            // A cancel of a run that is being ended for its time means that no retry is wanted.
            Some(stop) if reason == Reason::Cancel => stop.reason = Reason::Cancel,
            Some(_) => {}
            None => {
                let step = Step::Exception;
                run.stop = Some(Stop { reason, step });
                return true;
            }
        }
        false
    }

    /// The end of its run has gone as far as this step.
    pub(crate) fn reach(&mut self, step: Step) {
        if let Some(stop) = self.run_mut().and_then(|run| run.stop.as_mut()) {
            stop.step = step;
        }
    }

    /// Its worker had this much private memory during its run.
    pub(crate) fn note_peak(&mut self, bytes: u64) {
        if let Some(run) = self.run_mut() {
            run.peak = run.peak.max(Some(bytes));
        }
    }

    /// The death of its worker counts against it.
    pub(crate) fn blame(&mut self) {
        self.deaths += 1;
    }

    /// Its next run is not before this time; `None`: as soon as it can be.
    pub(crate) fn postpone(&mut self, at: Option<Millis>) {
        self.not_before = at;
    }

    /// Somebody has cancelled it: whether nobody had before.
    pub(crate) fn first_cancel(&mut self) -> bool {
        !std::mem::replace(&mut self.cancel_kept, true)
    }

    /// A cancel that takes effect when the change on its way is answered.
    pub(crate) fn cancel_later(&mut self) {
        self.cancelled = true;
    }

    /// Its run has ended, and it waits for the next one from now on.
    pub(crate) fn queue_again(&mut self, now: Millis) {
        self.queued_at = Some(now);
    }

    /// Its end is being written.
    pub(crate) fn end(&mut self, ending: Arc<Ending>) {
        let began = self.run().map(|run| run.began);
        let waited = |since| began.unwrap_or(ending.at).saturating_sub(since);
        self.queued_ms = self.queued_at.map(waited);
        self.run_ms = began.map(|began| ending.at.saturating_sub(began));
        self.state = State::Ending(ending);
    }

    /// The file of its result is not what its worker announced: the end being written is a failure.
    pub(crate) fn end_unfit(&mut self, why: &str) {
        if let State::Ending(ending) = &mut self.state {
            *ending = Arc::new(Ending {
                status: Status::Failed,
                outcome: Outcome::Failed(Failure::Unkept(why.into())),
                ..Ending::clone(ending)
            });
        }
    }

    /// Takes over what the last server knew of it.
    pub(crate) fn restore(
        &mut self,
        attempts: u32,
        forgiven: u32,
        deaths: u32,
        wake_at: Option<Millis>,
    ) {
        self.attempts = attempts;
        self.claimed = attempts;
        if attempts > 0 {
            self.queued_at = None; // it was queued again, and nobody has kept when
        }
        self.forgiven = forgiven.min(attempts);
        self.deaths = deaths;
        // Its next run may be later than the options say, or its time may have passed: it began once.
        self.not_before = wake_at;
    }

    /// The last server has queued it again for an operator.
    pub(crate) fn was_retried(&mut self) {
        self.queued_at = None;
    }

    /// An operator's retry: earlier runs count no more.
    pub(crate) fn retry(&mut self, attempts: u32) {
        self.attempts = attempts;
        self.claimed = attempts;
        self.forgiven = attempts;
        // The operator wants it now: neither its delay nor its last back-off counts.
        self.not_before = None;
    }

    /// It is one of the holders of its key, or is not any more; gives what it was.
    pub(crate) fn set_holds_key(&mut self, holds: bool) -> bool {
        std::mem::replace(&mut self.holds_key, holds)
    }

    /// Sets its time among the timers; gives the time before.
    pub(crate) fn set_due(&mut self, due: Option<Millis>) -> Option<Millis> {
        std::mem::replace(&mut self.due, due)
    }

    /// Another request waits for it.
    pub(crate) fn add_dependent(&mut self, id: RequestId) {
        self.dependents.push(id);
    }

    /// Takes the requests that wait for it, each once.
    pub(crate) fn take_dependents(&mut self) -> Vec<RequestId> {
        let mut dependents = std::mem::take(&mut self.dependents);
        // A dependent that was retried waits for this request once.
        dependents.sort_unstable();
        dependents.dedup();
        dependents
    }

    /// It waits for so many requests.
    pub(crate) fn set_waits_for(&mut self, count: u32) {
        self.waits_for = count;
    }

    /// One predecessor has succeeded. `true`: it was the last.
    pub(crate) fn one_came_first(&mut self) -> bool {
        self.waits_for = self.waits_for.saturating_sub(1);
        self.waits_for == 0
    }

    pub(crate) fn note(&mut self, at: Millis, text: impl Into<String>) {
        self.notes.add(at, text);
    }

    fn run_mut(&mut self) -> Option<&mut Run> {
        match &mut self.state {
            State::Running(run) => Some(run),
            _ => None,
        }
    }
}
