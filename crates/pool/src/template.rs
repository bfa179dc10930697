//! The template's side: wait for an order, fork, report.
//!
//! A template is a process with one thread that has imported an application. It never runs the application;
//! its children do. It touches little memory between forks, so that its pages stay shared with them.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal, setsid};
use rustix::thread::set_name;

use crate::confine::{Confinement, OpenConfinement};
use crate::control::{self, Packet, Receiver};
use crate::error::{Error, Result};
use crate::sys::{self, Hooks, fork_sibling};
use crate::wire::{Handle, Order, Report};

/// Descriptors that an order to fork brings: the service's socket, its output and its keeper link.
const FORK_FDS: usize = 3;

/// The template's end of its socket to the keeper.
#[derive(Debug)]
pub struct KeeperLink {
    /// Another one in each service: a copy of the template's there would keep alive, after the template, the orders
    /// that were not taken and the sockets in them, so that callers waiting for those services would see no end of file.
    socket: Option<OwnedFd>,
    keeper: Option<Pid>,
    receiver: Receiver,
}

/// Which side of a fork this is.
#[derive(Debug)]
pub enum ForkSide {
    /// The service: its socket to the client.
    Service(OwnedFd),
    /// A spare, which waits for an order.
    Spare,
    /// The template: the directory of the service that is forked next.
    Template(PathBuf),
}

/// The first order to a template.
#[derive(Debug)]
pub struct Setup {
    /// What to import.
    pub setup: Vec<u8>,
    /// The directory of the first service.
    pub directory: PathBuf,
}

impl KeeperLink {
    /// Take charge of the socket; to be called by the process that the keeper started.
    pub fn new(socket: OwnedFd) -> Self {
        let _ = set_name(c"fb template"); // for ps and top
        Self {
            socket: Some(socket),
            keeper: getppid(),
            receiver: Receiver::default(),
        }
    }

    /// The first order: what to import. None at the end of the keeper.
    pub fn setup(&mut self) -> Result<Option<Setup>> {
        match self.next_order()? {
            None => Ok(None),
            Some((Order::Setup { setup, directory }, _)) => {
                let directory = OsString::from_vec(directory).into();
                Ok(Some(Setup { setup, directory }))
            }
            Some(_) => Err(Error::Malformed {
                what: "a fork was ordered before the setup",
            }),
        }
    }

    /// Say that imports are done. What is in memory by now is shared with all that is forked.
    pub fn ready(&self) -> Result<()> {
        sys::collapse_heap();
        self.report(&Report::Ready)
    }

    /// Say why this process cannot be a template; it exits next.
    pub fn unfit(&self, reason: Vec<u8>) -> Result<()> {
        self.report(&Report::Unfit { reason })
    }

    /// Wait for the next order and fork the service. None at the end of the keeper.
    ///
    /// The template prepares what a service needs after the fork before it, when no caller waits.
    pub fn fork(&mut self, hooks: Hooks) -> Result<Option<ForkSide>> {
        let Some((order, descriptors)) = self.next_order()? else {
            return Ok(None);
        };
        let (handle, next, confinement) = match order {
            Order::Fork {
                handle,
                next,
                confinement,
            } => (handle, next, confinement),
            Order::Spare { next } => return self.spare(hooks, next, descriptors),
            _ => {
                return Err(Error::Malformed {
                    what: "an order that is not for a template",
                });
            }
        };
        match self.fork_and_report(hooks, handle, descriptors, confinement.as_ref())? {
            Some(socket) => Ok(Some(ForkSide::Service(socket))),
            None => Ok(Some(ForkSide::Template(OsString::from_vec(next).into()))),
        }
    }

