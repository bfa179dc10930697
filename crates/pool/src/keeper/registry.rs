//! Every process of the keeper, by slot and by template.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use rustix::net::RecvFlags;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::output::Output;
use super::process::Process;
use super::scratch::{Directory, Scratch};
use super::service::Service;
use super::template::{Template, program_of};
use super::{Deadlines, Poller, Token, deadline, poller, report_of};
use crate::channel::Receiver;
use crate::clock::now_ms;
use crate::death::{Cause, Death};
use crate::error::{Error, Result};
use crate::limit::{ORPHAN_SCAN_MS, SERVICES_MAX, TEMPLATES_MAX};
use crate::sys::{Page, spawn};
use crate::wire::{self, Event, Handle, Launch, Report, Request};
use crate::word::{Stamp, State};

const UNKNOWN_TEMPLATE: Error = Error::Malformed {
    what: "unknown template",
};
const NO_DIRECTORY: fn(std::io::Error) -> Error = |source| Error::System {
    what: "cannot make a directory for the service",
    source,
};

type Events = Vec<(Event, Option<OwnedFd>)>;

pub struct Registry {
    page: Page,
    scratch_base: PathBuf,
    scratch: Option<Scratch>,
    services: BTreeMap<u32, Service>,
    templates: BTreeMap<u32, Template>,
    deadlines: Deadlines,
    serial: u32,
    events: Events,
    scanned_ms: u64,
    receiver: Receiver,
}

impl Registry {
    pub fn new(page: Page, scratch_base: PathBuf) -> Self {
        Self {
            page,
            scratch_base,
            scratch: None,
            services: BTreeMap::new(),
            templates: BTreeMap::new(),
            deadlines: Deadlines::default(),
            serial: 0,
            events: Vec::new(),
            scanned_ms: 0,
            receiver: Receiver::default(),
        }
    }

    /// What the client is to be told.
    pub fn take_events(&mut self) -> Events {
        std::mem::take(&mut self.events)
    }

    /// Milliseconds until something must be looked at; none while there is no service.
    pub fn wait_ms(&self, now: u64) -> Option<u64> {
        if self.services.is_empty() {
            return None;
        }
        let scan = (self.scanned_ms + ORPHAN_SCAN_MS).saturating_sub(now);
        Some(
            self.deadlines
                .wait_ms(now)
                .map_or(scan, |wait| wait.min(scan)),
        )
    }

    pub fn has_processes(&self) -> bool {
        !self.services.is_empty()
            || self
                .templates
                .values()
                .any(|template| template.running.is_some())
            || !children().is_empty()
    }

    /// Do what the client asks. What cannot be done is told as the death of the service that it was for.
    pub fn request(&mut self, poller: &Poller, request: Request, descriptors: &[OwnedFd]) {
        match request {
            Request::Template {
                template,
                launch,
                setup,
            } => {
                if self.templates.len() < TEMPLATES_MAX {
                    self.templates
                        .entry(template)
                        .or_insert_with(|| Template::new(launch, setup));
                }
            }
            Request::Fork {
                handle,
                template,
                deadlines,
            } => {
                let done = self.fork(poller, handle, template, deadlines, descriptors);
                self.tell_failure(handle, done);
            }
            Request::Start {
                handle,
                launch,
                deadlines,
            } => {
                let done = self.start(poller, handle, &launch, deadlines, descriptors);
                self.tell_failure(handle, done);
            }
            Request::Reset {
                handle,
                deadline_ms,
            } => {
                self.deadlines
                    .push(now_ms() + deadline_ms, deadline::Kind::Reset, handle);
            }
            Request::Kill { handle, cause } => {
                if let Some(service) = self.services.get_mut(&handle.slot) {
                    service.end(cause);
                }
            }
            Request::Output { handle } => {
                let text = self
                    .services
                    .get_mut(&handle.slot)
                    .map_or_else(Vec::new, |service| {
                        service.output.drain();
                        service.output.text()
                    });
                self.events.push((Event::Output { handle, text }, None));
            }
            Request::Shutdown => {} // the keeper's own affair
        }
    }

    fn tell_failure(&mut self, handle: Handle, done: Result<()>) {
        if let Err(error) = done {
            self.services.remove(&handle.slot);
            self.tell_not_started(
                handle.slot,
                Cause::NotStarted,
                error.to_string().into_bytes(),
            );
        }
    }

