//! How runs end and what follows, as `docs/concepts/executor.md` promises it.

use forebay_executor::action::Step;
use forebay_executor::id::RequestId;
use forebay_executor::request::{Cause, Death, Ending, Failure, Lane, Outcome, Slot, Status};

use super::Model;
use super::hand::backoff;
use super::known::{Known, Place, Run, Stop};
use super::ledger::Change;

impl Model {
    fn known(&mut self, id: RequestId) -> &mut Known {
        self.requests.get_mut(&id).expect("a request of the model")
    }

    /// Its worker has it no more.
    pub(super) fn release(&mut self, id: RequestId) {
        let now = self.now;
        let known = self.known(id);
        let is_first = !known.is_handed() && known.lane() != Lane::Async;
        let Some(slot) = known.slot.take() else {
            return;
        };
        if let Some(hand) = self.hands.get_mut(&slot) {
            hand.runs.retain(|one| *one != id);
            hand.idle_since = now;
            if is_first {
                hand.promise = 0;
            }
        }
        if is_first && self.memory.alone.is_some_and(|(alone, _)| alone == slot) {
            self.memory.alone = None;
        }
    }

    /// The first of those that lie in a worker begins.
    pub(super) fn begin_next(&mut self, slot: Slot) {
        let now = self.now;
        let Some(first) = self.hands.get(&slot).and_then(|hand| hand.runs.first()) else {
            return;
        };
        let id = *first;
        if !self.requests[&id].is_handed() {
            return;
        }
        let timeout = self.requests[&id].options().timeout_ms;
        let stop = {
            let run = self.known(id).run.as_mut().expect("a run");
            (run.handed, run.began) = (false, now);
            run.due = timeout.map(|span| now + span);
            run.stop
        };
        let is_limited = self.policy.memory_limit.is_some();
        if let Some(hand) = self.hands.get_mut(&slot).filter(|_| is_limited) {
            hand.promise = hand.estimate.saturating_sub(hand.private);
        }
        if let Some(stop) = stop {
            self.interrupted(id, stop.step); // it was cancelled, and its worker did not give it back
        }
    }

    fn interrupted(&mut self, id: RequestId, step: Step) {
        let span = match step {
            Step::Exception => self.policy.exception_ms,
            Step::Terminate | Step::Kill => self.policy.terminate_ms,
        };
        let due = Some(self.now + span.max(1));
        let known = self.known(id);
        let (attempt, slot) = (known.attempts, known.slot);
        known.run.as_mut().expect("a run").due = due;
        self.expect(format!("Interrupt {id} {attempt} in {slot:?} by {step:?}"));
    }

    /// A run is to end, since somebody cancelled it or its time is up.
    pub(super) fn interrupt(&mut self, id: RequestId, is_cancel: bool) {
        let known = self.known(id);
        let (attempt, slot) = (known.attempts, known.slot);
        let run = known.run.as_mut().expect("a run");
        if let Some(stop) = &mut run.stop {
            stop.is_cancel |= is_cancel;
            return;
        }
        let step = Step::Exception;
        run.stop = Some(Stop { is_cancel, step });
        if !run.handed {
            self.interrupted(id, step);
        } else if !std::mem::replace(&mut run.recalled, true) {
            self.expect(format!("Recall {id} {attempt} in {slot:?}"));
        }
    }

    /// Time-outs and the next steps of what does not heed; of a shared worker nobody is hurt.
    pub(super) fn time_is_up(&mut self) {
        let now = self.now;
        let is_due = |run: &Run| run.due.is_some_and(|due| due <= now);
        let due = self
            .requests
            .iter()
            .filter(|(_, known)| known.run.as_ref().is_some_and(is_due));
        let due: Vec<RequestId> = due.map(|(id, _)| *id).collect();
        for id in due {
            let known = &self.requests[&id];
            let is_shared = known.lane() == Lane::Async;
            let slot = known.slot;
            match known.run.as_ref().and_then(|run| run.stop) {
                None => self.interrupt(id, false),
                Some(stop) if !is_shared => self.next_step(id, stop.step),
                Some(_) => {
                    // Which step is judged when it comes: it depends on the others.
                    self.unheeded.push(id);
                    if let Some(hand) = slot.and_then(|slot| self.hands.get_mut(&slot)) {
                        hand.is_leaving = true;
                    }
                }
            }
        }
    }

    fn next_step(&mut self, id: RequestId, step: Step) {
        let next = match step {
            Step::Exception => Step::Terminate,
            Step::Terminate | Step::Kill => Step::Kill,
        };
        let run = self.known(id).run.as_mut().expect("a run");
        run.stop.as_mut().expect("a run that is to end").step = next;
        self.interrupted(id, next);
    }

