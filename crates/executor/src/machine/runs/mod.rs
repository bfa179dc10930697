//! The runs of requests: from the submission over each run to the end.
//!
//! `Runs` owns what is between a decision and the disk, so that nothing is announced before it is on disk: the changes
//! in flight (`ledger`), the results that become files first, and the requests that are to fail because a predecessor
//! did. Of ended requests it knows how the latest ended (`recent`) and which idempotency keys they have (`idempotency`).
//! It works with the other parts (`Parts`), which its methods are given.
//!
//! A death counts against a request that ran alone in its worker, unless the worker was ended on purpose: by a cancel,
//! a time-out, the server's end, or the guard while the request was within its estimate. A request that the guard ended
//! within its estimate has still used up a run: it began, and may not begin twice without retries.

pub(super) mod adopt;
mod ahead;
mod dispatch;
pub(super) mod families;
mod idempotency;
mod interrupt;
mod ledger;
mod recent;
mod store;

use std::collections::HashSet;
use std::sync::Arc;

use super::Submitted;
use super::admission::Unmeasured;
use super::entry::{Entry, Reason, Run, State};
use super::jitter::Jitter;
use super::notes::seconds;
use super::parts::Parts;
use super::register::Key;
use super::schedules::SUBMITTER as SCHEDULES;
use crate::action::Action;
use crate::error::Refusal;
use crate::id::RequestId;
use crate::limit::NODES_LOST_MAX;
use crate::news::News;
use crate::op::Op;
use crate::request::{
    Death, Ending, Failure, Lane, Millis, Outcome, Request, Slot, Status, Submission,
};
use adopt::Adopted;
pub use adopt::{AdoptedRun, AdoptedWorker};
use families::Families;
use idempotency::IdempotencyKeys;
use ledger::Ledger;
use recent::Recent;

/// The outcome of a cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// It will not run; its end is being written.
    Now,
    /// It runs and was interrupted. If it succeeds first, it has succeeded.
    Asked,
    /// Its end is being written, and stays as it is.
    AlreadyEnded,
    /// No unfinished request has this id.
    Unknown,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub accepted: u64,
    pub refused: u64,
    /// Indexed by the number of the status.
    pub ended: [u64; 6],
    pub deaths: u64,
}

/// What is known of runs, and of changes that are not on disk.
#[derive(Debug)]
pub(super) struct Runs {
    jitter: Jitter,
    /// The greatest id ever given.
    last: RequestId,
    ledger: Ledger,
    recent: Recent,
    idempotency: IdempotencyKeys,
    families: Families,
    /// Children of requests that did not succeed, or are to be ended.
    orphaned: Vec<RequestId>,
    /// Ended requests whose results are being written to files first.
    filing: HashSet<RequestId>,
    /// Requests that are to fail because a predecessor did not succeed.
    doomed: Vec<(RequestId, RequestId)>,
    counts: Counts,
    /// Runs of the last server that go on, until the requests are restored.
    adopted: Adopted,
}

impl Runs {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            jitter: Jitter(seed),
            last: RequestId(0),
            ledger: Ledger::default(),
            recent: Recent::default(),
            idempotency: IdempotencyKeys::default(),
            families: Families::default(),
            orphaned: Vec::new(),
            filing: HashSet::new(),
            doomed: Vec::new(),
            counts: Counts::default(),
            adopted: Adopted::default(),
        }
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Why nothing is dispatched at all, with what a person can do.
    pub(super) fn stopped_because(&self, parts: &Parts, now: Millis) -> Option<(String, String)> {
        if let Some(held) = parts.admission.held_because() {
            return Some(held);
        }
        if let Some(down) = self.ledger.down() {
            let next = "make room on the disk of the state directory".into();
            return Some((format!("the store cannot be written: {down}"), next));
        }
        if let Some(bytes) = self.ledger.is_behind() {
            let reason = format!("{bytes} bytes of results are being written to the disk");
            let next = "wait; a faster disk for the state directory helps".into();
            return Some((reason, next));
        }
        parts.workers.start_reason(now)
    }
}