    fn tell_not_started(&mut self, slot: u32, cause: Cause, text: Vec<u8>) {
        self.events.push((
            Event::Died {
                slot,
                death: Death {
                    cause,
                    pid: 0,
                    code: 0,
                    text,
                },
            },
            None,
        ));
    }

    fn fork(
        &mut self,
        poller: &Poller,
        handle: Handle,
        id: u32,
        deadlines: wire::Deadlines,
        sockets: &[OwnedFd],
    ) -> Result<()> {
        let write = self.enter(poller, handle, deadlines)?;
        let serial = self.next_serial();
        let next = self.reserve()?;
        let template = self.templates.get(&id).ok_or(UNKNOWN_TEMPLATE)?;
        if template.running.is_none() {
            self.start_template(poller, id, serial)?;
        }
        let running = self
            .templates
            .get_mut(&id)
            .and_then(|template| template.running.as_mut());
        let running = running.ok_or(UNKNOWN_TEMPLATE)?;
        let mut descriptors: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
        descriptors.push(write.as_fd());
        let directory = running
            .fork(handle, next, &descriptors)
            .map_err(Error::system("the template takes no orders"))?;
        if let Some(service) = self.services.get_mut(&handle.slot) {
            service.directory = Some(directory);
        }
        Ok(())
    }

    fn start_template(&mut self, poller: &Poller, id: u32, serial: u32) -> Result<()> {
        let directory = self.reserve()?;
        directory.make().map_err(NO_DIRECTORY)?;
        let template = self.templates.get_mut(&id).ok_or(UNKNOWN_TEMPLATE)?;
        let running = template.start(serial, directory)?;
        poller.add(&running.socket, Token::Report(id, serial))?;
        poller.add(&running.process, Token::TemplateExit(id, serial))?;
        poller.add(&running.output, Token::TemplateOutput(id, serial))
    }

    fn start(
        &mut self,
        poller: &Poller,
        handle: Handle,
        launch: &Launch,
        deadlines: wire::Deadlines,
        sockets: &[OwnedFd],
    ) -> Result<()> {
        let write = self.enter(poller, handle, deadlines)?;
        let mut program = program_of(launch);
        let directory = self.reserve()?;
        directory.make().map_err(NO_DIRECTORY)?;
        program
            .environment
            .push(("TMPDIR".into(), directory.path().to_owned()));
        if let Some(service) = self.services.get_mut(&handle.slot) {
            service.directory = Some(directory);
        }
        let inherited: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
        let pid = spawn(&program, &inherited, write).map_err(|source| Error::System {
            what: "cannot start the program",
            source,
        })?;
        self.started(poller, handle, pid)
    }

    /// Register a service that is about to start; returns the pipe for its output.
    fn enter(
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
        poller.add(&output, Token::Output(handle.slot, serial))?;
        let service = Service {
            handle,
            serial,
            process: None,
            output,
            directory: None,
            deadlines,
            ending: None,
        };
        self.services.insert(handle.slot, service);
        if deadlines.start_ms > 0 {
            self.deadlines
                .push(now_ms() + deadlines.start_ms, deadline::Kind::Start, handle);
        }
        Ok(write)
    }

    /// A service's process exists.
    fn started(&mut self, poller: &Poller, handle: Handle, pid: Pid) -> Result<()> {
        let process = Process::adopt(pid)?;
        let Some(service) = self
            .services
            .get_mut(&handle.slot)
            .filter(|service| service.handle == handle)
        else {
            process.kill();
            return Ok(());
        };
        poller.add(&process, Token::Exit(handle.slot, service.serial))?;
        let pidfd = process.as_fd().try_clone_to_owned();
        service.process = Some(process);
        if let Some(cause) = service.ending {
            service.end(cause); // asked for while it was being forked
        }
        if service.deadlines.idle_ms > 0 {
            self.deadlines.push(
                now_ms() + service.deadlines.idle_ms,
                deadline::Kind::Idle,
                handle,
            );
        }
        let pidfd = pidfd.map_err(|source| Error::System {
            what: "dup of a pidfd",
            source,
        })?;
        self.events.push((
            Event::Started {
                handle,
                pid: pid.as_raw_nonzero().get(),
            },
            Some(pidfd),
        ));
        Ok(())
    }

