//! What follows from the end of a run: the request's end, another run, or setting the request aside.
//!
//! A death counts against a request that ran alone in its worker, unless the worker was ended on purpose: by a cancel,
//! a time-out, the server's end, or the guard while the request was within its estimate. A request that the guard ended
//! within its estimate has still used up a run: it began, and may not begin twice without retries.

use std::sync::Arc;

use crate::action::Action;
use crate::id::RequestId;
use crate::machine::Machine;
use crate::machine::entry::{Key, Reason, Run, State};
use crate::machine::why::seconds;
use crate::op::Op;
use crate::request::{Death, Ending, Failure, Lane, Millis, Outcome, Slot, Status};

impl Machine {
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
        let Some(key) = self.register.key(id) else {
            return;
        };
        let Some(entry) = self
            .register
            .get(key)
            .filter(|entry| entry.attempts == attempt)
        else {
            return;
        };
        let Some(run) = entry.run().copied().filter(|run| run.slot == slot) else {
            return;
        };
        let peak = peak.max(run.peak);
        self.learn(now, key, slot, peak);
        self.release(now, key, slot);
        // Before this request's end is decided: the worker is at its next run already.
        self.begin_next(now, slot);
        self.note_time(now, key, &run);
        self.conclude(now, key, &run, outcome, peak);
        self.after_run(now, slot);
        self.settle(now);
    }

    /// A worker has died, or has exited as it was told to; `death` is its keeper's report.
    pub fn worker_gone(&mut self, now: Millis, slot: Slot, death: Death) {
        let Some(worker) = self.workers.get(slot) else {
            return;
        };
        let (runs, expelled) = (worker.runs.clone(), worker.expelled);
        let alone = worker.lane != Lane::Async || runs.len() == 1;
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
        // estimate, nor one whose worker ended with its keeper.
        let blamed =
            alone && expelled.is_none_or(|expelled| !expelled.within) && &*death.cause != "server";
        // Before handed runs are taken back, which lowers the worker's `uses`.
        self.start_ended(now, slot, &death);
        for key in runs {
            if self.is_handed(key) {
                self.take_back(now, key, slot);
            } else {
                self.lost(now, key, slot, &death, blamed);
            }
        }
        self.forget_worker(slot);
        self.settle(now);
    }

    /// A worker that had this request is gone.
    fn lost(&mut self, now: Millis, key: Key, slot: Slot, death: &Death, blamed: bool) {
        let Some(entry) = self.register.get(key) else {
            return;
        };
        let Some(run) = entry.run().copied() else {
            self.unreserve(now, key, slot);
            return;
        };
        let peak = death.peak_bytes.max(run.peak);
        self.counts.deaths += 1;
        self.learn(now, key, slot, peak);
        self.release(now, key, slot);
        let Some(entry) = self.register.get_mut(key) else {
            return;
        };
        if blamed && run.stop.is_none() {
            entry.deaths += 1;
        }
        let text = format!(
            "run {} ended: its worker died ({})",
            entry.attempts, death.cause
        );
        entry.notes.add(now, text);
        if self.policy.durable {
            let discard = Action::Discard(entry.request.id, entry.attempts);
            self.actions.push(discard);
        }
        self.conclude(
            now,
            key,
            &run,
            Outcome::Failed(Failure::Died(death.clone())),
            peak,
        );
    }

    /// The worker that was reserved for a request is gone, or its claim failed, before its run began.
    pub(in crate::machine) fn unreserve(&mut self, now: Millis, key: Key, slot: Slot) {
        self.release(now, key, slot);
        let Some(entry) = self.register.get_mut(key) else {
            return;
        };
        // No worker received that run: its number is used again.
        entry.attempts -= 1;
        match entry.state {
            State::Accepting { .. } => entry.state = State::Accepting { slot: None },
            State::Claiming { .. } => self.advance(now, key),
            _ => {}
        }
    }

    /// Acts on a run's outcome. Its worker has been released.
    pub(in crate::machine) fn conclude(
        &mut self,
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
                return self.end(now, key, Status::Succeeded, outcome, peak);
            }
            (_, Some(Reason::Cancel)) | (Outcome::Cancelled, None) => {
                return self.end(now, key, Status::Cancelled, Outcome::Cancelled, peak);
            }
            (_, Some(Reason::Time)) => {
                let entry = self.register.get(key);
                let timeout = entry.and_then(|entry| entry.options().timeout_ms);
                Failure::TimedOut {
                    timeout_ms: timeout.unwrap_or_default(),
                }
            }
            (Outcome::Failed(failure), None) => failure,
        };
        let Some(entry) = self.register.get(key) else {
            return;
        };
        let retries = entry.options().retries;
        let died = matches!(failure, Failure::Died(_));
        // Without retries the first death fails the request anyway.
        if died && retries > 0 && entry.deaths >= self.policy.deaths_max {
            self.end(now, key, Status::Dead, Outcome::Failed(failure), peak);
        } else if entry.has_retries() {
            self.park(now, key, failure);
        } else {
            self.end(now, key, Status::Failed, Outcome::Failed(failure), peak);
        }
    }

    /// Lets a request wait for its next run.
    fn park(&mut self, now: Millis, key: Key, failure: Failure) {
        self.give_key(now, key);
        let Some(entry) = self.register.get_mut(key) else {
            return;
        };
        let options = &entry.request.submission.options;
        let failed = entry.attempts - entry.forgiven;
        let wait = self
            .jitter
            .backoff(options.backoff_ms, options.backoff_max_ms, failed);
        let wake_at = now.saturating_add(wait);
        entry.not_before = Some(wake_at);
        let (id, attempt) = (entry.request.id, entry.attempts);
        let text = format!(
            "run {attempt} failed ({}), the next one in {}",
            kind(&failure),
            seconds(wait)
        );
        entry.notes.add(now, text);
        self.timers.set(key, &mut entry.due, None);
        if self.policy.durable {
            let op = Op::Park {
                id,
                attempt,
                wake_at,
                failure,
                deaths: entry.deaths,
            };
            self.write(now, key, op);
        }
        self.advance(now, key);
    }

    /// Ends a request that is in no list: its end is written, and announced when that is on disk.
    pub(in crate::machine) fn end(
        &mut self,
        now: Millis,
        key: Key,
        status: Status,
        outcome: Outcome,
        peak: Option<u64>,
    ) {
        self.give_key(now, key);
        let Some(entry) = self.register.get_mut(key) else {
            return;
        };
        self.timers.set(key, &mut entry.due, None);
        let ending = Arc::new(Ending {
            status,
            attempts: entry.attempts,
            at: now,
            peak_bytes: peak,
            outcome,
        });
        entry.state = State::Ending(ending);
        let id = entry.request.id;
        self.write_end(now, key, id);
    }

    /// A request's end is on disk.
    pub(in crate::machine) fn ended(
        &mut self,
        now: Millis,
        key: Key,
        id: RequestId,
        ending: &Arc<Ending>,
    ) {
        if self.register.same(key, id).is_none() {
            return;
        }
        let Some(mut entry) = self.register.remove(key) else {
            return;
        };
        // A dependent that was retried is listed twice, but waits for this request once.
        entry.dependents.sort_unstable();
        entry.dependents.dedup();
        self.counts.ended[ending.status as usize] += 1;
        self.recent.add(id, ending.status);
        if !self.policy.durable {
            self.forget_idempotency(&entry); // nothing of it is kept
        }
        self.actions.push(Action::Ended(id, Arc::clone(ending)));
        for dependent in entry.dependents {
            if ending.status == Status::Succeeded {
                self.one_came_first(now, dependent);
            } else {
                self.doomed.push((dependent, id));
            }
        }
    }

    /// One predecessor of a request has succeeded.
    fn one_came_first(&mut self, now: Millis, id: RequestId) {
        let Some(key) = self.register.key(id) else {
            return;
        };
        let Some(entry) = self.register.get_mut(key) else {
            return;
        };
        entry.waits_for = entry.waits_for.saturating_sub(1);
        if entry.waits_for == 0 && matches!(entry.state, State::After) {
            self.advance(now, key);
        }
    }

    /// Fails requests whose predecessors did not succeed: in a loop, so that a long chain cannot exhaust the stack.
    pub(in crate::machine) fn fail_doomed(&mut self, now: Millis) {
        let mut later = Vec::new();
        while let Some((id, before)) = self.doomed.pop() {
            let Some(key) = self.register.key(id) else {
                continue;
            };
            match self.register.get(key).map(|entry| &entry.state) {
                // Its row is not on disk yet: it fails when it is.
                Some(State::Accepting { .. } | State::Retrying | State::Unclaiming) => {
                    later.push((id, before));
                }
                Some(State::After | State::Until | State::Keyed | State::Named | State::Ready) => {
                    self.leave_list(now, key);
                    let outcome = Outcome::Failed(Failure::After(before));
                    self.end(now, key, Status::Failed, outcome, None);
                }
                _ => {}
            }
        }
        self.doomed = later;
    }

    fn note_time(&mut self, now: Millis, key: Key, run: &Run) {
        if let Some(lane) = self.lane_of(key) {
            let took = now.saturating_sub(run.began);
            let while_ms = self.policy.burst_run_ms_min;
            let while_ms = while_ms.max(self.policy.ahead_ms_max);
            self.lanes[lane as usize].burst.ended(now, took, while_ms);
        }
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
