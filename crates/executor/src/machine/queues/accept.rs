//! The way of a submission into a queue.

use std::sync::Arc;

use super::queue::Rank;
use crate::error::Refusal;
use crate::id::RequestId;
use crate::machine::entry::{Entry, Key, State};
use crate::machine::runs::commit::store_refusal;
use crate::machine::why::Notes;
use crate::machine::{Machine, Submitted};
use crate::op::Op;
use crate::request::{Lane, Millis, Request, Status, Submission};

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
        // Before the checks: a repeated submission gets its answer even while the server drains or is full.
        if let Some(name) = &submission.options.idempotency
            && let Some((id, of)) = self.idempotency.get(name)
        {
            let of = &self.names.get(*of).text;
            return if *of == submission.name {
                Ok(Submitted::Known(*id))
            } else {
                Err(Box::new(key_refusal(name, *id, of, &submission.name)))
            };
        }
        if let Err(refusal) = self.check(&submission) {
            self.counts.refused += 1;
            return Err(refusal);
        }
        let id = RequestId::after(self.last, now);
        self.last = id;
        let request = Arc::new(Request {
            id,
            accepted_at: now,
            submission,
        });
        let key = self.enter(request, State::Accepting { slot: None });
        // Before the row is written, so that row and claim are in one batch.
        let slot = self.reserve(now, key);
        let op = self
            .register
            .get(key)
            .map(|entry| Op::Accept(Arc::clone(&entry.request)));
        if let Some(op) = op {
            self.write(now, key, op);
        }
        if let Some(slot) = slot {
            self.write_claim(now, key);
            debug_assert!(self.workers.get(slot).is_some());
        }
        self.settle(now);
        Ok(Submitted::New(id))
    }

    fn check(&self, submission: &Submission) -> Result<(), Box<Refusal>> {
        if self.draining {
            return Err(Box::new(Refusal {
                code: "draining",
                message: "the server drains and takes no more requests".into(),
                object: submission.name.to_string(),
                limit: String::new(),
                value: String::new(),
                next: "submit it again when the server is back".into(),
            }));
        }
        if let Some(down) = &self.ledger.down {
            return Err(Box::new(store_refusal(&submission.name, down)));
        }
        let most = u64::from(self.policy.queued_max);
        if self.register.len() as u64 >= most {
            let next = "submit more slowly, or raise executor.max_queued";
            let value = self.register.len() as u64 + 1;
            return Err(Box::new(Refusal::limit(
                &submission.name,
                "max_queued",
                most,
                value,
                next,
            )));
        }
        for id in &submission.options.after {
            if self.register.key(*id).is_none() && self.recent.get(*id).is_none() {
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
    pub(in crate::machine) fn enter(&mut self, request: Arc<Request>, state: State) -> Key {
        let id = request.id;
        let submission = &request.submission;
        let name = self.names.index(&submission.name);
        let options = Arc::clone(&submission.options);
        self.lanes[options.lane as usize].in_use = true;
        if let Some(text) = &options.idempotency {
            self.idempotency.insert(Arc::clone(text), (id, name));
        }
        let key = self.register.add(Entry {
            request,
            state,
            attempts: 0,
            forgiven: 0,
            deaths: 0,
            name,
            waits_for: 0,
            dependents: Vec::new(),
            not_before: options.not_before,
            due: None,
            ready_at: 0,
            cancelled: false,
            holds_key: false,
            notes: Notes::default(),
        });
        let mut waits_for = 0;
        // A predecessor that is named twice succeeds once.
        let mut after = options.after.clone();
        after.sort_unstable();
        after.dedup();
        for before in &after {
            // A predecessor that is not in the register has ended: `recent` knows how, unless it was pruned, which
            // counts as success.
            let found = self.register.key(*before).filter(|one| *one != key);
            if let Some(entry) = found.and_then(|one| self.register.get_mut(one)) {
                entry.dependents.push(id);
                waits_for += 1;
            } else if self
                .recent
                .get(*before)
                .is_some_and(|status| status != Status::Succeeded)
            {
                self.doomed.push((id, *before));
            }
        }
        if let Some(entry) = self.register.get_mut(key) {
            entry.waits_for = waits_for;
        }
        key
    }

    /// Reserves an idle worker for a request that would run as soon as it is on disk, so that its claim shares the
    /// commit of its row. Nothing else waits for the worker meanwhile: the lane's queue is empty.
    fn reserve(&mut self, now: Millis, key: Key) -> Option<u32> {
        let entry = self.register.get(key)?;
        let lane = entry.lane();
        let waits = entry.waits_for > 0 || entry.not_before.is_some_and(|at| at > now);
        let doomed = self
            .doomed
            .last()
            .is_some_and(|(id, _)| *id == entry.request.id);
        let queued = !self.lanes[lane as usize].ready.is_empty();
        // Async workers have room for all, and are fast without a claim before the commit.
        if !self.policy.durable || waits || doomed || queued || lane == Lane::Async {
            return None;
        }
        if self.stopped_because(now).is_some() || self.names.get(entry.name).is_full() {
            return None;
        }
        let slot = self.workers.open(lane)?;
        self.fits(key, Some(slot)).ok()?;
        // Waiting for a key is left to `advance`, after the commit.
        if !self.take_key(key) {
            self.leave_key(key);
            return None;
        }
        self.occupy(key, slot);
        self.register.get_mut(key)?.state = State::Accepting { slot: Some(slot) };
        Some(slot)
    }

    /// Moves a request that is in no list into the first state that it has to wait in.
    pub(in crate::machine) fn advance(&mut self, now: Millis, key: Key) {
        let Some(entry) = self.register.get_mut(key) else {
            return;
        };
        if entry.cancelled {
            self.end_cancelled(now, key);
            return;
        }
        // The key comes last, so that a request does not hold it while it waits for something else.
        if entry.waits_for > 0 {
            entry.state = State::After;
            return;
        }
        if let Some(at) = entry.not_before.filter(|at| *at > now) {
            entry.state = State::Until;
            self.timers.set(key, &mut entry.due, Some(at));
            return;
        }
        self.wall.leave(entry.request.id);
        if self.take_key(key) {
            self.make_ready(now, key);
        } else if let Some(entry) = self.register.get_mut(key) {
            entry.state = State::Keyed;
        }
    }

    /// Puts a request into its lane's queue.
    pub(in crate::machine) fn make_ready(&mut self, now: Millis, key: Key) {
        let Some(entry) = self.register.get_mut(key) else {
            return;
        };
        entry.state = State::Ready;
        entry.ready_at = now;
        let rank = Rank::of(&entry.request, key);
        let queue = &mut self.lanes[entry.request.submission.options.lane as usize];
        if queue.ready.is_empty() {
            // An idle lane does not accumulate credit for the time in which it wanted nothing.
            queue.pass = queue.pass.max(self.pass);
        }
        queue.ready.push(&entry.request.submission.submitter, rank);
    }

    fn take_key(&mut self, key: Key) -> bool {
        let Some(entry) = self.register.get_mut(key) else {
            return false;
        };
        if !entry.holds_key {
            let rank = Rank::of(&entry.request, key);
            entry.holds_key = self.keys.take(&entry.request.submission, rank);
        }
        entry.holds_key
    }

    /// Stops waiting for its key.
    pub(in crate::machine) fn leave_key(&mut self, key: Key) {
        if let Some(entry) = self.register.get(key) {
            self.keys
                .leave(&entry.request.submission, Rank::of(&entry.request, key));
        }
    }

    /// Releases its key; the next request that waits for it advances.
    pub(in crate::machine) fn give_key(&mut self, now: Millis, key: Key) {
        let Some(entry) = self.register.get_mut(key) else {
            return;
        };
        if std::mem::take(&mut entry.holds_key)
            && let Some(next) = self.keys.give(&entry.request.submission.options)
        {
            self.advance(now, next);
        }
    }
}

/// The refusal of a key that a request of another name has: the submitter would get a result of another type.
fn key_refusal(key: &str, id: RequestId, of: &str, name: &str) -> Refusal {
    Refusal {
        code: "invalid",
        message: format!(
            "{name}: the idempotency key {key:?} is that of request {id}, which is of {of}"
        ),
        object: name.into(),
        limit: String::new(),
        value: key.into(),
        next: format!("put the name into the key, such as \"{name}:{key}\""),
    }
}
