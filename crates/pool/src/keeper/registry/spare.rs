//! Processes that a template has forked ahead: a start takes one instead of a fork.
//!
//! They are forked when no caller waits, some time after a start, and only by templates that are asked for
//! more than one service. A spare waits for its keeper's order; when the keeper ends, or gives it up, it ends.

use std::os::fd::BorrowedFd;

use rustix::net::SendFlags;
use rustix::process::Pid;

use super::Registry;
use crate::clock::now_ms;
use crate::confine::Confinement;
use crate::control;
use crate::error::Result;
use crate::keeper::DeadlineKind;
use crate::keeper::process::Process;
use crate::keeper::source::Poller;
use crate::keeper::template::{Running, Spare};
use crate::limit::{SPARE_DELAY_MS, SPARES_FROM};
use crate::wire::{Handle, Order};

impl Registry {
    /// Make a service of a spare; None where there is none.
    pub(super) fn serve_spare(
        &mut self,
        poller: &Poller,
        handle: Handle,
        id: u32,
        descriptors: &[BorrowedFd<'_>],
        confinement: Option<&Confinement>,
    ) -> Option<Result<()>> {
        loop {
            let spare = self.template_running(id)?.spares.pop()?;
            let confinement = confinement.cloned();
            let order = Order::Serve {
                handle,
                confinement,
            };
            let order = order.encode();
            let Some(process) = spare.process else {
                continue;
            };
            if control::send(&spare.orders, &order, descriptors, SendFlags::DONTWAIT).is_err() {
                process.kill(); // it has ended; it is reaped with the orphans
                continue;
            }
            if let Some(service) = self.services.get_mut(&handle.slot) {
                service.directory = Some(spare.directory);
                service.orders = Some(spare.orders);
            }
            return Some(self.register(poller, handle, process));
        }
    }

    /// After a start: have a spare forked soon, when the burst of starts is over.
    pub(super) fn plan_spare(&mut self, id: u32) {
        let wanted = self
            .templates
            .get(&id)
            .map_or(0, |template| template.spares as usize);
        let Some(running) = self.template_running(id) else {
            return;
        };
        let has = running.spares.len() + usize::from(running.pending_spare.is_some());
        if running.forks < SPARES_FROM || has >= wanted {
            return;
        }
        let handle = Handle {
            slot: id,
            generation: u64::from(running.serial),
        };
        let due = now_ms() + SPARE_DELAY_MS;
        self.deadlines.push(due, DeadlineKind::Spare, handle);
    }

    /// Fork a spare that was planned.
    pub(super) fn fork_spare(&mut self, template: Handle) {
        let id = template.slot;
        let Ok(next) = self.reserve() else {
            return;
        };
        let wanted = self
            .templates
            .get(&id)
            .map_or(0, |template| template.spares as usize);
        let Some(running) = self.template_running(id) else {
            return;
        };
        let same = u64::from(running.serial) == template.generation;
        if !same || running.pending_spare.is_some() || running.spares.len() >= wanted {
            return;
        }
        if !running.pending.is_empty() {
            return self.plan_spare(id); // a caller waits for a service of it
        }
        let _ = running.fork_spare(next); // a template that takes no orders has none to spare
    }

    /// A template has reported a spare.
    pub(super) fn spare_forked(&mut self, id: u32, pid: i32) {
        let Some(running) = self.template_running(id) else {
            return;
        };
        let Some(spare) = running.pending_spare.take() else {
            return;
        };
        let process = Pid::from_raw(pid).and_then(|pid| Process::adopt(pid).ok());
        if process.is_some() {
            running.spares.push(Spare { process, ..spare });
            self.plan_spare(id);
        }
    }

    /// Let go of spares that have ended by themselves.
    pub(super) fn reap_spares(&mut self) {
        for template in self.templates.values_mut() {
            if let Some(running) = &mut template.running {
                let lives =
                    |spare: &Spare| spare.process.as_ref().and_then(Process::reap).is_none();
                running.spares.retain(lives);
            }
        }
    }

    fn template_running(&mut self, id: u32) -> Option<&mut Running> {
        self.templates.get_mut(&id)?.running.as_mut()
    }
}

/// End all of them; they are reaped with the orphans.
pub fn end_spares(spares: &[Spare]) {
    for process in spares.iter().filter_map(|spare| spare.process.as_ref()) {
        process.kill();
    }
}

/// Processes of spares that are not to be taken for orphans.
pub fn owned_by(running: &Running) -> impl Iterator<Item = &Process> {
    running
        .spares
        .iter()
        .filter_map(|spare| spare.process.as_ref())
}

/// Whether a child may exist that its template has not reported.
pub fn is_forking(running: &Running) -> bool {
    !running.pending.is_empty() || running.pending_spare.is_some()
}