    /// A step against one of many in a worker. All of them are to end, or it is an exception.
    pub(super) fn shared_step(&mut self, id: RequestId, step: Step) -> Result<(), String> {
        let known = &self.requests[&id];
        let slot = known.slot.expect("a run");
        let others = self.hands[&slot].runs.iter();
        let ends = |one: &RequestId| {
            let run = self.requests.get(one).and_then(|known| known.run.as_ref());
            run.is_some_and(|run| run.stop.is_some())
        };
        let all_end = others.clone().all(ends);
        let before = known.run.as_ref().and_then(|run| run.stop).expect("a stop");
        let next = match before.step {
            Step::Exception => Step::Terminate,
            Step::Terminate | Step::Kill => Step::Kill,
        };
        if step != Step::Exception && !(all_end && step == next) {
            return Err(format!(
                "law of steps: {id} gets {step:?} after {:?}, of {slot}",
                before.step
            ));
        }
        if step == Step::Exception && all_end && self.unheeded.len() == 1 && !self.timed_out {
            return Err(format!(
                "law of steps: all of worker {slot} are to end, and it is spared"
            ));
        }
        self.known(id).run.as_mut().expect("a run").stop = Some(Stop { step, ..before });
        self.interrupted(id, step);
        Ok(())
    }

    /// A worker gives back what it had not begun: that run never was.
    pub(super) fn take_back(&mut self, id: RequestId, slot: Slot) {
        self.release(id);
        if let Some(hand) = self.hands.get_mut(&slot) {
            hand.uses -= 1;
        }
        let known = self.known(id);
        let run = known.run.take().expect("a run");
        known.cancelled |= run.stop.is_some_and(|stop| stop.is_cancel);
        known.place = Place::Unclaiming;
        let attempt = known.attempts;
        known.attempts -= 1;
        self.write(Change::Unclaim(id, attempt));
    }

    /// A worker that was kept for a request is not needed, or is gone.
    pub(super) fn unreserve(&mut self, id: RequestId) {
        self.release(id);
        let known = self.known(id);
        known.attempts -= 1;
        if known.place == Place::Claiming {
            self.advance(id);
        }
    }

    /// Nothing is left to write of it: it waits, or has ended where somebody cancelled it meanwhile.
    pub(super) fn advance(&mut self, id: RequestId) {
        let known = self.known(id);
        known.place = Place::Waiting;
        if known.cancelled {
            self.end(id, Status::Cancelled, Outcome::Cancelled, None);
        }
    }

    pub(super) fn finished(
        &mut self,
        slot: Slot,
        id: RequestId,
        attempt: u32,
        outcome: Outcome,
        peak: Option<u64>,
    ) {
        let Some(known) = self.requests.get(&id).cloned() else {
            return;
        };
        let Some(run) = known.run.clone() else {
            return;
        };
        if known.slot != Some(slot) || known.attempts != attempt {
            return; // law 3: what names another run is ignored
        }
        let peak = peak.max(run.peak);
        self.learn_run(&known, slot, peak);
        self.release(id);
        self.begin_next(slot);
        let span = self.policy.burst_run_ms_min.max(self.policy.ahead_ms_max);
        self.pace[known.lane() as usize].ended(self.now - run.began, span);
        self.conclude(id, &run, outcome, peak);
        self.after_run(slot);
    }

    pub(super) fn returned(&mut self, slot: Slot, id: RequestId, attempt: u32) {
        let Some(known) = self.requests.get(&id) else {
            return;
        };
        let is_it = known.slot == Some(slot) && known.attempts == attempt;
        if !is_it || known.run.is_none() || known.lane() == Lane::Async {
            return;
        }
        self.take_back(id, slot);
        self.begin_next(slot);
        self.after_run(slot);
    }

    /// A worker is gone: the first of what it had died with it, what had not begun did not.
    pub(super) fn gone(&mut self, slot: Slot, death: &Death) {
        let Some(hand) = self.hands.get(&slot).cloned() else {
            return;
        };
        let mut death = death.clone();
        if let Some((peak, _)) = hand.expelled {
            death.cause = "memory".into();
            death.peak_bytes = Some(peak);
            death.limit_bytes = self.policy.memory_limit;
        }
        let is_alone = hand.lane != Lane::Async || hand.runs.len() == 1;
        let is_outgrown = hand.expelled.is_none_or(|(_, outgrew)| outgrew);
        let is_blamed = is_alone && is_outgrown && &*death.cause != "server";
        if hand.uses == 0 && !hand.is_leaving {
            self.start_failed();
        }
        for id in hand.runs {
            if self.requests[&id].is_handed() {
                self.take_back(id, slot);
            } else if self.requests[&id].run.is_none() {
                self.unreserve(id);
            } else {
                self.lost(id, slot, &death, is_blamed);
            }
        }
        self.forget(slot);
    }

