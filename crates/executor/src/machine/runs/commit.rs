//! The machine's exchange with the store: changes out, answers in.

use std::sync::Arc;

use super::ledger::Written;
use crate::action::Action;
use crate::error::Refusal;
use crate::id::RequestId;
use crate::machine::Machine;
use crate::machine::entry::{Key, State};
use crate::op::Op;
use crate::request::Millis;

impl Machine {
    /// Gives a change to the store; without one it counts as committed at once.
    pub(in crate::machine) fn write(&mut self, now: Millis, key: Key, op: Op) {
        let written = Written { key, op };
        if !self.policy.durable {
            self.applied(now, written);
        } else if let Some(op) = self.ledger.add(written) {
            self.actions.push(Action::Store(op));
        }
    }

    /// Counts the next run, and writes its claim.
    pub(in crate::machine) fn write_claim(&mut self, now: Millis, key: Key) {
        let Some(entry) = self.register.get_mut(key) else {
            return;
        };
        entry.attempts += 1;
        let (id, attempt) = (entry.request.id, entry.attempts);
        if self.policy.durable {
            self.write(
                now,
                key,
                Op::Claim {
                    id,
                    attempt,
                    at: now,
                },
            );
        }
    }

    /// The oldest `count` changes in flight are on disk.
    pub fn committed(&mut self, now: Millis, count: usize) {
        for _ in 0..count {
            if let Some(written) = self.ledger.committed() {
                self.applied(now, written);
            }
        }
        self.resume_store(now);
    }

    fn applied(&mut self, now: Millis, written: Written) {
        let key = written.key;
        match written.op {
            Op::Accept(request) => self.accepted(now, key, request.id),
            Op::Claim { id, .. } => self.claimed(now, key, id),
            Op::Retry { id, .. } => {
                if let Some(entry) = self.register.same(key, id) {
                    debug_assert!(matches!(entry.state, State::Retrying));
                    self.actions.push(Action::Retried(id, Ok(())));
                    self.advance(now, key);
                }
            }
            Op::Unclaim { id, .. } => {
                if let Some(entry) = self.register.same(key, id) {
                    debug_assert!(matches!(entry.state, State::Unclaiming));
                    self.advance(now, key);
                }
            }
            Op::End { id, ending, .. } => {
                self.ledger.free(&ending.outcome);
                self.ended(now, key, id, &ending);
            }
            // No state waits for these changes: a parked request waits for its time, not for the disk.
            Op::Park { .. }
            | Op::Peak { .. }
            | Op::Fired { .. }
            | Op::Paused { .. }
            | Op::Resumed { .. } => {}
        }
    }

    fn accepted(&mut self, now: Millis, key: Key, id: RequestId) {
        let Some(entry) = self.register.same(key, id) else {
            return;
        };
        self.counts.accepted += 1;
        self.actions.push(Action::Accepted(id));
        match entry.state {
            // The claim was written with the row: its answer follows.
            State::Accepting { slot: Some(slot) } => entry.state = State::Claiming { slot },
            State::Accepting { slot: None } => self.advance(now, key),
            _ => debug_assert!(false, "{id} was accepted twice"),
        }
    }

    fn claimed(&mut self, now: Millis, key: Key, id: RequestId) {
        let Some(entry) = self.register.same(key, id) else {
            return;
        };
        let State::Claiming { slot } = entry.state else {
            return; // its run began before its claim was on disk, or was abandoned
        };
        if entry.cancelled {
            self.unreserve(now, key, slot);
        } else {
            self.start_run(now, key, slot, false);
        }
    }

    /// The oldest `count` changes in flight are not on disk. Submissions among them are refused; other changes are kept
    /// for `retry_store`. Until then nothing is dispatched and no submission accepted.
    pub fn not_committed(&mut self, now: Millis, count: usize, why: &str, permanent: bool) {
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
                    self.refuse(now, written.key, request.id, refusal);
                }
                Op::Claim { id, .. } => {
                    // A reserved worker is released. A run that has begun keeps its claim, which is written again.
                    let (key, id) = (written.key, *id);
                    if !self.unclaim(now, key, id) && self.register.same(key, id).is_some() {
                        self.ledger.keep(written);
                    }
                }
                // Its submission was refused: that time comes again.
                Op::Fired { name, .. } if self.schedules.take_back(name) => {}
                Op::Retry { id, .. } => {
                    let refusal = Arc::new(retry_kept(*id, &why));
                    self.actions.push(Action::Retried(*id, Err(refusal)));
                    self.ledger.keep(written);
                }
                _ => self.ledger.keep(written),
            }
        }
        self.resume_store(now);
    }

    fn refuse(&mut self, now: Millis, key: Key, id: RequestId, refusal: Arc<Refusal>) {
        let Some(entry) = self.register.same(key, id) else {
            return;
        };
        if let State::Accepting { slot: Some(slot) } = entry.state {
            self.release(now, key, slot);
        }
        self.give_key(now, key);
        let Some(entry) = self.register.remove(key) else {
            return;
        };
        self.forget_idempotency(&entry);
        self.schedules
            .refused(self.wall.of(now), &entry.request, &refusal);
        self.counts.refused += 1;
        self.doomed
            .extend(entry.dependents.iter().map(|one| (*one, id)));
        self.actions.push(Action::Refused(id, refusal));
    }

    /// The claim that was written with a row failed: the reserved worker is free again.
    fn unclaim(&mut self, now: Millis, key: Key, id: RequestId) -> bool {
        let Some(entry) = self.register.same(key, id) else {
            return false;
        };
        let State::Claiming { slot } = entry.state else {
            return false;
        };
        self.unreserve(now, key, slot);
        true
    }

    /// The store may work again: gives it the kept changes once more, in order.
    pub fn retry_store(&mut self, now: Millis) {
        self.ledger.retry();
        self.resume_store(now);
    }

    /// Gives kept changes to the store once a retry is wanted and everything in flight was answered.
    fn resume_store(&mut self, now: Millis) {
        for written in self.ledger.resume() {
            if let Some(op) = self.ledger.add(written) {
                self.actions.push(Action::Store(op));
            }
        }
        self.settle(now);
    }
}

/// The refusal of a submission while the store cannot write.
pub(in crate::machine) fn store_refusal(name: &str, why: &str) -> Refusal {
    let next = "make room on the disk of the state directory, then submit it again";
    unwritten(name, why, next)
}

/// The refusal of a retry while the store cannot write.
pub(in crate::machine) fn retry_refusal(id: RequestId, why: &str) -> Refusal {
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