/// Submissions.
impl Runs {
    /// Takes a submission; see `Machine::submit`.
    #[inline] // into its only caller, so that the submission is not copied once more
    pub(super) fn submit(
        &mut self,
        parts: &mut Parts,
        now: Millis,
        mut submission: Submission,
    ) -> Result<Submitted, Box<Refusal>> {
        // Before the checks: a repeated submission gets its answer even while the server drains or is full.
        Families::check_parent(parts, &submission)?;
        if let Some(id) = self.idempotency.known(&parts.queues, &submission)? {
            Families::check_found(parts, &submission, id)?;
            return Ok(Submitted::Known(id));
        }
        if let Some(id) = self.families.known(parts, &submission)? {
            return Ok(Submitted::Known(id));
        }
        if let Err(refusal) = self.check(parts, &mut submission) {
            self.counts.refused += 1;
            return Err(refusal);
        }
        let id = RequestId::after(self.last, now, parts.policy.server_number);
        self.last = id;
        let request = Arc::new(Request {
            id,
            accepted_at: now,
            submission,
        });
        let row = Op::Accept(Arc::clone(&request));
        let key = self.enter(parts, request, State::Accepting { slot: None });
        // Before the row is written, so that row and claim are in one batch.
        let slot = self.reserve(parts, now, key);
        self.write(parts, now, key, row);
        if let Some(slot) = slot {
            self.write_claim(parts, now, key);
            debug_assert!(parts.workers.get(slot).is_some());
        }
        Ok(Submitted::New(id))
    }

    fn check(&self, parts: &Parts, submission: &mut Submission) -> Result<(), Box<Refusal>> {
        // What runs may submit its children to its end: they belong to what was accepted.
        if submission.options.child.is_none()
            && let Some(refusal) = parts.admission.refusal(&submission.name)
        {
            return Err(Box::new(refusal));
        }
        Families::adopt(parts, submission)?;
        if let Some(down) = self.ledger.down() {
            return Err(Box::new(store::store_refusal(&submission.name, down)));
        }
        check_room(parts, submission)?;
        for id in &submission.options.after {
            if parts.register.key(*id).is_none() && self.recent.get(*id).is_none() {
                let next = "name requests that this server has";
                return Err(Box::new(Refusal::unknown(
                    "request to come after",
                    &id.to_string(),
                    next,
                )));
            }
        }
        Ok(())
    }

    /// Adds a request to the register, with what it waits for.
    fn enter(&mut self, parts: &mut Parts, request: Arc<Request>, state: State) -> Key {
        let id = request.id;
        let options = Arc::clone(&request.submission.options);
        let name = parts.queues.index_of(&request.submission.name);
        parts.workers.use_lane(options.lane);
        self.idempotency.note(&options, id, name);
        // One that is restored or retried is no submission of its parent's current run.
        if matches!(state, State::Accepting { .. }) {
            self.families.note(parts, &options, id, name);
        }
        let key = parts.register.add(Entry::new(request, state, name));
        let mut waits_for = 0;
        // A predecessor that is named twice succeeds once.
        let mut after = options.after.clone();
        after.sort_unstable();
        after.dedup();
        for before in &after {
            // A predecessor that is not in the register has ended: `recent` knows how, unless it was pruned, which
            // counts as success.
            let found = parts.register.key(*before).filter(|one| *one != key);
            if let Some(entry) = found.and_then(|one| parts.register.get_mut(one)) {
                entry.add_dependent(id);
                waits_for += 1;
            } else if self
                .recent
                .get(*before)
                .is_some_and(|status| status != Status::Succeeded)
            {
                self.doomed.push((id, *before));
            }
        }
        if let Some(entry) = parts.register.get_mut(key) {
            entry.set_waits_for(waits_for);
        }
        key
    }

