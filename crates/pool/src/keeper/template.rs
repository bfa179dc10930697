//! A template: how to start it, and the process that runs.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::Pid;

use crate::confine::Confinement;
use crate::control::{self, Packet, Receiver};
use crate::error::{Error, Result};
use crate::keeper::output::Output;
use crate::keeper::process::{Ended, Process};
use crate::keeper::scratch::Directory;
use crate::keeper::source::{self, Poller, Source, Token};
use crate::keeper::spares::Spares;
use crate::limit::SPARES_FROM;
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
    /// Tells it apart from an earlier process of the same template.
    serial: u32,
    /// Orders and reports.
    socket: OwnedFd,
    process: Process,
    output: Output,
    /// Services that it was asked for and has not reported.
    pending: BTreeSet<Handle>,
    /// The directory of the service that it forks next; it has set that up already.
    directory: Directory,
    /// Services that it was asked for so far.
    forks: u64,
    spares: Spares,
    /// Why it cannot be a template, if it has reported that.
    unfit: Option<Vec<u8>>,
}

/// What a template that has ended leaves behind.
#[derive(Debug)]
pub struct Remains {
    /// Services that it was asked for and has not reported.
    pub pending: BTreeSet<Handle>,
    /// Why it could not be a template, if it has reported that.
    pub unfit: Option<Vec<u8>>,
    /// The last that it wrote.
    pub output: Vec<u8>,
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
            spares: Spares::default(),
            unfit: None,
        }))
    }
}

impl Running {
    /// Tells it apart from an earlier process of the same template.
    pub fn serial(&self) -> u32 {
        self.serial
    }

    /// Watch its reports, its exit and its output.
    pub fn watch(&self, poller: &Poller, of: impl Fn(Source) -> Token) -> Result<()> {
        source::watch(poller, &self.socket, of(Source::Report))
            .and_then(|()| source::watch(poller, &self.process, of(Source::TemplateExit)))
            .and_then(|()| source::watch(poller, &self.output, of(Source::TemplateOutput)))
    }

    /// Receive its next report.
    pub fn receive(&self, receiver: &mut Receiver) -> Result<Option<Packet>> {
        receiver.receive(&self.socket, RecvFlags::DONTWAIT)
    }

    /// Receive no more of it, and end its process, whose exit comes next.
    pub fn end_reports(&self, poller: &Poller) {
        poller.remove(&self.socket);
        self.process.kill();
    }

    /// Read what it has written.
    pub fn drain_output(&mut self, poller: &Poller) {
        if !self.output.drain() {
            poller.remove(&self.output);
        }
    }

    /// It has reported why it cannot be a template.
    pub fn note_unfit(&mut self, reason: Vec<u8>) {
        self.unfit = Some(reason);
    }

    /// It has reported the fork of a service, or why there is none.
    pub fn note_reported(&mut self, handle: Handle) {
        self.pending.remove(&handle);
    }

    /// Whether it was asked for a service and has not reported it.
    pub fn owes(&self, handle: Handle) -> bool {
        self.pending.contains(&handle)
    }

    /// Whether a caller waits for a service of it.
    pub fn owes_any(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether a child may exist that it has not reported.
    pub fn is_forking(&self) -> bool {
        self.owes_any() || self.spares.is_forking()
    }

    /// Whether a process is its own or a spare of it, hence no orphan.
    pub fn owns(&self, pid: Pid) -> bool {
        self.process.pid == pid || self.spares.owns(pid)
    }

    /// Its spares.
    pub fn spares(&mut self) -> &mut Spares {
        &mut self.spares
    }

    /// Whether it is asked for services often enough to have spares, and has fewer than `wanted`.
    pub fn lacks_spares(&self, wanted: u32) -> bool {
        self.forks >= SPARES_FROM && self.spares.count() < wanted as usize
    }

    /// Whether it can be asked for a spare now, of `wanted` at most.
    pub fn may_fork_spare(&self, wanted: u32) -> bool {
        !self.spares.is_forking() && self.spares.count() < wanted as usize
    }

    /// End its process alone.
    pub fn kill(&self) {
        self.process.kill();
    }

    /// End its process and its spares.
    pub fn end(&self) {
        self.spares.end();
        self.process.kill();
    }

    /// Reap its process, if it has ended.
    pub fn reap(&self) -> Option<Ended> {
        self.process.reap()
    }

    /// Watch it no more.
    pub fn unwatch(&self, poller: &Poller) {
        poller.remove(&self.socket);
        poller.remove(&self.process);
        poller.remove(&self.output);
    }

    /// After its end: end its spares, and read what it wrote last.
    pub fn into_remains(mut self, poller: &Poller) -> Remains {
        self.spares.end();
        self.unwatch(poller);
        self.output.drain();
        Remains {
            pending: self.pending,
            unfit: self.unfit,
            output: self.output.text(),
        }
    }

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
        self.spares.begin(orders, directory);
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
