//! Interrupts of runs, repeated until they take effect.
//!
//! A signal that arrives between Python's last check for signals and a blocking system call is handled only after that
//! call; the next signal ends the call.

use std::time::{Duration, Instant};

use crate::dispatcher::limit::INTERRUPT_REPEAT_MS;
use crate::dispatcher::workers::RunId;
use crate::dispatcher::workers::output::SideChannels;
use crate::dispatcher::workers::processes::Processes;
use crate::request::Slot;

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
    /// Raise an exception in a run: name it on the side socket, then send the signal until it has ended.
    pub fn begin(&mut self, processes: &Processes, sides: &SideChannels, slot: Slot, run: RunId) {
        self.send(processes, sides, Interrupt::new(slot, run, None));
    }

    /// Recall a run that a worker was handed behind another one. The signal makes the worker read its side socket, and
    /// does nothing to the current run.
    pub fn recall(
        &mut self,
        processes: &mut Processes,
        sides: &SideChannels,
        slot: Slot,
        run: RunId,
    ) {
        let worker = processes.get_mut(slot);
        let call = worker.and_then(|worker| worker.recall(run));
        if call.is_some() {
            self.send(processes, sides, Interrupt::new(slot, run, call));
        }
    }

    /// Repeat the interrupts that are due.
    pub fn repeat(&mut self, processes: &Processes, sides: &SideChannels, now: Instant) {
        if self.0.is_empty() {
            return;
        }
        let due: Vec<_> = self
            .0
            .extract_if(.., |interrupt| interrupt.due <= now)
            .collect();
        for interrupt in due {
            self.send(processes, sides, interrupt);
        }
    }

    /// When the next one is due.
    pub fn deadline(&self) -> Option<Instant> {
        self.0.iter().map(|interrupt| interrupt.due).min()
    }

    /// Whether a run of this worker was interrupted or recalled, and has not ended.
    pub fn has(&self, slot: Slot) -> bool {
        self.0.iter().any(|interrupt| interrupt.slot == slot)
    }

    /// The next step follows, or the worker is gone.
    pub fn forget(&mut self, slot: Slot) {
        self.0.retain(|interrupt| interrupt.slot != slot);
    }

    fn send(&mut self, processes: &Processes, sides: &SideChannels, mut interrupt: Interrupt) {
        let worker = processes.get(interrupt.slot);
        let Some(worker) = worker.filter(|worker| worker.has_run(interrupt.run)) else {
            return; // it has ended
        };
        if interrupt.recall.is_some() && worker.has_begun(interrupt.run) {
            return;
        }
        if !interrupt.named {
            let (id, attempt) = interrupt.run;
            let side = worker.side().and_then(|key| sides.side(key));
            let sent = side.map(|side| match interrupt.recall {
                Some(call) => side.recall(call),
                None => side.interrupt(id, attempt),
            });
            interrupt.named = matches!(sent, Some(Ok(true)));
        }
        let signalled = !worker.is_async();
        if signalled && interrupt.named {
            worker.interrupt();
        }
        if signalled || !interrupt.named {
            interrupt.due += Duration::from_millis(INTERRUPT_REPEAT_MS);
            self.0.push(interrupt);
        }
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
