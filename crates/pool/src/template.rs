//! The template's side: wait for an order, fork, report.
//!
//! A template is a process with one thread that has imported an application. It never runs the application;
//! its children do. It touches little memory between forks, so that its pages stay shared with them.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal, setsid};

use crate::channel::{self, Packet};
use crate::error::{Error, Result};
use crate::sys::{Forked, Hooks, fork_sibling};
use crate::wire::{Handle, Order, Report};

/// The template's end of its socket to the keeper.
#[derive(Debug)]
pub struct Nursery {
    socket: OwnedFd,
    keeper: Option<Pid>,
}

/// What a new service's process is given.
#[derive(Debug)]
pub struct Newborn {
    /// Its socket to the client.
    pub socket: OwnedFd,
    /// Its own directory.
    pub directory: PathBuf,
}

impl Nursery {
    /// Take charge of the socket; to be called by the process that the keeper started.
    pub fn new(socket: OwnedFd) -> Self {
        Self { socket, keeper: getppid() }
    }

    /// The first order: what to import. None at the end of the keeper.
    pub fn setup(&self) -> Result<Option<Vec<u8>>> {
        match self.next_order()? {
            None => Ok(None),
            Some((Order::Setup { setup }, _)) => Ok(Some(setup)),
            Some(_) => Err(Error::Malformed { what: "a fork was ordered before the setup" }),
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

    /// Fork services as ordered. Returns in each child, and in the template at the end of the keeper with None.
    pub fn serve(&self, hooks: Hooks) -> Result<Option<Newborn>> {
        while let Some((order, descriptors)) = self.next_order()? {
            let Order::Fork { handle, directory } = order else {
                return Err(Error::Malformed { what: "a second setup" });
            };
            match fork_sibling(hooks) {
                Ok(Forked::Child) => return self.born(descriptors, directory).map(Some),
                Ok(Forked::Parent(pid)) => self.report(&Report::Forked { handle, pid })?,
                Err(errno) => self.not_forked(handle, errno)?,
            }
        }
        Ok(None)
    }

    fn not_forked(&self, handle: Handle, errno: rustix::io::Errno) -> Result<()> {
        self.report(&Report::NotForked { handle, errno: errno.raw_os_error() })
    }

    /// In the child: a session of its own, ended with the keeper, output to its own pipe.
    fn born(&self, descriptors: Vec<OwnedFd>, directory: Vec<u8>) -> Result<Newborn> {
        use std::os::unix::ffi::OsStringExt;
        setsid().map_err(Error::system("setsid"))?;
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(Error::system("prctl(PR_SET_PDEATHSIG)"))?;
        if getppid() != self.keeper {
            return Err(Error::KeeperLost); // it ended before the signal was armed
        }
        let mut descriptors = descriptors.into_iter();
        let (Some(socket), Some(output)) = (descriptors.next(), descriptors.next()) else {
            return Err(Error::Malformed { what: "a fork was ordered without its descriptors" });
        };
        rustix::stdio::dup2_stdout(&output).map_err(Error::system("dup2"))?;
        rustix::stdio::dup2_stderr(&output).map_err(Error::system("dup2"))?;
        let directory = std::ffi::OsString::from_vec(directory).into();
        Ok(Newborn { socket, directory })
    }

    fn next_order(&self) -> Result<Option<(Order, Vec<OwnedFd>)>> {
        loop {
            match channel::receive(self.socket.as_fd(), RecvFlags::empty()) {
                Ok(Some(Packet { bytes, .. })) if bytes.is_empty() => return Ok(None),
                Ok(Some(Packet { bytes, descriptors })) => return Ok(Some((Order::decode(&bytes)?, descriptors))),
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
