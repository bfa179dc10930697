//! What the keeper knows of a template: how to start it, and the one that runs.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::confine::Confinement;
use crate::control;
use crate::error::{Error, Result};
use crate::keeper::output::Output;
use crate::keeper::process::Process;
use crate::keeper::scratch::Directory;
use crate::sys::{Program, spawn};
use crate::wire::{Handle, Launch, Order};

/// A template as described by the client.
#[derive(Debug)]
pub struct Template {
    launch: Launch,
    setup: Vec<u8>,
    /// Processes that are kept forked ahead.
    pub spares: u32,
    /// The process, while there is one.
    pub running: Option<Running>,
}

/// A template's process.
#[derive(Debug)]
pub struct Running {
    /// Told apart from an earlier process of the same template.
    pub serial: u32,
    /// Orders and reports.
    pub socket: OwnedFd,
    /// Its process.
    pub process: Process,
    /// What it writes.
    pub output: Output,
    /// Services that it was asked for and has not reported.
    pub pending: BTreeSet<Handle>,
    /// The directory of the service that it forks next; it has set that up already.
    pub directory: Directory,
    /// Services that it was asked for so far.
    pub forks: u64,
    /// Processes that it has forked ahead.
    pub spares: Vec<Spare>,
    /// The one that it was asked for and has not reported.
    pub pending_spare: Option<Spare>,
    /// Why it cannot be a template, if it has reported that.
    pub unfit: Option<Vec<u8>>,
}

impl Template {
    /// A template that is not running yet.
    pub const fn new(launch: Launch, setup: Vec<u8>, spares: u32) -> Self {
        Self {
            launch,
            setup,
            spares,
            running: None,
        }
    }

    /// Start its process and send it what to import.
    pub fn start(&mut self, serial: u32, directory: Directory) -> Result<&mut Running> {
        let (ours, theirs) = control::pair()?;
        let (output, write) = Output::new()?;
        let program = program_of(&self.launch);
        let pid =
            spawn(&program, &[theirs.as_fd()], None, write).map_err(|source| Error::System {
                what: "start of a template".into(),
                source,
            })?;
        let process = Process::adopt(pid)?;
        let order = Order::Setup {
            setup: self.setup.clone(),
            directory: directory.path().as_encoded_bytes().to_vec(),
        };
        control::send(&ours, &order.encode(), &[], SendFlags::DONTWAIT).map_err(|errno| {
            process.kill();
            Error::system("setup of a template")(errno)
        })?;
        let pending = BTreeSet::new();
        Ok(self.running.insert(Running {
            serial,
            socket: ours,
            process,
            output,
            pending,
            directory,
            forks: 0,
            spares: Vec::new(),
            pending_spare: None,
            unfit: None,
        }))
    }
}

/// A process that becomes a service by an order.
#[derive(Debug)]
pub struct Spare {
    /// Orders to it.
    pub orders: OwnedFd,
    /// Its own directory.
    pub directory: Directory,
    /// Its process; None until its template has reported it.
    pub process: Option<Process>,
}

impl Running {
    /// Ask for a spare, and say which directory the service after it gets.
    pub fn fork_spare(&mut self, next: Directory) -> Result<()> {
        let (orders, keeper_link) = control::pair()?;
        let order = Order::Spare {
            next: next.path().as_encoded_bytes().to_vec(),
        };
        control::send(
            &self.socket,
            &order.encode(),
            &[keeper_link.as_fd()],
            SendFlags::DONTWAIT,
        )
        .map_err(Error::system("the template takes no orders"))?;
        let directory = std::mem::replace(&mut self.directory, next);
        let _ = self.directory.make(); // as for a service
        self.pending_spare = Some(Spare {
            orders,
            directory,
            process: None,
        });
        Ok(())
    }

    /// Ask for a service, and say which directory the one after it gets.
    /// Returns the directory of this one.
    pub fn fork(
        &mut self,
        handle: Handle,
        next: Directory,
        descriptors: &[BorrowedFd<'_>],
        confinement: Option<Confinement>,
    ) -> std::result::Result<Directory, Errno> {
        let next_bytes = next.path().as_encoded_bytes().to_vec();
        let order = Order::Fork {
            handle,
            next: next_bytes,
            confinement,
        };
        // Never waits: a template that takes no orders is stopped or hung, and the keeper must
        // not hang with it.
        let flags = SendFlags::DONTWAIT;
        control::send(&self.socket, &order.encode(), descriptors, flags)?;
        self.pending.insert(handle);
        self.forks += 1;
        let directory = std::mem::replace(&mut self.directory, next);
        let _ = self.directory.make(); // while the template forks; a service without it has no TMPDIR
        Ok(directory)
    }
}

/// A launch as the system wants it.
pub fn program_of(launch: &Launch) -> Program {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;
    let text = |bytes: &Vec<u8>| OsString::from_vec(bytes.clone());
    Program {
        arguments: launch.arguments.iter().map(text).collect(),
        environment: launch
            .environment
            .iter()
            .map(|(name, value)| (text(name), text(value)))
            .collect(),
        directory: text(&launch.directory),
        confinement: None,
    }
}
