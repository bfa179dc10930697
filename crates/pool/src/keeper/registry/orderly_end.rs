//! The orderly end of a service: it runs its close hook and its exit handlers, within `EXIT_HOOKS_MS`.
//!
//! A service that has any reports so once over its keeper link, which is read when the service is to end; one without
//! hooks is killed at once. Its end begins with the end of its connection. Then its process exits, and what is
//! left of its group, such as a resource tracker of multiprocessing that removes shared memory, has the rest of the
//! time. The leader is not reaped until then, so that the group keeps its number.

use rustix::process::{Pid, WaitOptions, getpgid, waitpid};

use super::Registry;
use super::orphans::children;
use crate::clock::now_ms;
use crate::death::Cause;
use crate::keeper::DeadlineKind;
use crate::keeper::source::Poller;
use crate::limit::{EXIT_HOOKS_MS, GROUP_CHECK_MS};
use crate::wire::Handle;

impl Registry {
    /// End a service: in order where it has asked for that and the cause allows it, at once otherwise.
    pub(super) fn end_service(&mut self, poller: &Poller, slot: u32, cause: Cause) {
        let Some(serial) = self.services.get(&slot).map(|service| service.serial) else {
            return;
        };
        if cause.is_orderly() {
            self.take_copies(poller, slot, serial); // it may have said that it has something to do
        }
        let Some(service) = self.services.get_mut(&slot) else {
            return;
        };
        if service.exit_by.is_some() && cause.is_orderly() {
            return; // its end has begun
        }
        if service.has_exit_hooks && service.process.is_some() && cause.is_orderly() {
            let until = now_ms() + EXIT_HOOKS_MS;
            service.begin_exit(cause, until);
            self.deadlines
                .push(until, DeadlineKind::ExitHooks, service.handle);
        } else {
            service.exit_by = None;
            service.end(cause);
        }
    }

    /// Its time for exit hooks is over.
    pub(super) fn expire_exit(&mut self, handle: Handle) {
        let slot = handle.slot;
        if self.service_since(handle).is_some()
            && let Some(service) = self.services.get_mut(&slot)
            && let Some(cause) = service.ending
        {
            service.end(cause);
        }
    }

    /// Whether a process that has exited leaves others that have time to end by themselves; they are looked at again.
    pub(super) fn awaits_group(&mut self, poller: &Poller, slot: u32) -> bool {
        let Some(service) = self.services.get(&slot) else {
            return false;
        };
        let (Some(until), Some(process)) = (service.exit_by, &service.process) else {
            return false;
        };
        let now = now_ms();
        if now >= until || !service.branching.is_empty() || !has_members(process.pid) {
            return false;
        }
        poller.remove(process);
        let next = until.min(now + GROUP_CHECK_MS);
        self.deadlines
            .push(next, DeadlineKind::GroupExit, service.handle);
        true
    }

    pub(super) fn check_group(&mut self, poller: &Poller, handle: Handle) {
        if let Some(serial) = self.service_since(handle).map(|service| service.serial) {
            self.service_ended(poller, handle.slot, serial);
        }
    }

    /// Whether a process is of the group of a service that is given time.
    pub(super) fn is_exiting(&self, pid: Pid) -> bool {
        let Ok(group) = getpgid(Some(pid)) else {
            return false;
        };
        let leaving = self.services.values();
        leaving
            .filter(|service| service.exit_by.is_some_and(|until| now_ms() < until))
            .filter_map(|service| service.process.as_ref())
            .any(|process| process.pid == group)
    }
}

/// Whether a group whose leader has ended has other processes that live. They came to us with its end.
fn has_members(leader: Pid) -> bool {
    children().into_iter().any(|pid| {
        pid != leader
            && getpgid(Some(pid)) == Ok(leader)
            && !matches!(waitpid(Some(pid), WaitOptions::NOHANG), Ok(Some(_)))
    })
}
