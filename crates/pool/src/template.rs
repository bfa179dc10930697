//! The template's side: wait for an order, fork, report.
//!
//! A template is a process with one thread that has imported an application. It never runs the application;
//! its children do. It touches little memory between forks, so that its pages stay shared with them.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal, setsid};

use crate::channel::{self, Packet, Receiver};
use crate::error::{Error, Result};
use crate::sys::{Forked, Hooks, fork_sibling};
use crate::wire::{Handle, Order, Report};

/// The template's end of its socket to the keeper.
#[derive(Debug)]
pub struct Nursery {
    socket: OwnedFd,
    keeper: Option<Pid>,
    receiver: Receiver,
}

/// A service that the keeper wants.
#[derive(Debug)]
pub struct Wanted {
    handle: Handle,
    /// Its own directory.
    pub directory: PathBuf,
    /// Its socket to the client.
    pub socket: OwnedFd,
    output: OwnedFd,
}

impl Nursery {
    /// Take charge of the socket; to be called by the process that the keeper started.
    pub fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            keeper: getppid(),
            receiver: Receiver::default(),
        }
    }

    /// The first order: what to import. None at the end of the keeper.
    pub fn setup(&mut self) -> Result<Option<Vec<u8>>> {
        match self.next_order()? {
            None => Ok(None),
            Some((Order::Setup { setup }, _)) => Ok(Some(setup)),
            Some(_) => Err(Error::Malformed {
                what: "a fork was ordered before the setup",
            }),
        }
    }

    /// Say that imports are done.
    pub fn ready(&self) -> Result<()> {
        self.report(&Report::Ready)
    }

    /// Say why this process cannot be a template; it exits next.
    pub fn unfit(&self, reason: Vec<u8>) -> Result<()> {
        self.report(&Report::Unfit { reason })
    }

    /// Wait for the next service that is wanted. None at the end of the keeper.
    pub fn wanted(&mut self) -> Result<Option<Wanted>> {
        let Some((order, descriptors)) = self.next_order()? else {
            return Ok(None);
        };
        let Order::Fork { handle, directory } = order else {
            return Err(Error::Malformed {
                what: "a second setup",
            });
        };
        let mut descriptors = descriptors.into_iter();
        let (Some(socket), Some(output)) = (descriptors.next(), descriptors.next()) else {
            return Err(Error::Malformed {
                what: "a fork was ordered without its descriptors",
            });
        };
        Ok(Some(Wanted {
            handle,
            directory: OsString::from_vec(directory).into(),
            socket,
            output,
        }))
    }

    /// Fork it. Returns its socket in the child, None in the template, which has told the keeper.
    pub fn fork(&self, wanted: Wanted, hooks: Hooks) -> Result<Option<OwnedFd>> {
        let handle = wanted.handle;
        match fork_sibling(hooks) {
            Ok(Forked::Child) => self.born(wanted).map(Some),
            Ok(Forked::Parent(pid)) => self.report(&Report::Forked { handle, pid }).map(|()| None),
            Err(errno) => {
                let errno = errno.raw_os_error();
                self.report(&Report::NotForked { handle, errno })
                    .map(|()| None)
            }
        }
    }

    /// In the child: a session of its own, ended with the keeper, output to its own pipe.
    fn born(&self, wanted: Wanted) -> Result<OwnedFd> {
        setsid().map_err(Error::system("setsid"))?;
        set_parent_process_death_signal(Some(Signal::KILL))
            .map_err(Error::system("prctl(PR_SET_PDEATHSIG)"))?;
        if getppid() != self.keeper {
            return Err(Error::KeeperLost); // it ended before the signal was armed
        }
        rustix::stdio::dup2_stdout(&wanted.output).map_err(Error::system("dup2"))?;
        rustix::stdio::dup2_stderr(&wanted.output).map_err(Error::system("dup2"))?;
        Ok(wanted.socket)
    }

    fn next_order(&mut self) -> Result<Option<(Order, Vec<OwnedFd>)>> {
        loop {
            match self
                .receiver
                .receive(self.socket.as_fd(), RecvFlags::empty())
            {
                Ok(Some(Packet { bytes, .. })) if bytes.is_empty() => return Ok(None),
                Ok(Some(Packet { bytes, descriptors })) => {
                    return Ok(Some((Order::decode(&bytes)?, descriptors)));
                }
                Ok(None) | Err(Error::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn report(&self, report: &Report) -> Result<()> {
        channel::send(&self.socket, &report.encode(), &[], SendFlags::empty())
            .map_err(Error::system("report to the keeper"))
    }
}
