//! Having things started: the keeper by the caller, everything else by the keeper.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::epoll;

use super::drive::CONTROL;
use super::{Client, Handover};
use crate::error::{Error, Result};
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
        self.enter()?.link.send(
            &Request::Template {
                template,
                launch,
                setup,
            },
            &[],
        )
    }

    /// Start a service from a template. `theirs` goes to it; `ours` is a duplicate of the caller's end.
    pub fn fork(
        &self,
        handle: Handle,
        template: u32,
        deadlines: Deadlines,
        ours: OwnedFd,
        theirs: BorrowedFd<'_>,
    ) -> Result<()> {
        let mut state = self.enter()?;
        state.expect_keeper_of(handle)?;
        state.link.send(
            &Request::Fork {
                handle,
                template,
                deadlines,
            },
            &[theirs],
        )?;
        state.entry_of(handle.slot).socket = Some(ours);
        Ok(())
    }

    /// Start a program as a service.
    pub fn launch(
        &self,
        handle: Handle,
        launch: Launch,
        deadlines: Deadlines,
        ours: OwnedFd,
        theirs: BorrowedFd<'_>,
    ) -> Result<()> {
        let mut state = self.enter()?;
        state.expect_keeper_of(handle)?;
        state.link.send(
            &Request::Start {
                handle,
                launch,
                deadlines,
            },
            &[theirs],
        )?;
        state.entry_of(handle.slot).socket = Some(ours);
        Ok(())
    }
}
