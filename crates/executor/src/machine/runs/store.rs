//! The exchange with the store: changes out, answers in; what the last server left, and what an operator wants again.
//!
//! A large result is a file, which is written before the end of its request and beside the commits, so that no other
//! commit waits for it.

use std::sync::Arc;

use super::ledger::Written;
use super::{Runs, check_room};
use crate::action::Action;
use crate::error::Refusal;
use crate::id::RequestId;
use crate::machine::admission::NewPeak;
use crate::machine::entry::{Entry, State};
use crate::machine::parts::Parts;
use crate::machine::register::Key;
use crate::machine::schedules::Schedules;
use crate::news::News;
use crate::op::{KnownChild, Op, Restored};
use crate::request::{Cause, Death, Ending, Failure, Millis, Outcome, Status};

/// Changes on their way to the disk.
impl Runs {
    /// Gives a change to the store; without one it counts as committed at once.
    pub(super) fn write(&mut self, parts: &mut Parts, now: Millis, key: Key, op: Op) {
        let written = Written { key, op };
        if !parts.policy.durable {
            self.applied(parts, now, written);
        } else if let Some(op) = self.ledger.add(written) {
            parts.actions.push(Action::Store(op));
        }
    }

    /// Writes a change that is about no request, if there is a store.
    pub(in crate::machine) fn note(&mut self, parts: &mut Parts, now: Millis, op: Op) {
        if parts.policy.durable {
            self.write(parts, now, Key::MAX, op);
        }
    }

    /// Writes a peak that a restart should know.
    pub(super) fn write_peak(&mut self, parts: &mut Parts, now: Millis, learnt: Option<NewPeak>) {
        if let Some(NewPeak { name, code, bytes }) = learnt {
            let name = Arc::clone(parts.queues.name(name).text());
            self.note(parts, now, Op::Peak { name, code, bytes });
        }
    }

    /// Counts the next run, and writes its claim.
    pub(super) fn write_claim(&mut self, parts: &mut Parts, now: Millis, key: Key) {
        let Some(entry) = parts.register.get_mut(key) else {
            return;
        };
        let (id, attempt, at) = (entry.id(), entry.claim(), now);
        if parts.policy.durable {
            self.write(parts, now, key, Op::Claim { id, attempt, at });
        }
    }

    /// Writes the end of a request, and first its result if that becomes a file.
    pub(super) fn write_end(
        &mut self,
        parts: &mut Parts,
        now: Millis,
        key: Key,
        id: RequestId,
        ending: Arc<Ending>,
    ) {
        self.ledger.hold(&ending.outcome);
        let most = parts.policy.result_bytes_max;
        let in_file = match &ending.outcome {
            // The file that its worker left is checked in any case.
            Outcome::InFile(_) => true,
            // While the store is down the file would fail too; it is then written with the end.
            Outcome::Succeeded(result) => {
                result.len() as u64 > most && self.ledger.down().is_none()
            }
            Outcome::Failed(_) | Outcome::Cancelled => false,
        };
        if in_file && parts.policy.durable {
            self.filing.insert(id);
            parts.actions.push(Action::File(id, ending));
        } else {
            self.give_end(parts, now, key, id, ending);
        }
    }

    fn give_end(
        &mut self,
        parts: &mut Parts,
        now: Millis,
        key: Key,
        id: RequestId,
        ending: Arc<Ending>,
    ) {
        let entry = parts.register.get(key);
        let (deaths, claimed) = entry.map_or((0, 0), |entry| (entry.deaths(), entry.claimed()));
        let op = Op::End {
            id,
            ending,
            deaths,
            claimed,
        };
        self.write(parts, now, key, op);
    }

    /// The file of a result is on disk, or cannot be created; see `Machine::filed`. `false`: no file was awaited.
    pub(in crate::machine) fn filed(
        &mut self,
        parts: &mut Parts,
        now: Millis,
        id: RequestId,
        unfit: Option<&str>,
    ) -> bool {
        if !self.filing.remove(&id) {
            return false;
        }
        if let Some(key) = parts.register.key(id)
            && let Some(entry) = parts.register.get_mut(key)
        {
            if let Some(why) = unfit {
                entry.end_unfit(why);
            }
            if let State::Ending(ending) = entry.state() {
                let ending = Arc::clone(ending);
                self.give_end(parts, now, key, id, ending);
            }
        }
        true
    }