    /// Another directory for a service.
    fn reserve(&mut self) -> Result<Directory> {
        let scratch = match self.scratch.take() {
            Some(scratch) => scratch,
            None => Scratch::create(&self.scratch_base).map_err(NO_DIRECTORY)?,
        };
        Ok(self.scratch.insert(scratch).reserve())
    }

    fn next_serial(&mut self) -> u32 {
        self.serial = (self.serial + 1) & poller::SERIAL_MASK;
        self.serial
    }

    /// React to a descriptor.
    pub fn handle(&mut self, poller: &Poller, token: Token) {
        match token {
            Token::Control | Token::Client => {}
            Token::Report(id, serial) => self.take_reports(poller, id, serial),
            Token::TemplateExit(id, serial) => self.template_ended(poller, id, serial),
            Token::TemplateOutput(id, serial) => {
                let running = self
                    .templates
                    .get_mut(&id)
                    .and_then(|template| template.running.as_mut());
                if let Some(running) = running.filter(|running| running.serial == serial)
                    && !running.output.drain()
                {
                    poller.remove(&running.output);
                }
            }
            Token::Exit(slot, serial) => self.service_ended(poller, slot, serial),
            Token::Output(slot, serial) => {
                let service = self
                    .services
                    .get_mut(&slot)
                    .filter(|service| service.serial == serial);
                if let Some(service) = service
                    && !service.output.drain()
                {
                    poller.remove(&service.output);
                }
            }
        }
    }

    fn take_reports(&mut self, poller: &Poller, id: u32, serial: u32) {
        loop {
            let template = self
                .templates
                .get_mut(&id)
                .and_then(|template| template.running.as_mut());
            let Some(running) = template.filter(|running| running.serial == serial) else {
                return;
            };
            let packet = match self.receiver.receive(&running.socket, RecvFlags::DONTWAIT) {
                Ok(Some(packet)) if !packet.bytes.is_empty() => packet,
                Ok(None) | Err(Error::Interrupted) => return,
                Ok(Some(_)) | Err(_) => {
                    // Its end closed: it is on its way out, and its exit comes next.
                    poller.remove(&running.socket);
                    running.process.kill();
                    return;
                }
            };
            match report_of(&packet.bytes) {
                Report::Ready => {}
                Report::Unfit { reason } => running.unfit = Some(reason),
                Report::Forked { handle, pid } => {
                    running.pending.remove(&handle);
                    let done = Pid::from_raw(pid)
                        .ok_or(Error::Malformed {
                            what: "a process id of 0",
                        })
                        .and_then(|pid| self.started(poller, handle, pid));
                    self.tell_failure(handle, done);
                }
                Report::NotForked { handle, errno } => {
                    running.pending.remove(&handle);
                    let errno = std::io::Error::from_raw_os_error(errno);
                    self.services.remove(&handle.slot);
                    let text = format!("the template could not fork: {errno}").into_bytes();
                    self.tell_not_started(handle.slot, Cause::NotStarted, text);
                }
            }
        }
    }

    fn template_ended(&mut self, poller: &Poller, id: u32, serial: u32) {
        self.take_reports(poller, id, serial); // what it forked before it ended
        let Some(template) = self.templates.get_mut(&id) else {
            return;
        };
        let Some(running) = template.running.take_if(|running| running.serial == serial) else {
            return;
        };
        let Some((how, code)) = running.process.reap() else {
            template.running = Some(running);
            return;
        };
        let mut output = running.output;
        poller.remove(&running.socket);
        poller.remove(&running.process);
        poller.remove(&output);
        output.drain();
        let (cause, text) = match running.unfit {
            Some(reason) => (Cause::TemplateUnfit, reason),
            None => (
                Cause::TemplateDied,
                end_of_template(how, code, &output.text()),
            ),
        };
        for handle in running.pending {
            if let Some(service) = self.services.remove(&handle.slot) {
                let (cause, text) = match service.ending {
                    Some(cause) => (cause, output.text()),
                    None => (cause, text.clone()),
                };
                self.tell_not_started(handle.slot, cause, text);
            }
        }
    }

    fn service_ended(&mut self, poller: &Poller, slot: u32, serial: u32) {
        let Some(service) = self
            .services
            .get_mut(&slot)
            .filter(|service| service.serial == serial)
        else {
            return;
        };
        let Some(status) = service.process.as_ref().and_then(Process::reap) else {
            return;
        };
        let death = service.death(status);
        poller.remove(&service.output);
        if let Some(process) = &service.process {
            poller.remove(process);
        }
        self.events.push((Event::Died { slot, death }, None));
        self.services.remove(&slot);
    }