    /// Fork a spare.
    fn spare(
        &mut self,
        hooks: Hooks,
        next: Vec<u8>,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Option<ForkSide>> {
        let pid = match fork_sibling(hooks) {
            Ok(sys::Forked::Child) => {
                let orders = descriptors.into_iter().next();
                self.leave_template(orders)?;
                return Ok(Some(ForkSide::Spare));
            }
            Ok(sys::Forked::Parent(pid)) => pid,
            Err(_) => 0,
        };
        // Before the keeper may order it: the keeper sees a dead spare by its socket, of which there must be no copy.
        drop(descriptors);
        self.report(&Report::SpareForked { pid })?;
        Ok(Some(ForkSide::Template(OsString::from_vec(next).into())))
    }

    /// In a spare: wait until it is a service. None at the end of the keeper, or when it is not needed.
    pub fn serve(&mut self) -> Result<Option<OwnedFd>> {
        match self.next_order()? {
            Some((Order::Serve { confinement, .. }, descriptors)) => {
                let Ok::<[OwnedFd; 2], _>([socket, output]) = descriptors.try_into() else {
                    return Err(WITHOUT_DESCRIPTORS);
                };
                write_to(&output)?;
                confine(confinement.as_ref())?;
                Ok(Some(socket))
            }
            Some(_) => Err(Error::Malformed {
                what: "an order that is not for a spare",
            }),
            None => Ok(None),
        }
    }

    /// In a service whose holder wants a copy of it: take the keeper's order and fork.
    ///
    /// In the copy its socket and directory; None in the original, also where the keeper could not order it.
    pub fn branch(&mut self, hooks: Hooks) -> Result<Option<(OwnedFd, PathBuf)>> {
        match self.next_order()? {
            Some((
                Order::Branch {
                    handle,
                    directory,
                    confinement,
                },
                descriptors,
            )) => {
                let socket =
                    self.fork_and_report(hooks, handle, descriptors, confinement.as_ref())?;
                Ok(socket.map(|socket| (socket, OsString::from_vec(directory).into())))
            }
            Some((Order::Skip { .. }, _)) => Ok(None),
            Some(_) => Err(Error::Malformed {
                what: "an order for a template",
            }),
            None => Err(Error::KeeperLost),
        }
    }

    /// Take an order for a copy, and do not make it.
    pub fn refuse(&mut self) -> Result<()> {
        match self.next_order()? {
            Some((Order::Branch { handle, .. }, _)) => {
                let errno = Errno::BUSY.raw_os_error();
                self.report(&Report::NotForked { handle, errno })
            }
            Some(_) => Ok(()),
            None => Err(Error::KeeperLost),
        }
    }

    /// In a service: say that it has something to do before it ends.
    pub fn report_exit_hooks(&self) -> Result<()> {
        self.report(&Report::HasExitHooks)
    }

    /// In a service whose connection has ended: wait until the keeper closes its link.
    ///
    /// `Interrupted` at a signal.
    pub fn await_end(&mut self) -> Result<()> {
        while let Some(socket) = &self.socket {
            match self.receiver.receive(socket, RecvFlags::empty())? {
                Some(Packet { bytes, .. }) if bytes.is_empty() => break,
                _ => {} // an order for a copy comes too late: its holder has left
            }
        }
        Ok(())
    }

    /// Fork and report it. The socket, in the child alone.
    fn fork_and_report(
        &mut self,
        hooks: Hooks,
        handle: Handle,
        descriptors: Vec<OwnedFd>,
        confinement: Option<&Confinement>,
    ) -> Result<Option<OwnedFd>> {
        let forked = if descriptors.len() < FORK_FDS {
            Err(Errno::MFILE) // the kernel dropped what this process could not have
        } else {
            fork_sibling(hooks)
        };
        let report = match forked {
            Ok(sys::Forked::Child) => {
                let socket = self.become_service(descriptors)?;
                confine(confinement)?; // before anything of the user's runs
                return Ok(Some(socket));
            }
            Ok(sys::Forked::Parent(pid)) => Report::Forked { handle, pid },
            Err(errno) => Report::NotForked {
                handle,
                errno: errno.raw_os_error(),
            },
        };
        self.report(&report)?;
        Ok(None)
    }

    /// In a child that is a service at once. Its socket.
    fn become_service(&mut self, descriptors: Vec<OwnedFd>) -> Result<OwnedFd> {
        let Ok::<[OwnedFd; 3], _>([socket, output, orders]) = descriptors.try_into() else {
            return Err(WITHOUT_DESCRIPTORS);
        };
        self.leave_template(Some(orders))?;
        write_to(&output)?;
        Ok(socket)
    }

    /// In a child: make a session, take the keeper link, and die with the keeper.
    fn leave_template(&mut self, orders: Option<OwnedFd>) -> Result<()> {
        let _ = set_name(c"fb service"); // for ps and top
        self.socket = orders;
        setsid().map_err(Error::system("setsid"))?;
        set_parent_process_death_signal(Some(Signal::KILL))
            .map_err(Error::system("prctl(PR_SET_PDEATHSIG)"))?;
        if getppid() != self.keeper {
            return Err(Error::KeeperLost); // it ended before the signal was armed
        }
        Ok(())
    }

    fn next_order(&mut self) -> Result<Option<(Order, Vec<OwnedFd>)>> {
        loop {
            let Some(socket) = &self.socket else {
                return Ok(None);
            };
            match self.receiver.receive(socket, RecvFlags::empty()) {
                Ok(Some(Packet { bytes, .. })) if bytes.is_empty() => return Ok(None),
                Ok(Some(Packet {
                    bytes, descriptors, ..
                })) => {
                    return Ok(Some((Order::decode(&bytes)?, descriptors)));
                }
                Ok(None) | Err(Error::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn report(&self, report: &Report) -> Result<()> {
        let socket = self.socket.as_ref().ok_or(Error::KeeperLost)?;
        control::send(socket, &report.encode(), &[], SendFlags::empty())
            .map_err(Error::system("report to the keeper"))
    }
}

const WITHOUT_DESCRIPTORS: Error = Error::Malformed {
    what: "a service was ordered without its descriptors",
};

/// Write to its own pipe from now on.
fn write_to(output: &OwnedFd) -> Result<()> {
    rustix::stdio::dup2_stdout(output).map_err(Error::system("dup2"))?;
    rustix::stdio::dup2_stderr(output).map_err(Error::system("dup2"))
}

/// Hold this process, which is a service from now on, to its limits.
fn confine(confinement: Option<&Confinement>) -> Result<()> {
    let Some(confinement) = confinement else {
        return Ok(());
    };
    let entered = OpenConfinement::for_fork(confinement).and_then(|open| open.enter());
    entered.map_err(|source| Error::System {
        what: "the service cannot be held to its limits".into(),
        source,
    })
}
