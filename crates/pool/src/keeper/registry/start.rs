//! How a process comes into the registry: a fork of a template, a spare, a copy of a lent service, a program.
//!
//! All begin by `enter` and end by `register`. In between, a program is started and a spare is served at once; a template,
//! or a service that is to be copied, is sent an order and reports the new process later. The service that is to be
//! copied forks in a call of its holder; from there on the copy is a service like any other: a child of the keeper,
//! reported and watched alike.
//!
//! **Spares** are processes that a template has forked ahead; a start takes one instead of a fork. They are forked when
//! no caller waits, some time after a start, and only by templates that are asked for more than one service. A spare
//! waits for its keeper's order; when the keeper ends, or gives it up, it ends.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::process::Pid;

use super::Registry;
use crate::clock::now_ms;
use crate::confine::Confinement;
use crate::control;
use crate::death::Cause;
use crate::error::{Error, Result};
use crate::keeper::copies::ORIGINAL_ENDED;
use crate::keeper::deadline::DeadlineKind;
use crate::keeper::output::Output;
use crate::keeper::process::Process;
use crate::keeper::program::{program_of, with_own_directory};
use crate::keeper::scratch::Directory;
use crate::keeper::service::Service;
use crate::keeper::source::{self, Poller, Source, token};
use crate::keeper::template::Running;
use crate::keeper::watch::Watch;
use crate::limit::SPARE_DELAY_MS;
use crate::readiness::Readiness;
use crate::sys::spawn;
use crate::wire::{self, Event, Handle, Launch, Order, Report};

impl Registry {
    /// Start a service from a template.
    pub(super) fn fork(
        &mut self,
        poller: &Poller,
        handle: Handle,
        id: u32,
        deadlines: wire::Deadlines,
        sockets: &[OwnedFd],
    ) -> Result<()> {
        let write = self.enter(poller, handle, deadlines)?;
        let socket = self.keep_answers(handle, sockets)?;
        let confinement = self.confine(handle)?;
        let spare = self.serve_spare(
            poller,
            handle,
            id,
            &[socket.as_fd(), write.as_fd()],
            confinement.as_ref(),
        );
        if let Some(served) = spare {
            self.plan_spare(id);
            return served;
        }
        let (orders, keeper_link) = control::pair()?;
        let descriptors = [socket.as_fd(), write.as_fd(), keeper_link.as_fd()];
        let directory = self.order(poller, handle, id, &descriptors, confinement.as_ref())?;
        if let Some(service) = self.services.get_mut(handle.slot) {
            service.assigned(directory, orders);
        }
        self.plan_spare(id);
        Ok(())
    }