    /// Reserves an idle worker for a request that would run as soon as it is on disk, so that its claim shares the
    /// commit of its row. Nothing else waits for the worker meanwhile: the lane's queue is empty.
    fn reserve(&mut self, parts: &mut Parts, now: Millis, key: Key) -> Option<Slot> {
        let entry = parts.register.get(key)?;
        let lane = entry.lane();
        let waits = entry.waits_for() > 0 || entry.not_before().is_some_and(|at| at > now);
        let doomed = self.doomed.last().is_some_and(|(id, _)| *id == entry.id());
        let queued = !parts.queues.is_empty(lane);
        // Async workers have room for all, and are fast without a claim before the commit.
        if !parts.policy.durable || waits || doomed || queued || lane == Lane::Async {
            return None;
        }
        let is_full = parts.queues.name(entry.name()).is_full();
        if is_full || self.stopped_because(parts, now).is_some() {
            return None;
        }
        let slot = parts.workers.open(lane)?;
        parts.fits(key, Some(slot)).ok()?;
        // Waiting for a key is left to `advance`, after the commit.
        if !parts.queues.take_key(&mut parts.register, key) {
            parts.queues.leave_key(&parts.register, key);
            return None;
        }
        parts.occupy(key, slot);
        parts.register.get_mut(key)?.reserve(slot);
        Some(slot)
    }

    /// Moves a request whose last change was answered into the first state that it has to wait in, or ends it if it was
    /// cancelled meanwhile.
    fn advance(&mut self, parts: &mut Parts, now: Millis, key: Key) {
        if parts.register.get(key).is_some_and(Entry::is_cancelled) {
            self.end_cancelled(parts, now, key);
        } else {
            parts.queues.advance(&mut parts.register, now, key);
        }
    }
}

/// Ends of runs.
impl Runs {
    /// A worker has replied. `false`: the slot does not have this run, and the reply is from before a death.
    #[inline] // into its only caller, so that the outcome is not copied once more
    pub(super) fn finished(
        &mut self,
        parts: &mut Parts,
        now: Millis,
        slot: Slot,
        (id, attempt): (RequestId, u32),
        outcome: Outcome,
        peak: Option<u64>,
    ) -> bool {
        let Some((key, run)) = run_of(parts, slot, id, attempt) else {
            return false;
        };
        let peak = peak.max(run.peak);
        self.learn(parts, now, key, slot, peak);
        parts.release(now, key, slot);
        // Before this request's end is decided: the worker is at its next run already.
        parts.begin_next(now, slot);
        note_time(parts, now, key, &run);
        self.conclude(parts, now, key, &run, outcome, peak);
        parts.after_run(now, slot);
        true
    }

    /// A worker has returned a run that it had not begun. `false`: the run is not that worker's.
    pub(super) fn returned(
        &mut self,
        parts: &mut Parts,
        now: Millis,
        slot: Slot,
        id: RequestId,
        attempt: u32,
    ) -> bool {
        let Some((key, run)) = run_of(parts, slot, id, attempt) else {
            return false;
        };
        if parts.register.get(key).map(Entry::lane) == Some(Lane::Async) {
            return false;
        }
        self.take_back(parts, now, key, slot);
        // The machine may count it as begun already, since the run before it has ended.
        if !run.handed {
            parts.begin_next(now, slot);
        }
        parts.after_run(now, slot);
        true
    }

    /// Takes a run back that its worker will not begin: the request is queued again, or ends if it was recalled for
    /// that.
    fn take_back(&mut self, parts: &mut Parts, now: Millis, key: Key, slot: Slot) {
        parts.release(now, key, slot);
        parts.workers.unuse(slot);
        let Some(entry) = parts.register.get_mut(key) else {
            return;
        };
        let attempt = entry.give_back();
        parts.queues.set_due(key, entry, None);
        entry.note(now, format!("worker {slot} returned it before it began"));
        let id = entry.id();
        self.write(parts, now, key, Op::Unclaim { id, attempt });
    }

