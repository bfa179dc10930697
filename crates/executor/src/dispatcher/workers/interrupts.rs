//! Interrupts of runs, repeated until they take effect.
//!
//! A signal that arrives between Python's last check for signals and a blocking system call is handled only after that
//! call; the next signal ends the call.

use std::time::{Duration, Instant};

use crate::dispatcher::driver::Driver;
use crate::dispatcher::limit::INTERRUPT_REPEAT_MS;
use crate::dispatcher::workers::{RunId, WorkerProcess};
use crate::request::{Lane, Slot};
use crate::sys;

/// A run that was asked to end.
#[derive(Clone, Copy, Debug)]
struct Interrupt {
    due: Instant,
    slot: Slot,
    run: RunId,
    /// The call of a run that is recalled, not ended.
    recall: Option<u64>,
    /// The side socket has taken the record that names the run.
    named: bool,
}

/// The runs that were interrupted and have not ended.
#[derive(Debug, Default)]
pub struct Interrupts(Vec<Interrupt>);

impl Interrupts {
    pub fn deadline(&self) -> Option<Instant> {
        self.0.iter().map(|interrupt| interrupt.due).min()
    }

    /// The next step follows, or the worker is gone.
    pub fn forget(&mut self, slot: Slot) {
        self.0.retain(|interrupt| interrupt.slot != slot);
    }
}

impl Interrupt {
    fn new(slot: Slot, run: RunId, recall: Option<u64>) -> Self {
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
    /// Raise an exception in a run: name it on the side socket, then send the signal until it has ended.
    pub fn begin_interrupt(&mut self, slot: Slot, run: RunId) {
        self.send_interrupt(Interrupt::new(slot, run, None));
    }

    /// Recall a run that a worker was handed behind another one. The signal makes the worker read its side socket, and
    /// does nothing to the current run.
    pub fn recall(&mut self, slot: Slot, run: RunId) {
        let (id, attempt) = run;
        if self.dispatch_queue.withdraw(slot, run) {
            self.machine.returned(self.now, slot, id, attempt); // its worker never receives it
            return;
        }
        let serving = self
            .workers
            .get_mut(slot)
            .and_then(WorkerProcess::serving_mut);
        let call = serving.and_then(|serving| serving.recall(run));
        if call.is_some() {
            self.send_interrupt(Interrupt::new(slot, run, call));
        }
    }

    /// Repeat the interrupts that are due.
    pub fn repeat_interrupts(&mut self, now: Instant) {
        if self.interrupts.0.is_empty() {
            return;
        }
        let due: Vec<_> = self
            .interrupts
            .0
            .extract_if(.., |interrupt| interrupt.due <= now)
            .collect();
        for interrupt in due {
            self.send_interrupt(interrupt);
        }
    }

    fn send_interrupt(&mut self, mut interrupt: Interrupt) {
        let Some(worker) = self.workers.get(interrupt.slot) else {
            return;
        };
        let (lane, side) = (worker.lane, worker.side);
        let Some(serving) = worker
            .serving()
            .filter(|serving| serving.runs(interrupt.run))
        else {
            return; // it has ended
        };
        if interrupt.recall.is_some() && serving.has_begun(interrupt.run) {
            return;
        }
        if !interrupt.named {
            let (id, attempt) = interrupt.run;
            let channel = side.and_then(|key| self.side_channels.get(key));
            let sent = channel.map(|channel| match interrupt.recall {
                Some(call) => channel.side.recall(call),
                None => channel.side.interrupt(id, attempt),
            });
            interrupt.named = matches!(sent, Some(Ok(true)));
        }
        let signalled = lane != Lane::Async;
        if signalled && interrupt.named {
            sys::interrupt(&serving.pidfd);
        }
        if signalled || !interrupt.named {
            interrupt.due += Duration::from_millis(INTERRUPT_REPEAT_MS);
            self.interrupts.0.push(interrupt);
        }
    }
}
