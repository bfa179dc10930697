//! Ends of runs, of workers: how they are brought about, what they mean.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::process::{Signal, pidfd_send_signal};

use crate::action::Step;
use crate::dispatcher::driver::Driver;
use crate::dispatcher::supervisor::protocol::Order;
use crate::dispatcher::workers::{RunId, WorkerProcess};
use crate::request::{Death, Outcome, Slot};

impl Driver {
    /// The supervisor reports how a worker ended.
    pub fn worker_died(&mut self, slot: Slot, death: Death) {
        let serving = self.workers.get(slot).and_then(WorkerProcess::serving);
        if serving.is_some_and(|serving| death.pid != 0 && serving.pid != death.pid) {
            return; // of the previous worker, whose death was reported too late and counted as unknown
        }
        self.read_final_output(slot);
        let Some(worker) = self.workers.remove(&self.poll, slot) else {
            return;
        };
        let mut death = Death {
            peak_bytes: death.peak_bytes.max(worker.peak_bytes),
            ..death
        };
        if let Some((peak, limit)) = worker.expelled {
            death.cause = Arc::from("memory");
            death.peak_bytes = death.peak_bytes.max(Some(peak));
            death.limit_bytes = Some(limit);
        }
        if &*death.cause == "memory" {
            death.limit_bytes = death.limit_bytes.or(self.memory_limit);
        }
        if death.last_output.is_empty() {
            // A worker's output comes to the dispatcher, not to its keeper.
            death.last_output = worker.tail.text().into();
        }
        self.reap(slot, &worker);
        self.machine.worker_gone(self.now, slot, death);
    }

    /// Kill a worker that outlives its socket, or count a death that was not reported in time as unknown.
    pub fn handle_overdue_worker(&mut self, slot: Slot, ended: bool) {
        if ended {
            return self.worker_died(slot, Death::of("unknown"));
        }
        if let Some(worker) = self.workers.get_mut(slot)
            && let Some(serving) = worker.serving_mut()
        {
            serving.killed();
            kill(&serving.pidfd);
        }
    }

    /// Read what a worker wrote before it ended, also if its side socket was not accepted yet.
    pub fn read_final_output(&mut self, slot: Slot) {
        if self
            .workers
            .get(slot)
            .is_some_and(|worker| worker.side.is_none())
        {
            self.accept_sides();
        }
        self.drain_side(slot);
    }

    /// Forget everything about the worker of a slot that is free now.
    pub fn reap(&mut self, slot: Slot, worker: &WorkerProcess) {
        self.measures.gauge.unwatch(slot);
        self.interrupts.forget(slot);
        self.dispatch_queue.forget(slot);
        if let Some(key) = worker.side {
            self.close_side(key);
        }
    }

    pub fn expel(&mut self, slot: Slot, peak_bytes: u64, limit_bytes: u64) {
        let Some(worker) = self.workers.get_mut(slot) else {
            return;
        };
        worker.expelled = Some((peak_bytes, limit_bytes));
        if let Some(serving) = worker.serving() {
            kill(&serving.pidfd);
        }
        self.shared.order(Order::Expelled { slot });
    }

    /// End a run, and no other.
    pub fn interrupt(&mut self, slot: Slot, run: RunId, step: Step) {
        if step != Step::Exception {
            // Its reply may have arrived: then the worker is at its next run, which must not be hit.
            self.read_worker(slot);
        }
        let Some(serving) = self.workers.get(slot).and_then(|worker| worker.serving()) else {
            return;
        };
        if !serving.runs(run) {
            // It has replied meanwhile; or it is still queued here, and its worker will never receive it.
            if self.dispatch_queue.withdraw(slot, run) {
                let (id, attempt) = run;
                self.machine
                    .finished(self.now, slot, id, attempt, Outcome::Cancelled, None);
            }
            return;
        }
        if step != Step::Exception {
            self.interrupts.forget(slot);
        }
        let Some(serving) = self.workers.get(slot).and_then(|worker| worker.serving()) else {
            return;
        };
        // A process that has gone needs no signal: its end is on its way here.
        match step {
            Step::Exception => self.begin_interrupt(slot, run),
            Step::Terminate => {
                let _ = pidfd_send_signal(&serving.pidfd, Signal::TERM);
            }
            Step::Kill => kill(&serving.pidfd),
        }
    }
}

/// Kill a process by its pidfd, since its number may be another process's by now. Its keeper kills the rest of its
/// group.
fn kill(pidfd: &OwnedFd) {
    // Fails if it has ended already.
    let _ = pidfd_send_signal(pidfd, Signal::KILL);
}