    /// A worker could not be started, and there is no process. `false`: it was not being started.
    pub(super) fn worker_failed(
        &mut self,
        parts: &mut Parts,
        now: Millis,
        slot: Slot,
        why: Arc<str>,
    ) -> bool {
        if !parts.workers.is_starting(slot) {
            return false;
        }
        self.start_failed(parts, now, why);
        parts.forget_worker(slot);
        true
    }

    /// The next attempt waits longer each time, so that a broken application does not occupy a core.
    fn start_failed(&mut self, parts: &mut Parts, now: Millis, why: Arc<str>) {
        let Some(failed) = parts.workers.count_failed_start(now) else {
            return; // one of several that died together
        };
        let policy = &parts.policy;
        let (first, most) = (policy.start_backoff_ms, policy.start_backoff_max_ms);
        let wait = self.jitter.backoff(first, most, failed);
        parts.workers.delay_starts(now.saturating_add(wait), why);
    }

    /// A worker has died, or has exited as it was told to. `false`: there is none in this slot.
    pub(super) fn worker_gone(
        &mut self,
        parts: &mut Parts,
        now: Millis,
        slot: Slot,
        death: Death,
    ) -> bool {
        let Some(worker) = parts.workers.get(slot) else {
            return false;
        };
        let (runs, expelled) = (worker.runs().to_vec(), worker.expelled());
        let alone = worker.lane() != Lane::Async || runs.len() == 1;
        let death = match expelled {
            Some(expelled) => Death {
                cause: "memory".into(),
                peak_bytes: Some(expelled.peak_bytes),
                limit_bytes: Some(expelled.limit_bytes),
                ..death
            },
            None => death,
        };
        // A request among many in one worker is not blamed for the death, nor one that the guard ended within its
        // estimate, nor one whose worker ended with its keeper or its node.
        let of_others = matches!(&*death.cause, "server" | "node_lost");
        let blamed = alone && expelled.is_none_or(|expelled| !expelled.within) && !of_others;
        // Before handed runs are taken back, which lowers the worker's `uses`.
        if let Some(why) = parts.workers.failed_start(slot, &death) {
            self.start_failed(parts, now, why);
        }
        for key in runs {
            if parts.register.get(key).is_some_and(Entry::is_handed) {
                self.take_back(parts, now, key, slot);
            } else {
                self.lost(parts, now, key, slot, &death, blamed);
            }
        }
        parts.forget_worker(slot);
        true
    }

    /// A worker that had this request is gone.
    fn lost(
        &mut self,
        parts: &mut Parts,
        now: Millis,
        key: Key,
        slot: Slot,
        death: &Death,
        blamed: bool,
    ) {
        let Some(entry) = parts.register.get(key) else {
            return;
        };
        let Some(run) = entry.run().copied() else {
            self.unreserve(parts, now, key, slot);
            return;
        };
        let peak = death.peak_bytes.max(run.peak);
        self.counts.deaths += 1;
        self.learn(parts, now, key, slot, peak);
        parts.release(now, key, slot);
        let Some(entry) = parts.register.get_mut(key) else {
            return;
        };
        if blamed && run.stop.is_none() {
            entry.blame();
        }
        let attempt = entry.attempts();
        let text = format!("run {attempt} ended: its worker died ({})", death.cause);
        entry.note(now, text);
        if parts.policy.durable {
            parts.actions.push(Action::Discard(entry.id(), attempt));
        }
        let outcome = Outcome::Failed(Failure::Died(death.clone()));
        self.conclude(parts, now, key, &run, outcome, peak);
    }

    /// The worker that was reserved for a request is gone, or its claim failed, before its run began.
    fn unreserve(&mut self, parts: &mut Parts, now: Millis, key: Key, slot: Slot) {
        parts.release(now, key, slot);
        let Some(entry) = parts.register.get_mut(key) else {
            return;
        };
        entry.unclaim();
        if matches!(entry.state(), State::Claiming { .. }) {
            self.advance(parts, now, key);
        }
    }

