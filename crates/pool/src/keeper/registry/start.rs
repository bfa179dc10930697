//! How a process comes into the registry.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use rustix::io::Errno;
use rustix::process::Pid;

use super::Registry;
use crate::clock::now_ms;
use crate::confine::Confinement;
use crate::control;
use crate::error::{Error, Result};
use crate::keeper::DeadlineKind;
use crate::keeper::output::Output;
use crate::keeper::process::Process;
use crate::keeper::scratch::{Directory, Scratch};
use crate::keeper::service::Service;
use crate::keeper::source::{self, Poller, Source, token};
use crate::keeper::template::{Running, program_of};
use crate::keeper::watch::Watch;
use crate::limit::SERVICES_MAX;
use crate::readiness::Readiness;
use crate::sys::{Program, spawn};
use crate::wire::{self, Event, Handle, Launch, OWN_DIRECTORY};

const UNKNOWN_TEMPLATE: Error = Error::Malformed {
    what: "unknown template",
};
pub(super) const NO_DIRECTORY: fn(std::io::Error) -> Error = |source| Error::System {
    what: "cannot make a directory for the service".into(),
    source,
};

impl Registry {
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
        if let Some(service) = self.services.get_mut(&handle.slot) {
            service.directory = Some(directory);
            service.orders = Some(orders);
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
            let next = self.reserve()?;
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
        let template = self.templates.get(&id).ok_or(UNKNOWN_TEMPLATE)?;
        if template.running.is_none() {
            let serial = self.next_serial();
            self.start_template(poller, id, serial)?;
        }
        let template = self.templates.get_mut(&id).ok_or(UNKNOWN_TEMPLATE)?;
        template.running.as_mut().ok_or(UNKNOWN_TEMPLATE)
    }

    fn start_template(&mut self, poller: &Poller, id: u32, serial: u32) -> Result<()> {
        let directory = self.reserve()?;
        directory.make().map_err(NO_DIRECTORY)?;
        let template = self.templates.get_mut(&id).ok_or(UNKNOWN_TEMPLATE)?;
        let running = template.start(serial, directory)?;
        let of = |source| token(source, id, serial);
        let watched = running.watch(poller, of);
        if watched.is_err() {
            // Its end would not be seen; it is reaped with the orphans.
            running.unwatch(poller);
            running.kill();
            template.running = None;
        }
        watched
    }

