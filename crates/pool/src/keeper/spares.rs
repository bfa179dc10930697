//! The processes that one template has forked ahead.

use std::os::fd::OwnedFd;

use rustix::process::Pid;

use crate::keeper::process::Process;
use crate::keeper::scratch::Directory;

/// A process that becomes a service by an order.
#[derive(Debug)]
pub struct Spare {
    /// Orders to it.
    pub orders: OwnedFd,
    /// Its own directory.
    pub directory: Directory,
    pub process: Process,
}

/// The spares of a template.
#[derive(Debug, Default)]
pub struct Spares {
    ready: Vec<Spare>,
    /// The orders and the directory of the one that the template was asked for and has not reported.
    forking: Option<(OwnedFd, Directory)>,
}

impl Spares {
    /// The template was asked for one.
    pub fn begin(&mut self, orders: OwnedFd, directory: Directory) {
        self.forking = Some((orders, directory));
    }

    /// The template has reported one; false if none was asked for, or if it has ended already.
    pub fn forked(&mut self, pid: i32) -> bool {
        let Some((orders, directory)) = self.forking.take() else {
            return false;
        };
        let process = Pid::from_raw(pid).and_then(|pid| Process::adopt(pid).ok());
        let Some(process) = process else {
            return false;
        };
        self.ready.push(Spare {
            orders,
            directory,
            process,
        });
        true
    }

    /// Take one that is to become a service.
    pub fn take(&mut self) -> Option<Spare> {
        self.ready.pop()
    }

    /// How many there are, with the one that is being forked.
    pub fn count(&self) -> usize {
        self.ready.len() + usize::from(self.is_forking())
    }

    /// Whether one is being forked.
    pub fn is_forking(&self) -> bool {
        self.forking.is_some()
    }

    /// Whether a process is one of them.
    pub fn owns(&self, pid: Pid) -> bool {
        self.ready.iter().any(|spare| spare.process.pid == pid)
    }

    /// Let go of those that have ended by themselves.
    pub fn reap(&mut self) {
        self.ready.retain(|spare| spare.process.reap().is_none());
    }

    /// End all of them; they are reaped with the orphans.
    pub fn end(&self) {
        for spare in &self.ready {
            spare.process.kill();
        }
    }
}