    /// A worker's private bytes were measured. `false`: there is none in this slot.
    pub(super) fn worker_measured(
        &mut self,
        parts: &mut Parts,
        now: Millis,
        slot: Slot,
        bytes: u64,
    ) -> bool {
        let Some(worker) = parts.workers.get(slot) else {
            return false;
        };
        let learnt = parts
            .admission
            .worker_measured(&mut parts.register, slot, worker, bytes);
        self.write_peak(parts, now, learnt);
        true
    }

    /// A run has ended, with this peak if it was measured.
    fn learn(&mut self, parts: &mut Parts, now: Millis, key: Key, slot: Slot, peak: Option<u64>) {
        let Some(entry) = parts.register.get(key) else {
            return;
        };
        match parts.admission.learn(&parts.policy, entry, slot, peak) {
            Ok(learnt) => self.write_peak(parts, now, learnt),
            Err(Unmeasured) => parts.actions.push(Action::Measure { slot }),
        }
    }

    /// Acts on a run's outcome. Its worker has been released.
    fn conclude(
        &mut self,
        parts: &mut Parts,
        now: Millis,
        key: Key,
        run: &Run,
        outcome: Outcome,
        peak: Option<u64>,
    ) {
        let reason = run.stop.map(|stop| stop.reason);
        let failure = match (outcome, reason) {
            // It succeeded before the interrupt took effect.
            (outcome @ (Outcome::Succeeded(_) | Outcome::InFile(_)), _) => {
                return self.end(parts, now, key, Status::Succeeded, outcome, peak);
            }
            (_, Some(Reason::Cancel)) | (Outcome::Cancelled, None) => {
                let outcome = Outcome::Cancelled;
                return self.end(parts, now, key, Status::Cancelled, outcome, peak);
            }
            (_, Some(Reason::Time)) => {
                let entry = parts.register.get(key);
                let timeout = entry.and_then(|entry| entry.options().timeout_ms);
                Failure::TimedOut {
                    timeout_ms: timeout.unwrap_or_default(),
                }
            }
            (Outcome::Failed(failure), None) => failure,
        };
        let Some(entry) = parts.register.get(key) else {
            return;
        };
        let retries = entry.options().retries;
        let died = matches!(failure, Failure::Died(_));
        let node_lost = matches!(&failure, Failure::Died(death) if &*death.cause == "node_lost");
        // Nobody knows whether a run on a lost node has ended; it may also be what ends nodes.
        let begins_again = node_lost && entry.attempts() < NODES_LOST_MAX;
        let may_repeat = entry.has_retries() || (begins_again && entry.options().idempotent);
        // Without retries the first death fails the request anyway.
        let status = if died && retries > 0 && entry.deaths() >= parts.policy.deaths_max {
            Status::Dead
        } else if may_repeat {
            return self.park(parts, now, key, failure);
        } else {
            Status::Failed
        };
        self.end(parts, now, key, status, Outcome::Failed(failure), peak);
    }

    /// Lets a request wait for its next run.
    fn park(&mut self, parts: &mut Parts, now: Millis, key: Key, failure: Failure) {
        parts.queues.give_key(&mut parts.register, now, key);
        let Some(entry) = parts.register.get_mut(key) else {
            return;
        };
        let options = entry.options();
        let (first, most) = (options.backoff_ms, options.backoff_max_ms);
        let wait = self.jitter.backoff(first, most, entry.counted_attempts());
        let wake_at = now.saturating_add(wait);
        entry.postpone(Some(wake_at));
        let (id, attempt, deaths) = (entry.id(), entry.attempts(), entry.deaths());
        let text = format!(
            "run {attempt} failed ({}), the next one in {}",
            kind(&failure),
            seconds(wait)
        );
        entry.note(now, text);
        entry.queue_again(now);
        let request = Arc::clone(entry.request());
        parts.queues.set_due(key, entry, None);
        let reason = failure.cause();
        parts.tell(|| News::Queued {
            request,
            attempt,
            reason,
        });
        if parts.policy.durable {
            let op = Op::Park {
                id,
                attempt,
                wake_at,
                failure,
                deaths,
            };
            self.write(parts, now, key, op);
        }
        self.advance(parts, now, key);
    }
}