    pub(super) fn start(
        &mut self,
        poller: &Poller,
        handle: Handle,
        launch: &Launch,
        deadlines: wire::Deadlines,
        sockets: &[OwnedFd],
    ) -> Result<()> {
        let write = self.enter(poller, handle, deadlines)?;
        let directory = self.reserve()?;
        directory.make().map_err(NO_DIRECTORY)?;
        let mut program = with_own_directory(program_of(launch), directory.path());
        let watch = Watch::new(&launch.readiness, Path::new(directory.path()))?;
        program.confinement = self.confine(handle)?;
        let socket = self.keep_answers(handle, sockets)?;
        let itself = launch.readiness == Readiness::Itself;
        if let Some(service) = self.services.get_mut(&handle.slot) {
            if let Watch::File(file) = &watch {
                source::watch(
                    poller,
                    file,
                    token(Source::File, handle.slot, service.serial),
                )?;
            }
            service.directory = Some(directory);
            service.watch = watch;
            service.caller_looks = launch.caller_looks;
            service.reports = if itself { None } else { Some(copy_of(socket)?) };
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
        if let Some(service) = self.services.get(&handle.slot)
            && launch.readiness == Readiness::Runs
        {
            service.report_ready(&[]);
        }
        Ok(())
    }

    /// Something changed in the directory of a program that is to say by a file that it is ready.
    pub(super) fn look_at_file(&mut self, poller: &Poller, slot: u32, serial: u32) {
        let service = self.services.get_mut(&slot);
        let Some(service) = service.filter(|service| service.serial == serial) else {
            return;
        };
        if let Some(text) = service.watch.look(|file| poller.remove(file)) {
            service.report_ready(&text);
        }
    }

    /// Register a service that is about to start; returns the pipe for its output.
    pub(super) fn enter(
        &mut self,
        poller: &Poller,
        handle: Handle,
        deadlines: wire::Deadlines,
    ) -> Result<OwnedFd> {
        if handle.slot >= SERVICES_MAX || self.services.contains_key(&handle.slot) {
            return Err(Error::Malformed {
                what: "slot out of range or taken",
            });
        }
        let (output, write) = Output::new()?;
        let serial = self.next_serial();
        source::watch(poller, &output, token(Source::Output, handle.slot, serial))?;
        let service = Service {
            handle,
            serial,
            process: None,
            output,
            followed_by: handle,
            directory: None,
            answers: None,
            orders: None,
            branching: BTreeSet::new(),
            reports: None,
            watch: Watch::Nothing,
            caller_looks: false,
            deadlines,
            group: None,
            measured: None,
            private_bytes: 0,
            ending: None,
            has_exit_hooks: false,
            exit_by: None,
        };
        self.services.insert(handle.slot, service);
        if deadlines.start_ms > 0 {
            self.deadlines
                .push(now_ms() + deadlines.start_ms, DeadlineKind::Start, handle);
        }
        Ok(write)
    }

    /// Keep the client's end of a service's socket, and return the service's own.
    pub(super) fn keep_answers<'a>(
        &mut self,
        handle: Handle,
        sockets: &'a [OwnedFd],
    ) -> Result<&'a OwnedFd> {
        let [theirs, ours, ..] = sockets else {
            return Err(Error::descriptors("receiving the service's sockets"));
        };
        let answers = copy_of(ours)?;
        if let Some(service) = self.services.get_mut(&handle.slot) {
            service.answers = Some(answers);
        }
        Ok(theirs)
    }

    /// A template, or a service that was to be copied, has reported the process of a new one.
    pub(super) fn forked(&mut self, poller: &Poller, handle: Handle, pid: i32) {
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
    pub(super) fn register(
        &mut self,
        poller: &Poller,
        handle: Handle,
        process: Process,
    ) -> Result<()> {
        let pid = process.pid;
        let Some(service) = self
            .services
            .get_mut(&handle.slot)
            .filter(|service| service.handle == handle)
        else {
            process.kill();
            return Ok(());
        };
        let exit = token(Source::Exit, handle.slot, service.serial);
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
        service.process = Some(process);
        if let Some(cause) = service.ending {
            service.end(cause); // asked for while it was being forked
        }
        if service.deadlines.idle_ms > 0 {
            self.deadlines.push(
                now_ms() + service.deadlines.idle_ms,
                DeadlineKind::Idle,
                handle,
            );
        }
        if service.deadlines.lifetime_ms > 0 {
            let due = now_ms() + service.deadlines.lifetime_ms;
            self.deadlines.push(due, DeadlineKind::Lifetime, handle);
        }
        let directory = service.directory.as_ref();
        let directory = directory.map_or_else(Vec::new, |own| own.path().as_bytes().to_vec());
        self.events.push((
            Event::Started {
                handle,
                pid: pid.as_raw_nonzero().get(),
                directory,
            },
            Some(pidfd),
        ));
        Ok(())
    }

    /// Another directory for a service.
    pub(super) fn reserve(&mut self) -> Result<Directory> {
        let scratch = match self.scratch.take() {
            Some(scratch) => scratch,
            None => Scratch::create(&self.scratch_base, &self.removal).map_err(NO_DIRECTORY)?,
        };
        Ok(self.scratch.insert(scratch).reserve())
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

/// A program that knows its own directory: by `TMPDIR`, and wherever its launch names it.
fn with_own_directory(mut program: Program, directory: &OsStr) -> Program {
    let named = |text: &mut OsString| {
        if text.as_bytes().contains(&OWN_DIRECTORY) {
            let parts = text.as_bytes().split(|&byte| byte == OWN_DIRECTORY);
            let parts: Vec<&[u8]> = parts.collect();
            *text = OsString::from_vec(parts.join(directory.as_bytes()));
        }
    };
    program.arguments.iter_mut().for_each(named);
    let values = program.environment.iter_mut().map(|(_, value)| value);
    values.for_each(named);
    named(&mut program.directory);
    let home = directory.to_owned();
    program.environment.push(("TMPDIR".into(), home));
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_finds_its_own_directory_where_it_asks_for_it() {
        let text = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        let program = Program {
            arguments: vec![text(b"serve"), text(b"--at=unix:\0/socket"), text(b"\0:\0")],
            environment: vec![(text(b"WHERE"), text(b"\0/port"))],
            directory: text(b"\0"),
            confinement: None,
        };
        let program = with_own_directory(program, OsStr::new("/tmp/7"));
        let arguments = ["serve", "--at=unix:/tmp/7/socket", "/tmp/7:/tmp/7"];
        assert_eq!(program.arguments, arguments);
        assert_eq!(program.environment[0].1, "/tmp/7/port");
        assert_eq!(program.environment[1].0, "TMPDIR");
        assert_eq!(program.directory, "/tmp/7");
    }
}
