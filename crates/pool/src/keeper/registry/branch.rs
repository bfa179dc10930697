//! How a service comes to be as the copy of another that is lent.
//!
//! The keeper passes the order on to the service, which forks in a call of its holder. From
//! there on the copy is a service like any other: a child of the keeper, reported and watched alike.

use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{RecvFlags, SendFlags};

use super::Registry;
use super::end::not_forked;
use super::start::NO_DIRECTORY;
use crate::control;
use crate::death::Cause;
use crate::error::{Error, Result};
use crate::keeper::report_of;
use crate::keeper::source::{Poller, Source, token, watch};
use crate::wire::{self, Handle, Order, Report};

impl Registry {
    pub(super) fn branch(
        &mut self,
        poller: &Poller,
        handle: Handle,
        parent: Handle,
        deadlines: wire::Deadlines,
        sockets: &[OwnedFd],
    ) -> Result<()> {
        let ordered = self.order_copy(poller, handle, parent, deadlines, sockets);
        if ordered.is_err() {
            self.copied(poller, parent.slot, handle);
            self.skip(parent.slot, handle);
        }
        ordered
    }

    /// Order a service not to wait for a copy. Its holder has called it to expect an order, and it would wait for
    /// ever; so a service whose socket is too full for this order is ended.
    fn skip(&mut self, slot: u32, handle: Handle) {
        let Some(orders) = self.orders_of(slot) else {
            return;
        };
        let skip = Order::Skip { handle }.encode();
        let sent = control::send(orders, &skip, &[], SendFlags::DONTWAIT);
        if sent.is_err()
            && let Some(service) = self.services.get_mut(&slot)
        {
            service.end(Cause::Discarded);
        }
    }

    fn order_copy(
        &mut self,
        poller: &Poller,
        handle: Handle,
        parent: Handle,
        deadlines: wire::Deadlines,
        sockets: &[OwnedFd],
    ) -> Result<()> {
        let write = self.enter(poller, handle, deadlines)?;
        let socket = self.keep_answers(handle, sockets)?;
        let directory = self.reserve()?;
        directory.make().map_err(NO_DIRECTORY)?;
        let (ours, theirs) = control::pair()?;
        let confinement = self.confine(handle)?;
        self.expect_copy(poller, parent.slot, handle)?;
        let gone = Error::Malformed {
            what: "the service to be copied has ended",
        };
        let orders = self.orders_of(parent.slot).ok_or(gone)?;
        let order = Order::Branch {
            handle,
            directory: directory.path().as_encoded_bytes().to_vec(),
            confinement,
        };
        let descriptors = [socket.as_fd(), write.as_fd(), theirs.as_fd()];
        control::send(orders, &order.encode(), &descriptors, SendFlags::DONTWAIT)
            .map_err(Error::system("the service takes no orders"))?;
        if let Some(service) = self.services.get_mut(&handle.slot) {
            service.directory = Some(directory);
            service.orders = Some(ours);
        }
        Ok(())
    }

    /// Watch for what a service reports, from its first copy on.
    fn expect_copy(&mut self, poller: &Poller, slot: u32, copy: Handle) -> Result<()> {
        let Some(service) = self.services.get_mut(&slot) else {
            return Ok(());
        };
        if service.branching.is_empty()
            && let Some(orders) = &service.orders
        {
            watch(
                poller,
                orders,
                token(Source::Branched, slot, service.serial),
            )?;
        }
        service.branching.insert(copy);
        Ok(())
    }

    pub(super) fn take_copies(&mut self, poller: &Poller, slot: u32, serial: u32) {
        loop {
            let service = self.services.get_mut(&slot);
            let Some(service) = service.filter(|service| service.serial == serial) else {
                return;
            };
            let Some(orders) = &service.orders else {
                return;
            };
            let report = match self.receiver.receive(orders, RecvFlags::DONTWAIT) {
                Ok(Some(packet)) if !packet.bytes.is_empty() => report_of(&packet.bytes),
                Ok(None) | Err(Error::Interrupted) => return,
                Ok(Some(_)) | Err(_) => {
                    poller.remove(orders); // closed: the service is ending
                    return;
                }
            };
            match report {
                Report::Forked { handle, pid } => {
                    self.copied(poller, slot, handle);
                    self.forked(poller, handle, pid);
                }
                Report::NotForked { handle, errno } => {
                    self.copied(poller, slot, handle);
                    self.not_copied(handle, &not_forked("the service", errno));
                }
                Report::HasExitHooks => {
                    if let Some(service) = self.services.get_mut(&slot) {
                        service.has_exit_hooks = true;
                    }
                }
                Report::Ready | Report::Unfit { .. } | Report::SpareForked { .. } => {} // a template's reports
            }
        }
    }

    /// A service has ended: the copies that it has not reported will not come.
    pub(super) fn forget_copies(&mut self, poller: &Poller, slot: u32, serial: u32) {
        self.take_copies(poller, slot, serial);
        let Some(service) = self.services.get_mut(&slot) else {
            return;
        };
        if let Some(orders) = &service.orders {
            poller.remove(orders);
        }
        for handle in std::mem::take(&mut service.branching) {
            self.not_copied(handle, "the service to be copied ended");
        }
    }

    fn copied(&mut self, poller: &Poller, slot: u32, copy: Handle) {
        if let Some(service) = self.services.get_mut(&slot)
            && service.branching.remove(&copy)
            && service.branching.is_empty()
            && let Some(orders) = &service.orders
        {
            poller.remove(orders);
        }
    }

    fn not_copied(&mut self, copy: Handle, why: &str) {
        if self.services.remove(&copy.slot).is_some() {
            self.report_not_started(copy.slot, Cause::NotStarted, why.as_bytes().to_vec());
        }
    }

    fn orders_of(&self, slot: u32) -> Option<&OwnedFd> {
        self.services.get(&slot)?.orders.as_ref()
    }
}