/// Ends of requests.
impl Runs {
    /// Ends a request in any state; see `Machine::cancel`.
    pub(super) fn cancel(&mut self, parts: &mut Parts, now: Millis, id: RequestId) -> Cancelled {
        let Some(key) = parts.register.key(id) else {
            return Cancelled::Unknown;
        };
        let Some(entry) = parts.register.get_mut(key) else {
            return Cancelled::Unknown;
        };
        match entry.state() {
            State::Ending(_) => return Cancelled::AlreadyEnded,
            State::Running(_) => {
                parts.interrupt(now, key, Reason::Cancel);
                self.orphaned.extend(self.families.of(id));
                return Cancelled::Asked;
            }
            // Noted until the store has answered: the change on its way cannot be taken back.
            State::Accepting { .. }
            | State::Claiming { .. }
            | State::Retrying
            | State::Unclaiming => entry.cancel_later(),
            State::After | State::Until | State::Keyed | State::Named | State::Ready => {
                parts.queues.leave_list(&mut parts.register, now, key);
                self.end_cancelled(parts, now, key);
            }
        }
        Cancelled::Now
    }

    fn end_cancelled(&mut self, parts: &mut Parts, now: Millis, key: Key) {
        let outcome = Outcome::Cancelled;
        self.end(parts, now, key, Status::Cancelled, outcome, None);
    }

    /// Ends a request that is in no list: its end is written, and announced when that is on disk.
    fn end(
        &mut self,
        parts: &mut Parts,
        now: Millis,
        key: Key,
        status: Status,
        outcome: Outcome,
        peak: Option<u64>,
    ) {
        parts.queues.give_key(&mut parts.register, now, key);
        let Some(entry) = parts.register.get_mut(key) else {
            return;
        };
        parts.queues.set_due(key, entry, None);
        let ending = Arc::new(Ending {
            status,
            attempts: entry.attempts(),
            at: now,
            peak_bytes: peak,
            outcome,
        });
        entry.end(Arc::clone(&ending));
        let id = entry.id();
        if status != Status::Succeeded {
            self.orphaned.extend(self.families.of(id));
        }
        self.write_end(parts, now, key, id, ending);
    }

    /// The children of an unfinished request.
    pub(super) fn children(&self, id: RequestId) -> Vec<RequestId> {
        self.families.of(id)
    }

    /// A request's end is on disk.
    fn ended(
        &mut self,
        parts: &mut Parts,
        now: Millis,
        key: Key,
        id: RequestId,
        ending: &Arc<Ending>,
    ) {
        if parts.register.same(key, id).is_none() {
            return;
        }
        let Some(mut entry) = parts.register.remove(key) else {
            return;
        };
        self.counts.ended[ending.status as usize] += 1;
        self.recent.add(id, ending.status);
        if self.families.forget(id) {
            self.note(parts, now, Op::Forget { parent: id });
        }
        if !parts.policy.durable {
            self.idempotency.forget(&entry); // nothing of it is kept
        }
        parts.actions.push(Action::Ended(id, Arc::clone(ending)));
        parts.tell(|| {
            let (queued_ms, run_ms) = entry.took_ms();
            News::Ended {
                request: Arc::clone(entry.request()),
                ending: Arc::clone(ending),
                queued_ms,
                run_ms,
            }
        });
        for dependent in entry.take_dependents() {
            if ending.status == Status::Succeeded {
                one_came_first(parts, now, dependent);
            } else {
                self.doomed.push((dependent, id));
            }
        }
    }

