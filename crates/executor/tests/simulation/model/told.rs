//! What each event does by itself, before the machine chooses anything.

use std::sync::Arc;

use forebay_executor::id::RequestId;
use forebay_executor::machine::{Cancelled, Definition, Submitted};
use forebay_executor::op::Restored;
use forebay_executor::request::{Cause, Death, Failure, Lane, Outcome, Slot, Status, Submission};

use super::super::event::{Answer, Learnt};
use super::Model;
use super::hand::{Hand, Starts};
use super::known::{Known, Place, Run};
use super::ledger::Change;

impl Model {
    pub(super) fn submit(&mut self, submission: &Submission) {
        let options = &submission.options;
        let known = options
            .idempotency
            .as_ref()
            .and_then(|key| self.tokens.get(key));
        if let Some((id, of)) = known {
            self.answer = if *of == submission.name {
                Answer::Submitted(Submitted::Known(*id))
            } else {
                self.refusal("invalid", "")
            };
            return;
        }
        let is_there =
            |id: &RequestId| self.requests.contains_key(id) || self.ended.contains_key(id);
        let refusal = if self.is_draining || self.cordon.is_some() {
            Some(self.refusal("draining", ""))
        } else if self.ledger.is_down {
            Some(self.refusal("store", ""))
        } else if self.is_full() {
            Some(self.refusal("limit", &(self.requests.len() + 1).to_string()))
        } else if !options.after.iter().all(is_there) {
            Some(self.refusal("unknown", ""))
        } else {
            None
        };
        if let Some(refusal) = refusal {
            self.counts.refused += 1;
            self.answer = refusal;
            return;
        }
        let id = RequestId::after(self.last, self.now, 0);
        self.last = id;
        self.answer = Answer::Submitted(Submitted::New(id));
        self.newest = Some(id);
        let known = Known::new(submission.clone(), Place::Accepting, Some(self.now));
        self.enter(id, known);
        self.write(Change::Accept(id));
    }

    #[allow(clippy::unused_self, reason = "beside its kin")]
    pub(super) fn refusal(&self, code: &'static str, value: &str) -> Answer {
        let mut refusal = forebay_executor::error::Refusal::unknown("", value, "");
        refusal.code = code;
        Answer::Refused(Box::new(refusal))
    }

    pub(super) fn enter(&mut self, id: RequestId, mut known: Known) {
        let has_failed = |one: &&RequestId| {
            let ended = self
                .ended
                .get(one)
                .filter(|_| !self.requests.contains_key(one));
            ended.is_some_and(|status| *status != Status::Succeeded)
        };
        known.doomed_by = known.options().after.iter().find(has_failed).copied();
        self.in_use[known.lane() as usize] = true;
        if let Some(key) = &known.options().idempotency {
            let of = (id, Arc::clone(&known.submission.name));
            self.tokens.insert(Arc::clone(key), of);
        }
        self.requests.insert(id, known);
    }

    pub(super) fn cancel(&mut self, id: RequestId) {
        let place = self.requests.get(&id).map(|known| known.place);
        self.answer = Answer::Cancelled(match place {
            None => Cancelled::Unknown,
            Some(Place::Ending) => Cancelled::AlreadyEnded,
            Some(Place::Running) => {
                self.interrupt(id, true);
                Cancelled::Asked
            }
            Some(Place::Waiting) => {
                self.end(id, Status::Cancelled, Outcome::Cancelled, None);
                Cancelled::Now
            }
            Some(_) => {
                self.requests.get_mut(&id).expect("a request").cancelled = true;
                Cancelled::Now
            }
        });
    }

    pub(super) fn retry(&mut self, ended: &Restored) {
        let id = ended.request.id;
        let is_new = !self.requests.contains_key(&id);
        self.answer = Answer::Retried(is_new);
        if is_new && self.ledger.is_down {
            self.answer = self.refusal("store", "");
        } else if is_new && self.is_full() {
            self.answer = self.refusal("limit", &(self.requests.len() + 1).to_string());
        } else if is_new {
            let submission = ended.request.submission.clone();
            let mut known = Known::new(submission, Place::Retrying, Some(self.now));
            (known.attempts, known.forgiven) = (ended.attempts, ended.attempts);
            known.wake = (0, 0);
            self.enter(id, known);
            self.write(Change::Retry(id));
        }
    }

    pub(super) fn committed(&mut self, count: usize) {
        for _ in 0..count {
            if let Some(change) = self.ledger.committed() {
                self.applied(change);
            }
        }
    }