    /// End what is past its deadline.
    pub fn expire(&mut self, now: u64) {
        while let Some((kind, handle)) = self.deadlines.pop_due(now) {
            let Some(service) = self.services.get_mut(&handle.slot) else {
                continue;
            };
            let cell = self.page.cell(handle.slot);
            let seen = Stamp::load(&cell.word);
            let (state, cause) = match kind {
                deadline::Kind::Start => (State::Starting, Cause::StartDeadline),
                deadline::Kind::Reset => (State::Resetting, Cause::ResetDeadline),
                deadline::Kind::Idle => {
                    if service.handle != handle {
                        continue;
                    }
                    let since = cell.since_ms.load(std::sync::atomic::Ordering::Acquire);
                    let due = if seen.state == State::Idle {
                        since.min(now)
                    } else {
                        now
                    } + service.deadlines.idle_ms;
                    if due > now {
                        self.deadlines.push(due, kind, handle);
                        continue;
                    }
                    (State::Idle, Cause::IdleTimeout)
                }
            };
            let fits = kind == deadline::Kind::Idle || seen.generation == handle.generation;
            if fits
                && seen.state == state
                && seen.swap(&cell.word, Stamp::new(State::Retired, seen.generation))
            {
                service.end(cause);
                if service.process.is_none() {
                    self.end_template_of(handle);
                }
            }
        }
    }

    /// End the template that owes a service: it is stopped, or hangs in its imports, and would owe it for ever.
    fn end_template_of(&self, handle: Handle) {
        let running = self
            .templates
            .values()
            .filter_map(|template| template.running.as_ref());
        for running in running.filter(|running| running.pending.contains(&handle)) {
            running.process.kill();
        }
    }

    /// End everything.
    pub fn end_all(&mut self, cause: Cause) {
        for service in self.services.values_mut() {
            service.end(cause);
        }
        // What has no process yet will not get one: its template goes too.
        self.services.retain(|_, service| service.process.is_some());
        for template in self.templates.values() {
            if let Some(running) = &template.running {
                running.process.kill();
            }
        }
    }

    /// Reap what services left behind and the kernel gave to us; end it where no service is left to own it.
    pub fn tend_orphans(&mut self, now: u64) {
        if self.services.is_empty() {
            self.kill_orphans();
        } else if now >= self.scanned_ms + ORPHAN_SCAN_MS {
            self.scanned_ms = now;
            self.each_orphan(|_| {});
        }
    }

    /// End and reap them.
    pub fn kill_orphans(&self) {
        self.each_orphan(|pid| {
            let _ = kill_process(pid, Signal::KILL); // gone already is as good
        });
    }

    fn each_orphan(&self, act: impl Fn(Pid)) {
        // A child that is not known yet may be a fork that its template has not reported.
        let forking = self
            .templates
            .values()
            .filter_map(|template| template.running.as_ref());
        if forking
            .into_iter()
            .any(|running| !running.pending.is_empty())
        {
            return;
        }
        for pid in children() {
            if !self.owns(pid) {
                act(pid);
                let _ = waitpid(Some(pid), WaitOptions::NOHANG);
            }
        }
    }

    fn owns(&self, pid: Pid) -> bool {
        let services = self
            .services
            .values()
            .filter_map(|service| service.process.as_ref());
        let templates = self
            .templates
            .values()
            .filter_map(|template| template.running.as_ref());
        services
            .chain(templates.map(|running| &running.process))
            .any(|process| process.pid == pid)
    }
}

fn end_of_template(how: Cause, code: i32, output: &[u8]) -> Vec<u8> {
    let how = if how == Cause::Exit {
        "exit code"
    } else {
        "signal"
    };
    let mut text = format!("the template ended with {how} {code}").into_bytes();
    if !output.is_empty() {
        text.extend(b"; it wrote:\n");
        text.extend(output);
    }
    text
}

/// The children of this process; empty where the kernel does not list them (`CONFIG_PROC_CHILDREN`).
fn children() -> Vec<Pid> {
    let own = std::process::id();
    let listed =
        std::fs::read_to_string(format!("/proc/self/task/{own}/children")).unwrap_or_default();
    listed
        .split_ascii_whitespace()
        .filter_map(|pid| Pid::from_raw(pid.parse().ok()?))
        .collect()
}