    /// Fails requests whose predecessors did not succeed: in a loop, so that a long chain cannot exhaust the stack.
    pub(super) fn fail_doomed(&mut self, parts: &mut Parts, now: Millis) {
        if self.doomed.is_empty() {
            return; // as after nearly every event
        }
        let mut later = Vec::new();
        while let Some((id, before)) = self.doomed.pop() {
            let Some(key) = parts.register.key(id) else {
                continue;
            };
            match parts.register.get(key).map(Entry::state) {
                // Its row is not on disk yet: it fails when it is.
                Some(State::Accepting { .. } | State::Retrying | State::Unclaiming) => {
                    later.push((id, before));
                }
                Some(State::After | State::Until | State::Keyed | State::Named | State::Ready) => {
                    parts.queues.leave_list(&mut parts.register, now, key);
                    let outcome = Outcome::Failed(Failure::After(before));
                    self.end(parts, now, key, Status::Failed, outcome, None);
                }
                _ => {}
            }
        }
        self.doomed = later;
    }
}

/// Refuses one more unfinished request, submitted or retried, beyond `max_queued` or what its submitter may have.
fn check_room(parts: &Parts, submission: &Submission) -> Result<(), Box<Refusal>> {
    let most = u64::from(parts.policy.queued_max);
    let unfinished = parts.register.len() as u64;
    if unfinished < most {
        return check_quota(parts, submission);
    }
    Err(Box::new(Refusal::limit(
        &submission.name,
        "max_queued",
        most,
        unfinished + 1,
        "submit more slowly, or raise executor.max_queued",
    )))
}

/// Refuses a request beyond what its submitter may have unfinished. Schedules have one request each at a time.
fn check_quota(parts: &Parts, submission: &Submission) -> Result<(), Box<Refusal>> {
    let usual = parts.policy.queued_per_submitter_max;
    let (limit, most) = match submission.options.quota {
        Some(quota) => ("quota", quota),
        None => ("max_queued_per_submitter", usual),
    };
    let submitter = &submission.submitter;
    // Whoever may have the parent may have what it consists of.
    if submission.options.child.is_some() || most == 0 || &**submitter == SCHEDULES {
        return Ok(());
    }
    let unfinished = parts.register.len_of(submitter);
    if unfinished < most {
        return Ok(());
    }
    Err(Box::new(Refusal::limit(
        &format!("submitter {submitter:?}"),
        limit,
        u64::from(most),
        u64::from(unfinished) + 1,
        "wait until some of its requests have ended, or have the limit raised",
    )))
}

/// The run that a worker has, with the key of its request, if it is this one.
fn run_of(parts: &Parts, slot: Slot, id: RequestId, attempt: u32) -> Option<(Key, Run)> {
    let key = parts.register.key(id)?;
    let entry = parts.register.get(key)?;
    let run = entry.run().copied().filter(|run| run.slot == slot)?;
    (entry.attempts() == attempt).then_some((key, run))
}

/// One predecessor of a request has succeeded.
fn one_came_first(parts: &mut Parts, now: Millis, id: RequestId) {
    let Some(key) = parts.register.key(id) else {
        return;
    };
    let Some(entry) = parts.register.get_mut(key) else {
        return;
    };
    if entry.one_came_first() && matches!(entry.state(), State::After) {
        parts.queues.advance(&mut parts.register, now, key);
    }
}

fn note_time(parts: &mut Parts, now: Millis, key: Key, run: &Run) {
    if let Some(entry) = parts.register.get(key) {
        let took = now.saturating_sub(run.began);
        let while_ms = parts.policy.burst_run_ms_min;
        let while_ms = while_ms.max(parts.policy.ahead_ms_max);
        parts.workers.run_ended(entry.lane(), now, took, while_ms);
    }
}

/// A failure in a few words.
fn kind(failure: &Failure) -> &'static str {
    match failure {
        Failure::Raised(_) => "it raised",
        Failure::Died(_) => "its worker died",
        Failure::TimedOut { .. } => "it timed out",
        Failure::After(_) => "a request that it waited for failed",
        Failure::OutcomeUnknown => "its outcome is unknown",
        Failure::Unkept(_) => "its result could not be stored",
        Failure::Refused(_) => "it was refused",
    }
}