    /// A change is on disk.
    pub(super) fn applied(&mut self, change: Change) {
        match change {
            Change::Accept(id) => self.accepted(id),
            Change::Claim(id, _) => self.claimed(id),
            Change::Retry(id) if self.requests.contains_key(&id) => {
                self.expect(format!("Retried {id} true"));
                self.expect(format!("News: {id} is retried"));
                self.advance(id);
            }
            Change::Unclaim(id, attempt) if self.requests.contains_key(&id) => {
                // It has waited all the time.
                let reason = Cause::Returned;
                self.expect(format!(
                    "News: {id} is queued after run {attempt}: {reason:?}"
                ));
                self.advance(id);
            }
            Change::End(id) => self.has_ended(id),
            _ => {}
        }
    }

    pub(super) fn accepted(&mut self, id: RequestId) {
        let Some(known) = self.requests.get_mut(&id) else {
            return;
        };
        let is_reserved = known.slot.is_some();
        known.place = Place::Claiming;
        self.counts.accepted += 1;
        self.expect(format!("Accepted {id}"));
        self.expect(format!("News: {id} is accepted"));
        if !is_reserved {
            self.advance(id);
        }
    }

    pub(super) fn claimed(&mut self, id: RequestId) {
        let Some(known) = self
            .requests
            .get(&id)
            .filter(|known| known.place == Place::Claiming)
        else {
            return;
        };
        if known.cancelled {
            self.unreserve(id);
        } else if let Some(slot) = known.slot {
            self.begin(id, slot);
            let attempt = self.requests[&id].attempts;
            self.expect(format!("Dispatch {id} {attempt} to {slot}"));
        }
    }

    /// A worker hears of a run.
    pub(super) fn begin(&mut self, id: RequestId, slot: Slot) {
        let now = self.now;
        let hand = self.hands.get_mut(&slot).expect("a worker");
        hand.uses += 1;
        let known = self.requests.get_mut(&id).expect("a request");
        let is_handed = known.lane() != Lane::Async && hand.runs.first() != Some(&id);
        known.place = Place::Running;
        known.run = Some(Run::new(now, is_handed, known.options().timeout_ms));
    }

    pub(super) fn has_ended(&mut self, id: RequestId) {
        let Some(known) = self.requests.remove(&id) else {
            return;
        };
        let ending = known.ending.as_ref().expect("an end");
        self.counts.ended[ending.status as usize] += 1;
        self.ended.insert(id, ending.status);
        if ending.status != Status::Succeeded {
            self.dooms(id);
        }
        if !self.policy.durable {
            self.free_token(id, &known);
        }
        let (status, took_ms) = (ending.status, known.took_ms);
        self.expect(format!("Ended {id}"));
        self.expect(format!("News: {id} is {status:?} after {took_ms:?} ms"));
    }

    pub(super) fn free_token(&mut self, id: RequestId, known: &Known) {
        if let Some(key) = &known.options().idempotency
            && self.tokens.get(key).is_some_and(|(of, _)| *of == id)
        {
            self.tokens.remove(key);
        }
    }

    pub(super) fn forget_token(&mut self, key: &str) {
        let of = self.tokens.get(key).map(|(id, _)| *id);
        if of.is_some_and(|id| !self.requests.contains_key(&id)) {
            self.tokens.remove(key);
        }
    }

    pub(super) fn not_committed(&mut self, count: usize) {
        (self.ledger.is_down, self.ledger.is_wanted) = (true, false);
        for _ in 0..count {
            let Some(change) = self.ledger.not_committed() else {
                break;
            };
            match change {
                Change::Accept(id) => self.refused(id),
                Change::Claim(id, _) => match self.requests.get(&id).map(|known| known.place) {
                    None => {}
                    Some(Place::Claiming) => self.unreserve(id),
                    Some(_) => self.ledger.keep_failed(change),
                },
                Change::Retry(id) => {
                    self.expect(format!("Retried {id} false"));
                    self.ledger.keep_failed(change);
                }
                _ => self.ledger.keep_failed(change),
            }
        }
    }

    pub(super) fn refused(&mut self, id: RequestId) {
        self.release(id);
        if let Some(known) = self.requests.remove(&id) {
            self.free_token(id, &known);
            self.dooms(id);
            self.counts.refused += 1;
            self.expect(format!("Refused {id}"));
        }
    }

    pub(super) fn filed(&mut self, id: RequestId, unfit: Option<&str>) {
        if !self.filing.remove(&id) {
            return;
        }
        let known = self.requests.get_mut(&id).expect("a request");
        let ending = known.ending.as_mut().expect("an end");
        if let Some(why) = unfit {
            ending.status = Status::Failed;
            ending.outcome = Outcome::Failed(Failure::Unkept(why.into()));
        }
        self.write(Change::End(id));
    }

    pub(super) fn ready(&mut self, slot: Slot) {
        let Some(hand) = self.hands.get_mut(&slot) else {
            return;
        };
        if hand.is_up || hand.is_stopping {
            return;
        }
        (hand.is_up, hand.idle_since, hand.promise) = (true, self.now, 0);
        self.starts = Starts::default();
        if hand.is_leaving {
            self.stop(slot);
        }
    }

