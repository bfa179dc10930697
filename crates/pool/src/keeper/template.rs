//! A template: how to start it, and the process that runs.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::Pid;

use super::output::Output;
use super::process::{Ended, Process};
use super::program::program_of;
use super::report_of;
use super::scratch::Directory;
use super::source::{Poller, Source, token, watch};
use super::spares::{Spare, Spares};
use crate::confine::Confinement;
use crate::control::{self, Receiver};
use crate::error::{Error, Result};
use crate::limit::SPARES_FROM;
use crate::sys::spawn;
use crate::wire::{Handle, Launch, Order, Report};

/// A template as described by the client.
#[derive(Debug)]
pub struct Template {
    launch: Launch,
    setup: Vec<u8>,
    /// Processes that are kept forked ahead.
    spares: u32,
    /// The process, while there is one.
    running: Option<Running>,
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

    /// Its process, to look at.
    pub fn running(&self) -> Option<&Running> {
        self.running.as_ref()
    }

    /// Its process, while there is one.
    pub fn running_mut(&mut self) -> Option<&mut Running> {
        self.running.as_mut()
    }

    /// Its process, where it has this serial.
    pub fn running_of(&mut self, serial: u32) -> Option<&mut Running> {
        self.running_mut()
            .filter(|running| running.serial == serial)
    }

    /// Take its process out.
    pub fn take_running(&mut self) -> Option<Running> {
        self.running.take()
    }

    /// Take its process out, if it has this serial and has ended.
    pub fn take_ended(&mut self, serial: u32) -> Option<(Running, Ended)> {
        let ended = self.running_of(serial)?.process.reap()?;
        Some((self.running.take()?, ended))
    }

    /// The process that is to fork a spare when the burst of starts is over, by its serial; None where none is wanted.
    pub fn lacks_spares(&self) -> Option<u32> {
        let running = self.running.as_ref()?;
        let lacks = running.forks >= SPARES_FROM && running.spares.count() < self.spares as usize;
        lacks.then_some(running.serial)
    }

    /// Have the process of a serial fork a spare, and say which directory the service after it gets.
    /// False where that has to wait, because a caller waits for a service of it.
    pub fn fork_spare(&mut self, serial: u64, next: Directory) -> bool {
        let wanted = self.spares as usize;
        let running = self.running.as_mut();
        let running = running.filter(|running| u64::from(running.serial) == serial);
        let may_fork = |it: &&mut Running| !it.spares.is_forking() && it.spares.count() < wanted;
        let Some(running) = running.filter(may_fork) else {
            return true;
        };
        if running.owes_any() {
            return false;
        }
        let _ = running.fork_spare(next); // a template that takes no orders has none to spare
        true
    }

    /// Start its process, watch it, and send it what to import.
    pub fn start(
        &mut self,
        poller: &Poller,
        id: u32,
        serial: u32,
        directory: Directory,
    ) -> Result<()> {
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
        let running = Running {
            serial,
            socket: ours,
            process,
            output,
            pending: BTreeSet::new(),
            directory,
            forks: 0,
            spares: Spares::default(),
            unfit: None,
        };
        if let Err(error) = running.watch(poller, id) {
            // Its end would not be seen; it is reaped with the orphans.
            running.unwatch(poller);
            running.kill();
            return Err(error);
        }
        self.running = Some(running);
        Ok(())
    }
}

impl Running {
    /// Tells it apart from an earlier process of the same template.
    pub fn serial(&self) -> u32 {
        self.serial
    }

    /// Watch its reports, its exit and its output.
    fn watch(&self, poller: &Poller, id: u32) -> Result<()> {
        let of = |source| token(source, id, self.serial);
        watch(poller, &self.socket, of(Source::Report))
            .and_then(|()| watch(poller, &self.process, of(Source::TemplateExit)))
            .and_then(|()| watch(poller, &self.output, of(Source::TemplateOutput)))
    }

    /// Its next report. None where there is none, and once it has closed its socket; then it is on its way out, and its
    /// exit comes next.
    pub fn next_report(&mut self, poller: &Poller, receiver: &mut Receiver) -> Option<Report> {
        let report = match receiver.receive(&self.socket, RecvFlags::DONTWAIT) {
            Ok(Some(packet)) if !packet.bytes.is_empty() => report_of(&packet.bytes),
            Ok(None) | Err(Error::Interrupted) => return None,
            Ok(Some(_)) | Err(_) => {
                poller.remove(&self.socket);
                self.process.kill();
                return None;
            }
        };
        match &report {
            Report::Unfit { reason } => self.unfit = Some(reason.clone()),
            Report::Forked { handle, .. } | Report::NotForked { handle, .. } => {
                self.pending.remove(handle);
            }
            Report::Ready | Report::HasExitHooks | Report::SpareForked { .. } => {}
        }
        Some(report)
    }

    /// Read what it has written.
    pub fn drain_output(&mut self, poller: &Poller) {
        if !self.output.drain() {
            poller.remove(&self.output);
        }
    }

    /// Whether it was asked for a service and has not reported it.
    pub fn owes(&self, handle: Handle) -> bool {
        self.pending.contains(&handle)
    }

    /// Whether a caller waits for a service of it.
    fn owes_any(&self) -> bool {
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

    /// Take a spare that is to become a service.
    pub fn take_spare(&mut self) -> Option<Spare> {
        self.spares.take()
    }

    /// It has reported a spare; false if none was asked for, or if it has ended already.
    pub fn spare_forked(&mut self, pid: i32) -> bool {
        self.spares.forked(pid)
    }

    /// Let go of spares that have ended by themselves.
    pub fn reap_spares(&mut self) {
        self.spares.reap();
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

    /// Watch it no more.
    fn unwatch(&self, poller: &Poller) {
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
    fn fork_spare(&mut self, next: Directory) -> Result<()> {
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
