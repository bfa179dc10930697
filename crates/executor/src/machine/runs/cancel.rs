//! Ends runs that were cancelled or take too long: an exception, then termination, then a kill.

use crate::action::{Action, Step};
use crate::id::RequestId;
use crate::machine::Machine;
use crate::machine::entry::{Key, Reason, State, Stop};
use crate::machine::queues::queue::Rank;
use crate::machine::why::seconds;
use crate::request::{Lane, Millis, Outcome, Status};

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

impl Machine {
    /// Ends a request in any state. A second cancel changes nothing.
    pub fn cancel(&mut self, now: Millis, id: RequestId) -> Cancelled {
        let Some(key) = self.register.key(id) else {
            return Cancelled::Unknown;
        };
        let Some(entry) = self.register.get_mut(key) else {
            return Cancelled::Unknown;
        };
        match &entry.state {
            State::Ending(_) => return Cancelled::AlreadyEnded,
            State::Running(_) => {
                self.interrupt(now, key, Reason::Cancel);
                return Cancelled::Asked;
            }
            // Noted until the store has answered: the change on its way cannot be taken back.
            State::Accepting { .. }
            | State::Claiming { .. }
            | State::Retrying
            | State::Unclaiming => {
                entry.cancelled = true;
            }
            State::After | State::Until | State::Keyed | State::Named | State::Ready => {
                self.leave_list(now, key);
                self.end_cancelled(now, key);
            }
        }
        self.settle(now);
        Cancelled::Now
    }

    pub(in crate::machine) fn end_cancelled(&mut self, now: Millis, key: Key) {
        self.end(now, key, Status::Cancelled, Outcome::Cancelled, None);
    }

    /// Takes a waiting request out of the list of its state.
    pub(in crate::machine) fn leave_list(&mut self, now: Millis, key: Key) {
        let Some(entry) = self.register.get_mut(key) else {
            return;
        };
        self.timers.set(key, &mut entry.due, None);
        let rank = Rank::of(&entry.request, key);
        let submission = &entry.request.submission;
        match entry.state {
            State::After | State::Until => self.wall.leave(entry.request.id),
            State::Keyed => self.keys.leave(submission, rank),
            State::Named => {
                self.names
                    .get_mut(entry.name)
                    .waiting
                    .remove(&submission.submitter, rank);
            }
            State::Ready => {
                let queue = &mut self.lanes[submission.options.lane as usize];
                queue.ready.remove(&submission.submitter, rank);
                // It may have been the request that was made ready for a free slot of its name: the next one takes
                // that.
                let name = self.names.get_mut(entry.name);
                if !name.is_full()
                    && let Some(next) = name.waiting.take(0)
                {
                    self.make_ready(now, next);
                }
            }
            _ => {}
        }
    }

    /// Begins to end a run, unless that has begun.
    pub(in crate::machine) fn interrupt(&mut self, now: Millis, key: Key, reason: Reason) {
        let Some(entry) = self.register.get_mut(key) else {
            return;
        };
        let Some(run) = entry.run_mut() else {
            return;
        };
        match &mut run.stop {
            // A cancel of a run that is being ended for its time means that no retry is wanted.
            Some(stop) if reason == Reason::Cancel => stop.reason = Reason::Cancel,
            Some(_) => {}
            None => {
                let step = Step::Exception;
                run.stop = Some(Stop { reason, step });
                // It has not begun, so there is nothing to interrupt.
                if run.handed {
                    self.recall(key);
                } else {
                    self.step(now, key, step);
                }
            }
        }
    }

    /// A running request's time has come: its time-out, or the deadline of the last step to end it.
    pub(in crate::machine) fn time_is_up(&mut self, now: Millis, key: Key) {
        let Some(entry) = self.register.get_mut(key) else {
            return;
        };
        let lane = entry.lane();
        let Some(run) = entry.run_mut() else {
            return;
        };
        let Some(stop) = &mut run.stop else {
            let took = now.saturating_sub(run.began);
            let text = format!(
                "run {} took {}, its time is up",
                entry.attempts,
                seconds(took)
            );
            entry.notes.add(now, text);
            self.interrupt(now, key, Reason::Time);
            return;
        };
        let next = match stop.step {
            Step::Exception => Step::Terminate,
            // Repeated until the death is known.
            Step::Terminate | Step::Kill => Step::Kill,
        };
        if lane == Lane::Async {
            self.end_shared(now, key, next);
            return;
        }
        stop.step = next;
        self.step(now, key, next);
    }

    /// One of many runs in a worker ignores its exception: the worker takes nothing more, and is killed once all its
    /// remaining runs are to end. Its other requests are not harmed.
    fn end_shared(&mut self, now: Millis, key: Key, step: Step) {
        let Some(slot) = self
            .register
            .get(key)
            .and_then(|entry| entry.run())
            .map(|run| run.slot)
        else {
            return;
        };
        self.workers.leave(slot);
        let runs = self
            .workers
            .get(slot)
            .map_or(&[][..], |worker| &worker.runs);
        let others = runs.iter().filter_map(|one| self.register.get(*one)?.run());
        let all_end = others.into_iter().all(|run| run.stop.is_some());
        let step = if all_end { step } else { Step::Exception };
        if let Some(run) = self.register.get_mut(key).and_then(|entry| entry.run_mut())
            && let Some(stop) = &mut run.stop
        {
            stop.step = step;
        }
        self.step(now, key, step);
    }

    pub(in crate::machine) fn step(&mut self, now: Millis, key: Key, step: Step) {
        let Some(entry) = self.register.get_mut(key) else {
            return;
        };
        let Some(slot) = entry.run().map(|run| run.slot) else {
            return;
        };
        let span = match step {
            Step::Exception => self.policy.exception_ms,
            Step::Terminate | Step::Kill => self.policy.terminate_ms,
        };
        // At least a millisecond, so that a span of zero does not loop within one tick.
        let due = Some(now.saturating_add(span.max(1)));
        self.timers.set(key, &mut entry.due, due);
        entry.notes.add(now, format!("asked to end ({step:?})"));
        self.actions.push(Action::Interrupt {
            slot,
            id: entry.request.id,
            attempt: entry.attempts,
            step,
        });
    }
}