    /// Nothing is on its way to the disk.
    pub(in crate::machine) fn is_all_written(&self) -> bool {
        self.ledger.in_flight() == 0 && self.ledger.kept() == 0 && self.filing.is_empty()
    }

    /// The store cannot write, and has answered everything: waiting would not change that.
    pub(in crate::machine) fn is_stuck(&self) -> bool {
        self.ledger.down().is_some() && self.ledger.in_flight() == 0 && self.filing.is_empty()
    }

    /// Changes that the store has not answered.
    pub(in crate::machine) fn store_in_flight(&self) -> usize {
        self.ledger.in_flight()
    }

    /// Changes that wait until the store works.
    pub(in crate::machine) fn store_kept(&self) -> usize {
        self.ledger.kept()
    }
}

/// Answers of the store.
impl Runs {
    /// The oldest `count` changes in flight are on disk.
    pub(in crate::machine) fn committed(&mut self, parts: &mut Parts, now: Millis, count: usize) {
        for _ in 0..count {
            if let Some(written) = self.ledger.committed() {
                self.applied(parts, now, written);
            }
        }
        self.resume_store(parts);
    }

    fn applied(&mut self, parts: &mut Parts, now: Millis, written: Written) {
        let key = written.key;
        match written.op {
            Op::Accept(request) => self.accepted(parts, now, key, request.id),
            Op::Claim { id, .. } => self.claimed(parts, now, key, id),
            Op::Retry { id, .. } => {
                if let Some(entry) = parts.register.same(key, id) {
                    debug_assert!(matches!(entry.state(), State::Retrying));
                    let request = Arc::clone(entry.request());
                    parts.actions.push(Action::Retried(id, Ok(())));
                    parts.tell(|| News::Retried(request));
                    self.advance(parts, now, key);
                }
            }
            Op::Unclaim { id, attempt } => {
                if let Some(entry) = parts.register.same(key, id) {
                    debug_assert!(matches!(entry.state(), State::Unclaiming));
                    let request = Arc::clone(entry.request());
                    parts.tell(|| News::Queued {
                        request,
                        attempt,
                        reason: Cause::Returned,
                    });
                    self.advance(parts, now, key);
                }
            }
            Op::End { id, ending, .. } => {
                self.ledger.free(&ending.outcome);
                self.ended(parts, now, key, id, &ending);
            }
            // No state waits for these changes: a parked request waits for its time, not for the disk.
            Op::Park { .. }
            | Op::Acted { .. }
            | Op::Forget { .. }
            | Op::Peak { .. }
            | Op::Fired { .. }
            | Op::Paused { .. }
            | Op::Resumed { .. } => {}
        }
    }

    fn accepted(&mut self, parts: &mut Parts, now: Millis, key: Key, id: RequestId) {
        let Some(entry) = parts.register.same(key, id) else {
            return;
        };
        self.counts.accepted += 1;
        let State::Accepting { slot } = *entry.state() else {
            debug_assert!(false, "{id} was accepted twice");
            return;
        };
        let request = Arc::clone(entry.request());
        parts.actions.push(Action::Accepted(id));
        parts.tell(|| News::Accepted(request));
        let Some(entry) = parts.register.same(key, id) else {
            return;
        };
        match slot {
            // The claim was written with the row: its answer follows.
            Some(slot) => entry.await_claim(slot),
            None => self.advance(parts, now, key),
        }
    }

    fn claimed(&mut self, parts: &mut Parts, now: Millis, key: Key, id: RequestId) {
        let Some(entry) = parts.register.same(key, id) else {
            return;
        };
        let State::Claiming { slot } = *entry.state() else {
            return; // its run began before its claim was on disk, or was abandoned
        };
        if entry.is_cancelled() {
            self.unreserve(parts, now, key, slot);
        } else {
            parts.start_run(now, key, slot, false);
        }
    }

