//! Having things started: the keeper by the caller, everything else by the keeper.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll;

use super::drive::CONTROL;
use super::{Client, Handover};
use crate::channel;
use crate::death::Cause;
use crate::error::{Error, Result};
use crate::limit::SERVICES_MAX;
use crate::machine::Key;
use crate::wire::{Deadlines, Handle, Launch, Request};

impl Client {
    /// What a new keeper process is to be started with; None where one is running.
    pub fn handover(&self) -> Result<Option<Handover>> {
        let mut state = self.enter()?;
        state.link.handover()
    }

    /// A keeper was started with the last handover. Returns its number: descriptions of templates are told anew.
    pub fn attach(&self, keeper: OwnedFd) -> Result<u64> {
        let mut state = self.enter()?;
        let epoch = state.link.attach(keeper);
        if let Some(control) = state.link.control() {
            let data = epoll::EventData::new_u64(CONTROL);
            epoll::add(self.ready()?, control, data, epoll::EventFlags::IN)
                .map_err(Error::system("epoll_ctl"))?;
        }
        Ok(epoch)
    }

    /// Number of the keeper that is running; 0 where none is.
    pub fn epoch(&self) -> Result<u64> {
        Ok(self.enter()?.link.epoch())
    }

    /// Describe a template to the keeper.
    pub fn describe(&self, template: u32, launch: Launch, setup: Vec<u8>) -> Result<()> {
        self.enter()?.link.describe(template, launch, setup)
    }

    /// Start a service from a template. Returns the caller's end of its socket.
    pub fn fork(&self, handle: Handle, template: u32, deadlines: Deadlines) -> Result<OwnedFd> {
        let request = Request::Fork {
            handle,
            template,
            deadlines,
        };
        self.start(handle, &request)
    }

    /// Start a copy of a lent service, for the same holder. Returns its lease to be, and the caller's end of its
    /// socket. The holder tells the service itself to fork.
    pub fn branch(
        &self,
        parent: Handle,
        key: Key,
        deadlines: Deadlines,
    ) -> Result<(Handle, OwnedFd)> {
        let handle = {
            let mut state = self.enter()?;
            state.entry(parent)?;
            let slot = state.machine.branch(key);
            state.begin(slot)
        };
        let request = Request::Branch {
            handle,
            parent,
            deadlines,
        };
        match self.start(handle, &request) {
            Ok(socket) => Ok((handle, socket)),
            Err(error) => {
                self.discard(handle, Cause::Discarded)?;
                Err(error)
            }
        }
    }

    /// Start a program as a service. Returns the caller's end of its socket.
    pub fn launch(&self, handle: Handle, launch: Launch, deadlines: Deadlines) -> Result<OwnedFd> {
        let request = Request::Start {
            handle,
            launch,
            deadlines,
        };
        self.start(handle, &request)
    }

    fn start(&self, handle: Handle, request: &Request) -> Result<OwnedFd> {
        let mut state = self.enter()?;
        state.expect_keeper_of(handle)?;
        if handle.slot >= SERVICES_MAX {
            let next = "wait until services that are being ended are gone";
            let (maximum, value) = (u64::from(SERVICES_MAX), u64::from(handle.slot) + 1);
            return Err(Error::Limit {
                limit: "services_max",
                maximum,
                value,
                next,
            });
        }
        let (ours, theirs) = channel::stream_pair()?;
        let watched = ours.try_clone().map_err(|source| Error::System {
            what: "dup of a socket",
            source,
        })?;
        state.link.send(request, &[theirs.as_fd(), ours.as_fd()])?;
        state.entry_of(handle.slot).socket = Some(watched);
        Ok(ours)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_above_the_limit_is_refused_and_given_back() {
        let client = Client::new(1).expect("a pool");
        client.lock().begin(SERVICES_MAX);
        let (slot, generation) = (SERVICES_MAX, 1);
        let handle = Handle { slot, generation };

        let error = client.fork(handle, 0, Deadlines::default());
        let error = error.expect_err("no word for it");
        assert!(error.to_string().starts_with("services_max is 4096, 4097"));
        client.discard(handle, Cause::Discarded).expect("ours");
    }
}