    pub(super) fn could_not_start(&mut self, slot: Slot) {
        let is_starting = |hand: &Hand| !hand.is_up && !hand.is_stopping;
        if self.hands.get(&slot).is_some_and(is_starting) {
            self.start_failed();
            self.forget(slot);
        }
    }

    pub(super) fn tick(&mut self) {
        self.ticked = self.now;
        self.is_tick = true;
        let runs = self
            .requests
            .values()
            .filter_map(|known| known.run.as_ref());
        let is_out = |run: &Run| run.stop.is_none() && run.due.is_some_and(|due| due <= self.now);
        self.timed_out = runs.into_iter().any(is_out);
        self.time_is_up();
        self.end_idle();
    }

    /// What waits behind a run that takes long.
    pub(super) fn late(&self) -> Vec<RequestId> {
        let is_late = |hand: &&Hand| {
            let first = hand
                .runs
                .first()
                .and_then(|id| self.requests[id].run.as_ref());
            first.is_some_and(|run| run.began + self.policy.ahead_ms_max <= self.now)
        };
        let late = self
            .hands
            .values()
            .filter(|hand| hand.lane != Lane::Async)
            .filter(is_late);
        let behind = late.flat_map(|hand| hand.runs.iter().copied().skip(1));
        let asked = |id: &RequestId| {
            self.requests[id]
                .run
                .as_ref()
                .is_none_or(|run| run.recalled)
        };
        behind.filter(|id| !asked(id)).collect()
    }

    pub(super) fn recalled(&mut self, id: RequestId) {
        let known = self.requests.get_mut(&id).expect("a request");
        known.run.as_mut().expect("a run").recalled = true;
        let (attempt, slot) = (known.attempts, known.slot);
        self.expect(format!("Recall {id} {attempt} in {slot:?}"));
    }

    pub(super) fn drain(&mut self) {
        self.is_draining = true;
        self.recall_handed();
    }

    pub(super) fn cordon(&mut self, asked: Option<bool>) {
        self.cordon = asked;
        if asked == Some(false) {
            self.recall_handed();
        }
    }

    fn recall_handed(&mut self) {
        let handed = self.requests.iter().filter(|(_, known)| known.is_handed());
        let handed: Vec<RequestId> = handed.map(|(id, _)| *id).collect();
        for id in handed {
            if !self.requests[&id].run.as_ref().expect("a run").recalled {
                self.recalled(id);
            }
        }
    }

    pub(super) fn install(&mut self, code: &Arc<str>, definitions: &[Definition]) {
        self.code = Arc::clone(code);
        self.limits.clear();
        for definition in definitions {
            self.in_use[definition.options.lane as usize] = true;
            if let Some(limit) = definition.concurrency {
                self.limits.insert(Arc::clone(&definition.name), limit);
            }
        }
        self.starts = Starts::default();
        self.replace();
    }

    pub(super) fn restore(&mut self, restored: &[Restored], learnt: &[Learnt], last: RequestId) {
        self.last = self.last.max(last);
        for (name, code, peaks) in learnt {
            for bytes in peaks {
                self.memory.learn(name, code, *bytes);
            }
        }
        for one in restored {
            let id = one.request.id;
            self.last = self.last.max(id);
            // Nobody has kept when it was queued again.
            let is_first = one.attempts == 0 && !one.retried;
            let queued_at = is_first.then_some(one.request.accepted_at);
            let mut known = Known::new(one.request.submission.clone(), Place::Waiting, queued_at);
            (known.attempts, known.deaths) = (one.attempts, one.deaths);
            known.forgiven = one.forgiven;
            let at = one.wake_at.unwrap_or(0);
            known.wake = (at, at);
            let may_run = one.status != Status::Running;
            let may_run_again = known.has_retries() || known.options().idempotent;
            if !may_run {
                known.wake = (0, 0);
            }
            self.enter(id, known);
            let failure = server_ended(one.rebooted);
            if !may_run && may_run_again {
                self.queued_again(id, one.attempts, failure.cause());
                self.write(Change::Park(id, one.attempts));
            } else if !may_run {
                self.end(id, Status::Failed, Outcome::Failed(failure), None);
            }
        }
    }
}

/// What had begun ended with the server; after a boot nobody knows how.
fn server_ended(rebooted: bool) -> Failure {
    if rebooted {
        return Failure::OutcomeUnknown;
    }
    Failure::Died(Death {
        cause: "server".into(),
        pid: 0,
        exit_code: None,
        signal: None,
        peak_bytes: None,
        limit_bytes: None,
        last_output: "".into(),
    })
}