    /// Have a template fork a service; one that does not run, or is on its way out, is started
    /// first. Returns the service's directory.
    fn order(
        &mut self,
        poller: &Poller,
        handle: Handle,
        id: u32,
        descriptors: &[BorrowedFd<'_>],
        confinement: Option<&Confinement>,
    ) -> Result<Directory> {
        let mut lost = false;
        loop {
            let next = self.directories.reserve()?;
            let running = self.running(poller, id)?;
            match running.fork(handle, next, descriptors, confinement.cloned()) {
                Err(Errno::PIPE | Errno::CONNRESET) if !lost => {
                    self.template_lost(poller, id);
                    lost = true;
                }
                done => return done.map_err(Error::system("the template takes no orders")),
            }
        }
    }

    /// A template's process, started where there is none.
    fn running(&mut self, poller: &Poller, id: u32) -> Result<&mut Running> {
        if self.templates.get(id)?.running().is_none() {
            let serial = self.next_serial();
            let directory = self.directories.make()?;
            let template = self.templates.get(id)?;
            template.start(poller, id, serial, directory)?;
        }
        let ended = Error::Malformed {
            what: "the template does not run",
        };
        self.templates.running(id).ok_or(ended)
    }

    /// Make a service of a spare; None where there is none.
    fn serve_spare(
        &mut self,
        poller: &Poller,
        handle: Handle,
        id: u32,
        descriptors: &[BorrowedFd<'_>],
        confinement: Option<&Confinement>,
    ) -> Option<Result<()>> {
        loop {
            let spare = self.templates.running(id)?.take_spare()?;
            let confinement = confinement.cloned();
            let order = Order::Serve {
                handle,
                confinement,
            };
            let order = order.encode();
            if control::send(&spare.orders, &order, descriptors, SendFlags::DONTWAIT).is_err() {
                spare.process.kill(); // it has ended; it is reaped with the orphans
                continue;
            }
            if let Some(service) = self.services.get_mut(handle.slot) {
                service.assigned(spare.directory, spare.orders);
            }
            return Some(self.register(poller, handle, spare.process));
        }
    }

    /// After a start: have a spare forked soon, when the burst of starts is over.
    fn plan_spare(&mut self, id: u32) {
        let template = self.templates.get(id).ok();
        if let Some(serial) = template.and_then(|template| template.lacks_spares()) {
            let process = Handle {
                slot: id,
                generation: u64::from(serial),
            };
            let due = now_ms() + SPARE_DELAY_MS;
            self.deadlines.push(due, DeadlineKind::Spare, process);
        }
    }

    /// Have a process of a template fork a spare that was planned.
    pub(super) fn fork_spare(&mut self, process: Handle) {
        let Handle {
            slot: id,
            generation,
        } = process;
        if let Ok(next) = self.directories.reserve()
            && let Ok(template) = self.templates.get(id)
            && !template.fork_spare(generation, next)
        {
            self.plan_spare(id);
        }
    }

    /// Start a copy of a service.
    pub(super) fn branch(
        &mut self,
        poller: &Poller,
        handle: Handle,
        parent: Handle,
        deadlines: wire::Deadlines,
        sockets: &[OwnedFd],
    ) -> Result<()> {
        let ordered = self.order_copy(poller, handle, parent, deadlines, sockets);
        if ordered.is_err()
            && let Some(original) = self.services.get_mut(parent.slot)
        {
            original.copied(poller, handle);
            original.skip_copy(handle);
        }
        ordered
    }

    fn order_copy(
        &mut self,
        poller: &Poller,
        handle: Handle,
        parent: Handle,
        deadlines: wire::Deadlines,
        sockets: &[OwnedFd],
    ) -> Result<()> {
        let write = self.enter(poller, handle, deadlines)?;
        let socket = self.keep_answers(handle, sockets)?;
        let directory = self.directories.make()?;
        let (ours, theirs) = control::pair()?;
        let confinement = self.confine(handle)?;
        let original = self.services.get_mut(parent.slot);
        let original = original.ok_or(ORIGINAL_ENDED)?;
        original.expect_copy(poller, handle)?;
        let order = Order::Branch {
            handle,
            directory: directory.path().as_encoded_bytes().to_vec(),
            confinement,
        };
        original.order_copy(&order, &[socket.as_fd(), write.as_fd(), theirs.as_fd()])?;
        if let Some(service) = self.services.get_mut(handle.slot) {
            service.assigned(directory, ours);
        }
        Ok(())
    }

    /// Start a program.
    pub(super) fn start(
        &mut self,
        poller: &Poller,
        handle: Handle,
        launch: &Launch,
        deadlines: wire::Deadlines,
        sockets: &[OwnedFd],
    ) -> Result<()> {
        let write = self.enter(poller, handle, deadlines)?;
        let directory = self.directories.make()?;
        let mut program = with_own_directory(program_of(launch), directory.path());
        let watch = Watch::new(&launch.readiness, Path::new(directory.path()))?;
        program.confinement = self.confine(handle)?;
        let socket = self.keep_answers(handle, sockets)?;
        let itself = launch.readiness == Readiness::Itself;
        let reports = if itself { None } else { Some(copy_of(socket)?) };
        if let Some(service) = self.services.get_mut(handle.slot) {
            service.prepared(poller, directory, watch, reports, launch.caller_looks)?;
        }
        let own = sockets.get(2).or(itself.then_some(socket));
        let (inherited, stdio) = match own {
            Some(own) if launch.stdio => (None, Some(copy_of(own)?)),
            own => (own, None),
        };
        let inherited: Vec<_> = inherited.iter().map(AsFd::as_fd).collect();
        let pid = spawn(&program, &inherited, stdio, write).map_err(|source| Error::System {
            what: "cannot start the program".into(),
            source,
        })?;
        self.started(poller, handle, pid)?;
        if let Some(service) = self.services.get(handle.slot)
            && launch.readiness == Readiness::Runs
        {
            service.report_ready(&[]);
        }
        Ok(())
    }

    /// Add a service that is about to start; returns the pipe for its output.
    fn enter(
        &mut self,
        poller: &Poller,
        handle: Handle,
        deadlines: wire::Deadlines,
    ) -> Result<OwnedFd> {
        if !self.services.has_room(handle.slot) {
            return Err(Error::Malformed {
                what: "slot out of range or taken",
            });
        }
        let (output, write) = Output::new()?;
        let serial = self.next_serial();
        source::watch(poller, &output, token(Source::Output, handle.slot, serial))?;
        let service = Service::new(handle, serial, deadlines, output);
        self.services.insert(service);
        if deadlines.start_ms > 0 {
            self.deadlines
                .push(now_ms() + deadlines.start_ms, DeadlineKind::Start, handle);
        }
        Ok(write)
    }

    /// Keep the client's end of a service's socket, and return the service's own.
    fn keep_answers<'a>(&mut self, handle: Handle, sockets: &'a [OwnedFd]) -> Result<&'a OwnedFd> {
        let [theirs, ours, ..] = sockets else {
            return Err(Error::descriptors("receiving the service's sockets"));
        };
        let answers = copy_of(ours)?;
        if let Some(service) = self.services.get_mut(handle.slot) {
            service.keep_answers(answers);
        }
        Ok(theirs)
    }

    /// How a service is to confine itself; None, at no cost, where nothing limits it.
    fn confine(&mut self, handle: Handle) -> Result<Option<Confinement>> {
        let Some(service) = self.services.get_mut(handle.slot) else {
            return Ok(None);
        };
        self.memory.include(service.deadlines());
        let limits = &service.deadlines().limits;
        if limits.is_none() {
            return Ok(None);
        }
        let (confinement, group) = self.limits.confine(limits)?;
        service.confined(group);
        Ok(Some(confinement))
    }

