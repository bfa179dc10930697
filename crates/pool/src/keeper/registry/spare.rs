//! Processes that a template has forked ahead: a start takes one instead of a fork.
//!
//! They are forked when no caller waits, some time after a start, and only by templates that are asked for
//! more than one service. A spare waits for its keeper's order; when the keeper ends, or gives it up, it ends.

use std::os::fd::BorrowedFd;

use rustix::net::SendFlags;

use super::Registry;
use crate::clock::now_ms;
use crate::confine::Confinement;
use crate::control;
use crate::error::Result;
use crate::keeper::DeadlineKind;
use crate::keeper::source::Poller;
use crate::keeper::template::Running;
use crate::limit::SPARE_DELAY_MS;
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
            let spare = self.template_running(id)?.spares().take()?;
            let confinement = confinement.cloned();
            let order = Order::Serve {
                handle,
                confinement,
            };
            let order = order.encode();
            if control::send(&spare.orders, &order, descriptors, SendFlags::DONTWAIT).is_err() {
                spare.process.kill(); // it has ended; it is reaped with the orphans
                continue;
            }
            if let Some(service) = self.services.get_mut(&handle.slot) {
                service.directory = Some(spare.directory);
                service.orders = Some(spare.orders);
            }
            return Some(self.register(poller, handle, spare.process));
        }
    }

    /// After a start: have a spare forked soon, when the burst of starts is over.
    pub(super) fn plan_spare(&mut self, id: u32) {
        let wanted = self
            .templates
            .get(&id)
            .map_or(0, |template| template.spares);
        let Some(running) = self.template_running(id) else {
            return;
        };
        if !running.lacks_spares(wanted) {
            return;
        }
        let handle = Handle {
            slot: id,
            generation: u64::from(running.serial()),
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
            .map_or(0, |template| template.spares);
        let Some(running) = self.template_running(id) else {
            return;
        };
        let same = u64::from(running.serial()) == template.generation;
        if !same || !running.may_fork_spare(wanted) {
            return;
        }
        if running.owes_any() {
            return self.plan_spare(id); // a caller waits for a service of it
        }
        let _ = running.fork_spare(next); // a template that takes no orders has none to spare
    }

    /// A template has reported a spare.
    pub(super) fn spare_forked(&mut self, id: u32, pid: i32) {
        let running = self.template_running(id);
        if running.is_some_and(|running| running.spares().forked(pid)) {
            self.plan_spare(id);
        }
    }

    /// Let go of spares that have ended by themselves.
    pub(super) fn reap_spares(&mut self) {
        for template in self.templates.values_mut() {
            if let Some(running) = &mut template.running {
                running.spares().reap();
            }
        }
    }

    fn template_running(&mut self, id: u32) -> Option<&mut Running> {
        self.templates.get_mut(&id)?.running.as_mut()
    }
}
