//! Brings requests back: unfinished ones after a restart, ended ones by an operator's retry.

use std::collections::VecDeque;
use std::sync::Arc;

use super::commit::retry_refusal;
use crate::error::Refusal;
use crate::id::RequestId;
use crate::machine::Machine;
use crate::machine::entry::{Entry, IdMap, State};
use crate::op::{Op, Restored};
use crate::request::{Death, Failure, Millis, Outcome, Status};

/// Ended requests that are remembered, so that others can come after them.
const RECENT_MAX: usize = 16_384;

/// How the latest requests ended.
#[derive(Debug, Default)]
pub(in crate::machine) struct Recent {
    ended: IdMap<Status>,
    order: VecDeque<RequestId>,
}

impl Recent {
    pub(in crate::machine) fn add(&mut self, id: RequestId, status: Status) {
        if self.ended.insert(id, status).is_none() {
            self.order.push_back(id);
        }
        // A later submission that comes after a forgotten request makes the dispatcher ask the store.
        if self.order.len() > RECENT_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.ended.remove(&oldest);
        }
    }

    pub(in crate::machine) fn get(&self, id: RequestId) -> Option<Status> {
        self.ended.get(&id).copied()
    }
}

impl Machine {
    /// Takes over what the last server left, before anything else happens: `last` is the greatest id ever given,
    /// `learnt` the peaks by name and code, `fired` when each schedule last fired.
    ///
    /// What had not begun is queued. What had begun runs again if it may, and fails otherwise, with an unknown outcome
    /// if the machine was booted since. A predecessor that is neither unfinished nor remembered has been pruned and
    /// counts as succeeded: call `remember` first for those that ended otherwise.
    pub fn restore(
        &mut self,
        now: Millis,
        mut restored: Vec<Restored>,
        learnt: &[(Arc<str>, Arc<str>, Vec<u64>)],
        fired: &[(Arc<str>, Millis)],
        last: RequestId,
    ) {
        self.schedules.restore(self.wall.of(now), fired);
        self.last = self.last.max(last);
        for (name, code, peaks) in learnt {
            let index = self.names.index(name);
            for bytes in peaks {
                self.names.get_mut(index).peaks.learn(code, *bytes);
            }
        }
        // By age, so that a predecessor is in the register before the requests that come after it.
        restored.sort_by_key(|one| one.request.id);
        for one in restored {
            self.restore_one(now, one);
        }
        self.settle(now);
    }

    fn restore_one(&mut self, now: Millis, one: Restored) {
        self.last = self.last.max(one.request.id);
        self.schedules.restored(&one.request);
        // `After` has no list, so `advance` or `end` may move the request on.
        let key = self.enter(Arc::new(one.request), State::After);
        let Some(entry) = self.register.get_mut(key) else {
            return;
        };
        entry.attempts = one.attempts;
        entry.forgiven = one.forgiven.min(one.attempts);
        entry.deaths = one.deaths;
        // Its next run may be later than the options say, or its time may have passed: it began once.
        entry.not_before = one.wake_at;
        if one.status != Status::Running {
            // Its time was written by the clock of another boot.
            if one.rebooted && one.wake_at.is_some() {
                self.wall.follow(entry.request.id);
            }
            self.advance(now, key);
            return;
        }
        let failure = if one.rebooted {
            Failure::OutcomeUnknown
        } else {
            Failure::Died(Death::of("server"))
        };
        if entry.has_retries() || entry.options().idempotent {
            let (id, attempt, deaths) = (entry.request.id, entry.attempts, entry.deaths);
            // The delay was for its first run, which has begun.
            entry.not_before = None;
            entry.notes.add(
                now,
                format!("run {attempt} ended with the server; it may run again"),
            );
            let op = Op::Park {
                id,
                attempt,
                wake_at: now,
                failure,
                deaths,
            };
            self.write(now, key, op);
            self.advance(now, key);
        } else {
            self.end(now, key, Status::Failed, Outcome::Failed(failure), None);
        }
    }

    /// Remembers an ended request that was read back from the store, so that others can come after it.
    pub fn remember(&mut self, id: RequestId, status: Status) {
        if status.has_ended() && self.register.key(id).is_none() {
            self.recent.add(id, status);
        }
    }

    /// Remembers the idempotency key of an ended request that is still in the store.
    pub fn remember_idempotency(&mut self, key: Arc<str>, id: RequestId, name: &Arc<str>) {
        let name = self.names.index(name);
        self.idempotency.entry(key).or_insert((id, name));
    }

    /// The request with this idempotency key was pruned: the key is free.
    pub fn forget(&mut self, name: &str) {
        if let Some((id, _)) = self.idempotency.get(name)
            && self.register.key(*id).is_none()
        {
            self.idempotency.remove(name);
        }
    }

    pub(in crate::machine) fn forget_idempotency(&mut self, entry: &Entry) {
        if let Some(name) = &entry.options().idempotency
            && self
                .idempotency
                .get(name)
                .is_some_and(|(id, _)| *id == entry.request.id)
        {
            self.idempotency.remove(name);
        }
    }

    /// Runs an ended request again for an operator: its retries and deaths count anew, its attempts continue.
    /// `Action::Retried` follows.
    ///
    /// `false`: it has not ended.
    ///
    /// # Errors
    /// `store`: the change would be lost with the server.
    pub fn retry(&mut self, now: Millis, ended: Restored) -> Result<bool, Box<Refusal>> {
        let id = ended.request.id;
        if self.register.key(id).is_some() {
            return Ok(false);
        }
        if let Some(down) = &self.ledger.down {
            return Err(Box::new(retry_refusal(id, down)));
        }
        let key = self.enter(Arc::new(ended.request), State::Retrying);
        if let Some(entry) = self.register.get_mut(key) {
            entry.attempts = ended.attempts;
            entry.forgiven = ended.attempts;
            // The operator wants it now: neither its delay nor its last back-off counts.
            entry.not_before = None;
            entry.notes.add(now, "retried by an operator");
        }
        self.write(now, key, Op::Retry { id, at: now });
        self.settle(now);
        Ok(true)
    }
}