    /// Take what a template reports.
    pub(super) fn take_reports(&mut self, poller: &Poller, id: u32, serial: u32) {
        while let Some(running) = self.templates.running_of(id, serial)
            && let Some(report) = running.next_report(poller, &mut self.receiver)
        {
            match report {
                Report::Forked { handle, pid } => self.forked(poller, handle, pid),
                Report::NotForked { handle, errno } => {
                    self.services.remove(handle.slot);
                    let text = not_forked("the template", errno).into_bytes();
                    self.events
                        .push_not_started(handle.slot, Cause::NotStarted, text);
                }
                Report::SpareForked { pid } => {
                    let running = self.templates.running(id);
                    if running.is_some_and(|running| running.spare_forked(pid)) {
                        self.plan_spare(id);
                    }
                }
                // The template has noted why it is unfit; the last one is a service's report.
                Report::Ready | Report::Unfit { .. } | Report::HasExitHooks => {}
            }
        }
    }

    /// Take what a service reports of copies of itself, and of itself.
    pub(super) fn take_copies(&mut self, poller: &Poller, slot: u32, serial: u32) {
        while let Some(service) = self.services.of_serial(slot, serial)
            && let Some(report) = service.next_report(poller, &mut self.receiver)
        {
            match report {
                Report::Forked { handle, pid } => {
                    service.copied(poller, handle);
                    self.forked(poller, handle, pid);
                }
                Report::NotForked { handle, errno } => {
                    service.copied(poller, handle);
                    self.not_copied(handle, &not_forked("the service", errno));
                }
                Report::HasExitHooks => service.note_exit_hooks(),
                Report::Ready | Report::Unfit { .. } | Report::SpareForked { .. } => {} // a template's reports
            }
        }
    }

    /// A copy will not come: report why.
    pub(super) fn not_copied(&mut self, copy: Handle, why: &str) {
        if self.services.remove(copy.slot).is_some() {
            let text = why.as_bytes().to_vec();
            self.events
                .push_not_started(copy.slot, Cause::NotStarted, text);
        }
    }

    /// A template, or a service that was to be copied, has reported the process of a new one.
    fn forked(&mut self, poller: &Poller, handle: Handle, pid: i32) {
        let done = Pid::from_raw(pid)
            .ok_or(Error::Malformed {
                what: "a process id of 0",
            })
            .and_then(|pid| self.started(poller, handle, pid));
        self.report_failure(handle, done);
    }

    /// A service's process exists.
    fn started(&mut self, poller: &Poller, handle: Handle, pid: Pid) -> Result<()> {
        let process = Process::adopt(pid)?;
        self.register(poller, handle, process)
    }

    /// Watch a service's process, and report it to the client.
    fn register(&mut self, poller: &Poller, handle: Handle, process: Process) -> Result<()> {
        let pid = process.pid;
        let Some(service) = self.services.since_mut(handle) else {
            process.kill();
            return Ok(());
        };
        let exit = token(Source::Exit, handle.slot, service.serial());
        let watched = source::watch(poller, &process, exit);
        let pidfd = watched.and_then(|()| {
            let copy = process.as_fd().try_clone_to_owned();
            copy.map_err(|source| Error::System {
                what: "dup of a pidfd".into(),
                source,
            })
        });
        let pidfd = match pidfd {
            Ok(pidfd) => pidfd,
            Err(error) => {
                // It is reported as not started, so it must not live on; it is reaped with the orphans.
                poller.remove(&process);
                process.kill();
                return Err(error);
            }
        };
        service.started(process);
        let limits = service.deadlines();
        for (kind, after_ms) in [
            (DeadlineKind::Idle, limits.idle_ms),
            (DeadlineKind::Lifetime, limits.lifetime_ms),
        ] {
            if after_ms > 0 {
                self.deadlines.push(now_ms() + after_ms, kind, handle);
            }
        }
        let started = Event::Started {
            handle,
            pid: pid.as_raw_nonzero().get(),
            directory: service.directory().to_vec(),
        };
        self.events.push_with(started, pidfd);
        Ok(())
    }

    fn next_serial(&mut self) -> u32 {
        self.serial = (self.serial + 1) & source::SERIAL_MASK;
        self.serial
    }
}

fn copy_of(socket: &OwnedFd) -> Result<OwnedFd> {
    socket.try_clone().map_err(|source| Error::System {
        what: "dup of a socket".into(),
        source,
    })
}

/// Why a process could not make another, and what to do.
fn not_forked(who: &str, errno: i32) -> String {
    let reason = std::io::Error::from_raw_os_error(errno);
    let next = match Errno::from_raw_os_error(errno) {
        Errno::MFILE => "; raise ulimit -n, or open fewer files there",
        Errno::AGAIN => {
            "; raise ulimit -u, or processes of its limits (a copy is first a process of its original), \
             or keep fewer services at once"
        }
        _ => "",
    };
    format!("{who} could not fork: {reason}{next}")
}