    fn lost(&mut self, id: RequestId, slot: Slot, death: &Death, is_blamed: bool) {
        let known = self.requests[&id].clone();
        let run = known.run.clone().expect("a run");
        let peak = death.peak_bytes.max(run.peak);
        self.counts.deaths += 1;
        self.learn_run(&known, slot, peak);
        self.release(id);
        self.known(id).deaths += u32::from(is_blamed && run.stop.is_none());
        if self.policy.durable {
            self.expect(format!("Discard {id} {}", known.attempts));
        }
        let outcome = Outcome::Failed(Failure::Died(death.clone()));
        self.conclude(id, &run, outcome, peak);
    }

    /// The request's end, another run, or being set aside.
    fn conclude(&mut self, id: RequestId, run: &Run, outcome: Outcome, peak: Option<u64>) {
        let options = self.known(id).options().clone();
        let failure = match (outcome, run.stop) {
            (outcome @ (Outcome::Succeeded(_) | Outcome::InFile(_)), _) => {
                return self.end(id, Status::Succeeded, outcome, peak);
            }
            (Outcome::Cancelled, None) => {
                return self.end(id, Status::Cancelled, Outcome::Cancelled, peak);
            }
            (_, Some(stop)) if stop.is_cancel => {
                return self.end(id, Status::Cancelled, Outcome::Cancelled, peak);
            }
            (_, Some(_)) => Failure::TimedOut {
                timeout_ms: options.timeout_ms.unwrap_or(0),
            },
            (Outcome::Failed(failure), None) => failure,
        };
        let (most, retries) = (self.policy.deaths_max, options.retries);
        let known = self.known(id);
        let has_died = matches!(failure, Failure::Died(_));
        if has_died && retries > 0 && known.deaths >= most {
            self.end(id, Status::Dead, Outcome::Failed(failure), peak);
        } else if known.has_retries() {
            let failed = known.attempts - known.forgiven;
            let attempt = known.attempts;
            let now = self.now;
            let known = self.known(id);
            known.wake = backoff(now, options.backoff_ms, options.backoff_max_ms, failed);
            known.run = None;
            self.queued_again(id, attempt, failure.cause());
            self.write(Change::Park(id, attempt));
            self.advance(id);
        } else {
            self.end(id, Status::Failed, Outcome::Failed(failure), peak);
        }
    }

    /// It has been with a worker, and waits from now on again.
    pub(super) fn queued_again(&mut self, id: RequestId, attempt: u32, reason: Cause) {
        self.known(id).queued_at = Some(self.now);
        self.expect(format!(
            "News: {id} is queued after run {attempt}: {reason:?}"
        ));
    }

    pub(super) fn end(
        &mut self,
        id: RequestId,
        status: Status,
        outcome: Outcome,
        peak: Option<u64>,
    ) {
        let (at, most) = (self.now, self.policy.result_bytes_max);
        let is_down = self.ledger.is_down;
        let known = self.known(id);
        known.place = Place::Ending;
        let began = known.run.take().map(|run| run.began);
        known.took_ms = (
            known.queued_at.map(|since| began.unwrap_or(at) - since),
            began.map(|began| at - began),
        );
        let is_filed = match &outcome {
            Outcome::InFile(_) => true,
            Outcome::Succeeded(result) => result.len() as u64 > most && !is_down,
            _ => false,
        };
        known.ending = Some(Ending {
            status,
            attempts: known.attempts,
            at,
            peak_bytes: peak,
            outcome,
        });
        if is_filed && self.policy.durable {
            self.filing.insert(id);
            self.expect(format!("File {id}"));
        } else {
            self.write(Change::End(id));
        }
    }

    /// Those whose predecessors did not succeed fail, however long the chain is.
    pub(super) fn fail_doomed(&mut self) {
        loop {
            let waiting = self.requests.iter();
            let waiting = waiting.filter(|(_, known)| known.place == Place::Waiting);
            let doomed = waiting.filter_map(|(id, known)| Some((*id, known.doomed_by?)));
            let doomed: Vec<_> = doomed.collect();
            if doomed.is_empty() {
                return;
            }
            for (id, before) in doomed {
                let outcome = Outcome::Failed(Failure::After(before));
                self.end(id, Status::Failed, outcome, None);
            }
        }
    }

    /// It did not succeed: whoever comes after it fails.
    pub(super) fn dooms(&mut self, id: RequestId) {
        let later = self.requests.values_mut();
        for known in later.filter(|known| known.options().after.contains(&id)) {
            known.doomed_by.get_or_insert(id);
        }
    }
}
