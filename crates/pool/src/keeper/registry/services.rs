//! The services of a keeper, by slot.
//!
//! A slot has one service at a time. A deadline of an earlier one carries its handle, and an event that the kernel
//! queued for it carries its serial; neither finds the later one (`since`, `of_serial`).

use std::collections::BTreeMap;

use rustix::process::{Pid, getpgid};

use crate::clock::now_ms;
use crate::keeper::service::Service;
use crate::limit::SERVICES_MAX;
use crate::wire::Handle;

/// The table of services.
#[derive(Debug, Default)]
pub struct Services(BTreeMap<u32, Service>);

impl Services {
    /// Whether a service may be started in a slot.
    pub fn has_room(&self, slot: u32) -> bool {
        slot < SERVICES_MAX && !self.0.contains_key(&slot)
    }

    /// Add a service, in its slot.
    pub fn insert(&mut self, service: Service) {
        self.0.insert(service.handle().slot, service);
    }

    /// The service of a slot.
    pub fn get(&self, slot: u32) -> Option<&Service> {
        self.0.get(&slot)
    }

    /// The service of a slot.
    pub fn get_mut(&mut self, slot: u32) -> Option<&mut Service> {
        self.0.get_mut(&slot)
    }

    /// The service that a handle was given for when it was started.
    pub fn since(&self, handle: Handle) -> Option<&Service> {
        self.get(handle.slot)
            .filter(|service| service.handle() == handle)
    }

    /// The service that a handle was given for when it was started.
    pub fn since_mut(&mut self, handle: Handle) -> Option<&mut Service> {
        self.get_mut(handle.slot)
            .filter(|service| service.handle() == handle)
    }

    /// The service of a slot that has a serial.
    pub fn of_serial(&mut self, slot: u32, serial: u32) -> Option<&mut Service> {
        self.get_mut(slot)
            .filter(|service| service.serial() == serial)
    }

    /// Remove the service of a slot.
    pub fn remove(&mut self, slot: u32) -> Option<Service> {
        self.0.remove(&slot)
    }

    /// Remove the services that have no process.
    pub fn forget_unstarted(&mut self) {
        self.0.retain(|_, service| service.pid().is_some());
    }

    /// Remove all services.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether there is no service.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The slots that have one.
    pub fn slots(&self) -> Vec<u32> {
        self.0.keys().copied().collect()
    }

    /// All services.
    pub fn iter(&self) -> impl Iterator<Item = &Service> {
        self.0.values()
    }

    /// The services from a slot on.
    pub fn iter_from(&self, slot: u32) -> impl Iterator<Item = &Service> {
        self.0.range(slot..).map(|(_, service)| service)
    }

    /// Whether a copy of one of them may exist that it has not reported.
    pub fn any_branches(&self) -> bool {
        self.iter().any(Service::is_branching)
    }

    /// Whether a process is a service's.
    pub fn owns(&self, pid: Pid) -> bool {
        self.iter().any(|service| service.pid() == Some(pid))
    }

    /// Whether a process is of the group of a service that is given time for its end.
    pub fn is_given_time(&self, pid: Pid) -> bool {
        let Ok(group) = getpgid(Some(pid)) else {
            return false;
        };
        let now = now_ms();
        self.iter()
            .any(|service| service.pid() == Some(group) && service.exits_until(now).is_some())
    }
}
