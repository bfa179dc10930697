//! Ends of workers: how they are brought about, what they mean.

use std::sync::Arc;

use crate::dispatcher::clients::Clients;
use crate::dispatcher::context::Context;
use crate::dispatcher::supervisor::protocol::Order;
use crate::dispatcher::workers::Workers;
use crate::dispatcher::workers::process::WorkerProcess;
use crate::feed::Happening;
use crate::request::{Cause, Death, Slot};

impl Workers {
    /// A worker could not be started.
    pub fn failed(&mut self, cx: &mut Context, slot: Slot, why: Arc<str>) {
        if let Some(worker) = self.processes.remove(&cx.poll, slot) {
            self.reap(cx, slot, &worker);
            cx.machine.worker_failed(cx.now, slot, why);
        }
    }

    /// The supervisor reports how a worker ended.
    pub fn died(&mut self, cx: &mut Context, clients: &mut Clients, slot: Slot, death: Death) {
        let worker = self.processes.get(slot);
        let serves = worker.is_some_and(WorkerProcess::is_serving);
        if serves && death.pid != 0 && !worker.is_some_and(|one| one.is_process(death.pid)) {
            return; // of the previous worker, whose death was reported too late and counted as unknown
        }
        self.read_final_output(cx, clients, slot);
        let Some(worker) = self.processes.remove(&cx.poll, slot) else {
            return;
        };
        let death = worker.death(death, self.memory_limit);
        let cause = Cause::of_death(&death.cause);
        cx.note(Happening::WorkerEnded {
            worker: slot,
            lane: worker.lane(),
            pid: death.pid,
            // Its exit was asked for, and is no death.
            cause: if worker.was_dismissed() && cause == Cause::Exit {
                Cause::Stopped
            } else {
                cause
            },
        });
        self.reap(cx, slot, &worker);
        cx.machine.worker_gone(cx.now, slot, death);
    }

    /// Kill a worker that outlives its socket, or count a death that was not reported in time as unknown.
    pub(super) fn overdue(
        &mut self,
        cx: &mut Context,
        clients: &mut Clients,
        slot: Slot,
        ended: bool,
    ) {
        if ended {
            return self.died(cx, clients, slot, Death::of("unknown"));
        }
        if let Some(worker) = self.processes.get_mut(slot) {
            worker.kill_half_dead();
        }
    }

    /// Kill a worker that uses too much memory.
    pub fn expel(&mut self, cx: &Context, slot: Slot, peak_bytes: u64, limit_bytes: u64) {
        if let Some(worker) = self.processes.get_mut(slot) {
            worker.expel(peak_bytes, limit_bytes);
            cx.shared.order(Order::Expelled { slot });
        }
    }

    /// Read what a worker wrote before it ended, also if its side socket was not accepted yet.
    pub(super) fn read_final_output(
        &mut self,
        cx: &mut Context,
        clients: &mut Clients,
        slot: Slot,
    ) {
        let worker = self.processes.get(slot);
        if worker.is_some_and(|worker| worker.side().is_none()) {
            self.accept_sides(cx, clients);
        }
        self.drain_side(cx, clients, slot);
    }

    /// Forget everything about the worker of a slot that is free now.
    pub(super) fn reap(&mut self, cx: &Context, slot: Slot, worker: &WorkerProcess) {
        cx.shared.usage().end(slot);
        self.measures.unwatch(slot);
        self.interrupts.forget(slot);
        self.queue.forget(slot);
        if let Some(key) = worker.side() {
            self.sides.close(&cx.poll, key);
        }
    }
}