    /// The oldest `count` changes in flight are not on disk; see `Machine::not_committed`.
    pub(in crate::machine) fn not_committed(
        &mut self,
        parts: &mut Parts,
        schedules: &mut Schedules,
        now: Millis,
        count: usize,
        why: &str,
        permanent: bool,
    ) {
        let why: Arc<str> = why.into();
        let next = if permanent {
            "; it will not go away by itself"
        } else {
            ""
        };
        // First, so that changes which follow from these are kept and not given to a store that is down.
        self.ledger.fail(format!("{why}{next}").into());
        for _ in 0..count {
            let Some(written) = self.ledger.not_committed() else {
                break;
            };
            match &written.op {
                Op::Accept(request) => {
                    let refusal = Arc::new(store_refusal(&request.submission.name, &why));
                    schedules.refused(now, request, &refusal);
                    self.refuse(parts, now, written.key, request.id, refusal);
                }
                Op::Claim { id, .. } => {
                    // A reserved worker is released. A run that has begun keeps its claim, which is written again.
                    let (key, id) = (written.key, *id);
                    if !self.unclaim(parts, now, key, id) && parts.register.same(key, id).is_some()
                    {
                        self.ledger.keep(written);
                    }
                }
                // Its submission was refused: that time comes again.
                Op::Fired { name, .. } if schedules.take_back(name) => {}
                Op::Retry { id, .. } => {
                    let refusal = Arc::new(retry_kept(*id, &why));
                    parts.actions.push(Action::Retried(*id, Err(refusal)));
                    self.ledger.keep(written);
                }
                _ => self.ledger.keep(written),
            }
        }
        self.resume_store(parts);
    }

    fn refuse(
        &mut self,
        parts: &mut Parts,
        now: Millis,
        key: Key,
        id: RequestId,
        refusal: Arc<Refusal>,
    ) {
        let Some(entry) = parts.register.same(key, id) else {
            return;
        };
        if let State::Accepting { slot: Some(slot) } = *entry.state() {
            parts.release(now, key, slot);
        }
        parts.queues.give_key(&mut parts.register, now, key);
        let Some(entry) = parts.register.remove(key) else {
            return;
        };
        self.idempotency.forget(&entry);
        self.families.withdraw(entry.options(), id);
        self.counts.refused += 1;
        self.doomed
            .extend(entry.dependents().iter().map(|one| (*one, id)));
        parts.actions.push(Action::Refused(id, refusal));
    }

    /// The claim that was written with a row failed: the reserved worker is free again.
    fn unclaim(&mut self, parts: &mut Parts, now: Millis, key: Key, id: RequestId) -> bool {
        let Some(entry) = parts.register.same(key, id) else {
            return false;
        };
        let State::Claiming { slot } = *entry.state() else {
            return false;
        };
        self.unreserve(parts, now, key, slot);
        true
    }

    /// The store may work again: gives it the kept changes once more, in order.
    pub(in crate::machine) fn retry_store(&mut self, parts: &mut Parts) {
        self.ledger.retry();
        self.resume_store(parts);
    }

    /// Gives kept changes to the store once a retry is wanted and everything in flight was answered.
    fn resume_store(&mut self, parts: &mut Parts) {
        for written in self.ledger.resume() {
            if let Some(op) = self.ledger.add(written) {
                parts.actions.push(Action::Store(op));
            }
        }
    }
}

/// Requests of before.
impl Runs {
    /// Takes over the requests that the last server left, and the greatest id ever given.
    pub(in crate::machine) fn restore(
        &mut self,
        parts: &mut Parts,
        now: Millis,
        mut restored: Vec<Restored>,
        last: RequestId,
    ) {
        self.last = self.last.max(last);
        // By age, so that a predecessor is in the register before the requests that come after it.
        // What runs on comes first: it has no unfinished predecessor, and holds its key.
        restored.sort_by_key(|one| {
            let id = one.request.id;
            (!self.adopted.has(id, one.attempts), id)
        });
        for one in restored {
            self.last = self.last.max(one.request.id);
            self.restore_one(parts, now, one);
        }
    }

