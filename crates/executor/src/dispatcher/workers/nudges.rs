//! Interrupts of runs that are repeated until they are heeded.
//!
//! A signal that comes between Python's last look for signals and a system call that blocks is seen only after that
//! call. The next one ends the call.

use std::time::{Duration, Instant};

use crate::dispatcher::driver::Driver;
use crate::dispatcher::limit::NUDGE_MS;
use crate::dispatcher::workers::{Run, Worker};
use crate::request::{Lane, Slot};
use crate::sys;

/// A run that was asked to end.
#[derive(Clone, Copy, Debug)]
struct Nudge {
    due: Instant,
    slot: Slot,
    run: Run,
    /// The call of the run, where that is wanted back and not to be ended.
    recall: Option<u64>,
    /// The side socket has taken the record that names the run.
    named: bool,
}

/// The runs that are to end and have not.
#[derive(Debug, Default)]
pub struct Nudges(Vec<Nudge>);

impl Nudges {
    pub fn deadline(&self) -> Option<Instant> {
        self.0.iter().map(|nudge| nudge.due).min()
    }

    /// The next step has been taken, or the worker is gone.
    pub fn forget(&mut self, slot: Slot) {
        self.0.retain(|nudge| nudge.slot != slot);
    }
}

impl Nudge {
    fn new(slot: Slot, run: Run, recall: Option<u64>) -> Self {
        Self {
            due: Instant::now(),
            slot,
            run,
            recall,
            named: false,
        }
    }
}

impl Driver {
    /// Raise an exception in a run: name it on the side socket, and send the signal until it has ended.
    pub fn nudge(&mut self, slot: Slot, run: Run) {
        self.nudge_once(Nudge::new(slot, run, None));
    }

    /// Ask for a run back that a worker was handed behind another one. The signal has it look at its side socket, and
    /// does nothing to the one that runs.
    pub fn recall(&mut self, slot: Slot, run: Run) {
        let (id, attempt) = run;
        if self.unsent.withdraw(slot, run) {
            self.machine.returned(self.now, slot, id, attempt); // its worker never hears of it
            return;
        }
        let serving = self.workers.get_mut(slot).and_then(Worker::serving_mut);
        let call = serving.and_then(|serving| serving.recall(run));
        if call.is_some() {
            self.nudge_once(Nudge::new(slot, run, call));
        }
    }

    /// Repeat what is due.
    pub fn nudge_again(&mut self, now: Instant) {
        if self.nudges.0.is_empty() {
            return;
        }
        let due: Vec<_> = self
            .nudges
            .0
            .extract_if(.., |nudge| nudge.due <= now)
            .collect();
        for nudge in due {
            self.nudge_once(nudge);
        }
    }

    fn nudge_once(&mut self, mut nudge: Nudge) {
        let Some(worker) = self.workers.get(nudge.slot) else {
            return;
        };
        let (lane, side) = (worker.lane, worker.side);
        let Some(serving) = worker.serving().filter(|serving| serving.runs(nudge.run)) else {
            return; // it has ended
        };
        if nudge.recall.is_some() && serving.has_begun(nudge.run) {
            return;
        }
        if !nudge.named {
            let (id, attempt) = nudge.run;
            let seat = side.and_then(|place| self.sides.get(place));
            let told = seat.map(|seat| match nudge.recall {
                Some(call) => seat.side.recall(call),
                None => seat.side.interrupt(id, attempt),
            });
            nudge.named = matches!(told, Some(Ok(true)));
        }
        let signalled = lane != Lane::Async;
        if signalled && nudge.named {
            sys::interrupt(&serving.pidfd);
        }
        if signalled || !nudge.named {
            nudge.due += Duration::from_millis(NUDGE_MS);
            self.nudges.0.push(nudge);
        }
    }
}
