//! Ends runs that were cancelled or take too long: an exception, then termination, then a kill.

use crate::action::{Action, Step};
use crate::machine::entry::Reason;
use crate::machine::notes::seconds;
use crate::machine::parts::Parts;
use crate::machine::register::Key;
use crate::request::{Lane, Millis};

impl Parts {
    /// Begins to end a run, unless that has begun.
    pub(super) fn interrupt(&mut self, now: Millis, key: Key, reason: Reason) {
        let Some(entry) = self.register.get_mut(key) else {
            return;
        };
        if !entry.interrupt(reason) {
            return;
        }
        // It has not begun, so there is nothing to interrupt.
        if entry.is_handed() {
            self.recall(key);
        } else {
            self.step(now, key, Step::Exception);
        }
    }

    /// A running request's time has come: its time-out, or the deadline of the last step to end it.
    pub(in crate::machine) fn time_is_up(&mut self, now: Millis, key: Key) {
        let Some(entry) = self.register.get_mut(key) else {
            return;
        };
        let Some(run) = entry.run().copied() else {
            return;
        };
        let Some(stop) = run.stop else {
            let took = now.saturating_sub(run.began);
            let text = format!(
                "run {} took {}, its time is up",
                entry.attempts(),
                seconds(took)
            );
            entry.note(now, text);
            self.interrupt(now, key, Reason::Time);
            return;
        };
        let next = match stop.step {
            Step::Exception => Step::Terminate,
            // Repeated until the death is known.
            Step::Terminate | Step::Kill => Step::Kill,
        };
        if entry.lane() == Lane::Async {
            self.end_shared(now, key, next);
            return;
        }
        entry.reach(next);
        self.step(now, key, next);
    }

    /// One of many runs in a worker ignores its exception: the worker takes nothing more, and is killed once all its
    /// remaining runs are to end. Its other requests are not harmed.
    fn end_shared(&mut self, now: Millis, key: Key, step: Step) {
        let run = self.register.get(key).and_then(|entry| entry.run());
        let Some(slot) = run.map(|run| run.slot) else {
            return;
        };
        self.workers.leave(slot);
        let worker = self.workers.get(slot);
        let runs = worker.map_or(&[][..], |worker| worker.runs());
        let mut others = runs.iter().filter_map(|one| self.register.get(*one)?.run());
        let all_end = others.all(|run| run.stop.is_some());
        let step = if all_end { step } else { Step::Exception };
        if let Some(entry) = self.register.get_mut(key) {
            entry.reach(step);
        }
        self.step(now, key, step);
    }

    /// Has a run's worker take a step to end it.
    pub(super) fn step(&mut self, now: Millis, key: Key, step: Step) {
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
        self.queues.set_due(key, entry, due);
        entry.note(now, format!("asked to end ({step:?})"));
        self.actions.push(Action::Interrupt {
            slot,
            id: entry.id(),
            attempt: entry.attempts(),
            step,
        });
    }
}