    fn restore_one(&mut self, parts: &mut Parts, now: Millis, one: Restored) {
        // `After` has no list, so `advance` or `end` may move the request on.
        let key = self.enter(parts, Arc::new(one.request), State::After);
        let Some(entry) = parts.register.get_mut(key) else {
            return;
        };
        parts.queues.restored(entry);
        entry.restore(one.attempts, one.forgiven, one.deaths, one.wake_at);
        if one.retried {
            entry.was_retried();
        }
        if one.status != Status::Running {
            // Its time was written by the clock of another boot.
            if one.rebooted && one.wake_at.is_some() {
                parts.queues.follow_wall(entry.id());
            }
            self.advance(parts, now, key);
            return;
        }
        if self.adopted.go_on(parts, now, key) {
            return;
        }
        let Some(entry) = parts.register.get_mut(key) else {
            return;
        };
        let failure = if one.rebooted {
            Failure::OutcomeUnknown
        } else {
            Failure::Died(Death::of("server"))
        };
        if entry.has_retries() || entry.options().idempotent {
            let (id, attempt, deaths) = (entry.id(), entry.attempts(), entry.deaths());
            // The delay was for its first run, which has begun.
            entry.postpone(None);
            let text = format!("run {attempt} ended with the server; it may run again");
            entry.note(now, text);
            entry.queue_again(now);
            let request = Arc::clone(entry.request());
            let reason = failure.cause();
            parts.tell(|| News::Queued {
                request,
                attempt,
                reason,
            });
            let op = Op::Park {
                id,
                attempt,
                wake_at: now,
                failure,
                deaths,
            };
            self.write(parts, now, key, op);
            self.advance(parts, now, key);
        } else {
            parts.queues.leave_list(&mut parts.register, now, key);
            let outcome = Outcome::Failed(failure);
            self.end(parts, now, key, Status::Failed, outcome, None);
        }
    }

    /// Remembers how an ended request ended.
    pub(in crate::machine) fn remember(&mut self, id: RequestId, status: Status) {
        self.recent.add(id, status);
    }

    /// Remembers the idempotency key of an ended request; see `Machine::remember_idempotency`.
    pub(in crate::machine) fn remember_idempotency(
        &mut self,
        parts: &mut Parts,
        key: Arc<str>,
        id: RequestId,
        name: &Arc<str>,
    ) {
        let name = parts.queues.index_of(name);
        self.idempotency.remember(key, id, name);
    }

    /// Remembers children, and which of them are to be cancelled; see `Machine::restore_children`.
    pub(in crate::machine) fn restore_children(
        &mut self,
        parts: &mut Parts,
        known: &[KnownChild],
        orphans: Vec<RequestId>,
    ) {
        self.orphaned.extend(orphans);
        for one in known {
            self.families.remember(parts, one);
            let parent = parts.register.by_id(one.parent).map(Entry::state);
            // It had begun when the last server ended, and may not run again.
            if let Some(State::Ending(ending)) = parent
                && ending.status != Status::Succeeded
            {
                self.orphaned.push(one.id);
            }
        }
    }

    /// The request with this idempotency key was pruned.
    pub(in crate::machine) fn forget_pruned(&mut self, parts: &Parts, key: &str) {
        self.idempotency.forget_pruned(&parts.register, key);
    }

    /// Runs an ended request again for an operator; see `Machine::retry`.
    pub(in crate::machine) fn retry(
        &mut self,
        parts: &mut Parts,
        now: Millis,
        ended: Restored,
    ) -> Result<bool, Box<Refusal>> {
        let id = ended.request.id;
        if parts.register.key(id).is_some() {
            return Ok(false);
        }
        if let Some(down) = self.ledger.down() {
            return Err(Box::new(retry_refusal(id, down)));
        }
        check_room(parts, &ended.request.submission)?;
        let key = self.enter(parts, Arc::new(ended.request), State::Retrying);
        if let Some(entry) = parts.register.get_mut(key) {
            entry.retry(ended.attempts);
            entry.note(now, "retried by an operator");
            entry.queue_again(now);
        }
        self.write(parts, now, key, Op::Retry { id, at: now });
        Ok(true)
    }
}

/// The refusal of a submission while the store cannot write.
pub(super) fn store_refusal(name: &str, why: &str) -> Refusal {
    let next = "make room on the disk of the state directory, then submit it again";
    unwritten(name, why, next)
}

/// The refusal of a retry while the store cannot write.
fn retry_refusal(id: RequestId, why: &str) -> Refusal {
    let next = "make room on the disk of the state directory, then retry it again";
    unwritten(&format!("request {id}"), why, next)
}

/// The answer to a retry that could not be written. Its change is kept as any other: after a failed sync, the disk may
/// have it.
fn retry_kept(id: RequestId, why: &str) -> Refusal {
    let next =
        "make room on the disk of the state directory: it is queued then, if the server still runs";
    unwritten(&format!("request {id}"), why, next)
}

fn unwritten(object: &str, why: &str, next: &str) -> Refusal {
    Refusal {
        code: "store",
        message: format!("{object}: the store cannot be written: {why}"),
        object: object.into(),
        limit: String::new(),
        value: String::new(),
        next: next.into(),
    }
}
