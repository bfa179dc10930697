//! Every process of the keeper: what is asked of it, what it reports, and when it must go.
//!
//! The registry owns the parts below and nothing else, and passes each event to those that it concerns. A part owns its
//! data; it is given the other parts that it needs for one call, and holds none of them. How a process comes into the
//! registry is in `start`, how it leaves it in `end`.
//!
//! | part | owns |
//! |---|---|
//! | `services` | the services by slot |
//! | `templates` | the templates by number, with their processes and spares |
//! | `leases` | the page of words: whether a service may be retired |
//! | `deadlines` | when to look at what |
//! | `directories` | the keeper's own directory, and what is to be removed |
//! | `memory` | whose memory is measured next |
//! | `orphans` | when to look for what services left behind |
//! | `limits` | the cgroups |
//! | `events` | what the client is to be sent |

mod directories;
mod end;
mod events;
mod leases;
mod memory_scan;
mod orphans;
mod services;
mod start;
mod templates;

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use super::deadline::{DeadlineKind, DeadlineQueue};
use super::limits::LimitEnforcer;
use super::service::Service;
use super::source::{Poller, Source, Token};
use crate::clock::now_ms;
use crate::control::Receiver;
use crate::death::Cause;
use crate::error::{Error, Result};
use crate::sys::Page;
use crate::wire::{Event, Handle, KeeperRequest};
use crate::word::State;
use directories::Directories;
use events::Events;
use leases::Leases;
use memory_scan::MemoryScan;
use orphans::Orphans;
use services::Services;
use templates::Templates;

/// How long a cgroup that is not empty yet is left alone: processes that were killed need a moment to go.
const LEFTOVERS_MS: u64 = 5;

pub struct Registry {
    services: Services,
    templates: Templates,
    leases: Leases,
    deadlines: DeadlineQueue,
    directories: Directories,
    memory: MemoryScan,
    orphans: Orphans,
    limits: LimitEnforcer,
    events: Events,
    receiver: Receiver,
    /// The serial of the process that was started last.
    serial: u32,
}

impl Registry {
    pub fn new(page: Page, scratch_base: PathBuf) -> Self {
        Self {
            services: Services::default(),
            templates: Templates::default(),
            leases: Leases::new(page),
            deadlines: DeadlineQueue::default(),
            directories: Directories::new(scratch_base),
            memory: MemoryScan::default(),
            orphans: Orphans::default(),
            limits: LimitEnforcer::default(),
            events: Events::default(),
            receiver: Receiver::default(),
            serial: 0,
        }
    }

    /// The events for the client.
    pub fn take_events(&mut self) -> Vec<(Event, Option<OwnedFd>)> {
        self.events.take()
    }

    /// Milliseconds until something must be looked at.
    pub fn wait_ms(&self, now: u64) -> Option<u64> {
        let due = self.deadlines.wait_ms(now);
        if self.services.is_empty() {
            return due;
        }
        let scan = self.orphans.wait_ms(now);
        Some(due.map_or(scan, |wait| wait.min(scan)))
    }

    pub fn has_processes(&self) -> bool {
        !self.services.is_empty() || self.templates.any_runs() || !orphans::children().is_empty()
    }

    /// Do what the client asks. A request that fails is reported as the death of its service.
    pub fn request(&mut self, poller: &Poller, request: KeeperRequest, descriptors: &[OwnedFd]) {
        match request {
            KeeperRequest::Template {
                template,
                launch,
                setup,
                spares,
            } => self.templates.describe(template, launch, setup, spares),
            KeeperRequest::Fork {
                handle,
                template,
                deadlines,
            } => {
                let done = self.fork(poller, handle, template, deadlines, descriptors);
                self.report_failure(handle, done);
            }
            KeeperRequest::Branch {
                handle,
                parent,
                deadlines,
            } => {
                let done = self.branch(poller, handle, parent, deadlines, descriptors);
                self.report_failure(handle, done);
            }
            KeeperRequest::Start {
                handle,
                launch,
                deadlines,
            } => {
                let done = self.start(poller, handle, &launch, deadlines, descriptors);
                self.report_failure(handle, done);
            }
            KeeperRequest::Reset {
                handle,
                deadline_ms,
            } => {
                self.deadlines
                    .push(now_ms() + deadline_ms, DeadlineKind::Reset, handle);
            }
            KeeperRequest::Kill { handle, cause } => {
                self.end_service(poller, handle.slot, cause);
            }
            KeeperRequest::Output { handle } => {
                let lease = self.leases.generation(handle.slot);
                let service = self.services.get_mut(handle.slot);
                let text = service.map_or_else(Vec::new, |service| service.output(lease));
                self.events.push(Event::Output { handle, text });
            }
            KeeperRequest::Keep { key, min_idle } => self.leases.keep(key, min_idle),
            KeeperRequest::Follow { handle, beyond } => {
                if let Some(service) = self.services.get_mut(handle.slot) {
                    service.follow(handle, beyond);
                }
                self.notify_followers(handle.slot);
            }
            KeeperRequest::Shutdown => {} // handled by the keeper itself
        }
    }

    fn report_failure(&mut self, handle: Handle, done: Result<()>) {
        if let Err(error) = done.map_err(Error::explained) {
            self.services.remove(handle.slot);
            let cause = match error {
                Error::Unenforceable { .. } => Cause::Unenforceable,
                _ => Cause::NotStarted,
            };
            let text = error.to_string().into_bytes();
            self.events.push_not_started(handle.slot, cause, text);
        }
    }

    /// React to a descriptor.
    pub fn handle(&mut self, poller: &Poller, token: Token) {
        let (index, serial) = (token.key.index, token.key.generation);
        match token.kind {
            Source::Control | Source::Client => {}
            Source::Report => self.take_reports(poller, index, serial),
            Source::TemplateExit => self.template_ended(poller, index, serial),
            Source::TemplateOutput => {
                if let Some(running) = self.templates.running_of(index, serial) {
                    running.drain_output(poller);
                }
            }
            Source::Branched => self.take_copies(poller, index, serial),
            Source::Exit => self.service_ended(poller, index, serial),
            Source::Output => {
                let lease = self.leases.generation(index);
                if let Some(service) = self.services.of_serial(index, serial) {
                    service.take_output(poller, lease);
                }
                self.notify_followers(index);
            }
            Source::File => {
                if let Some(service) = self.services.of_serial(index, serial) {
                    service.look_at_file(poller);
                }
            }
        }
    }

    /// Send the followers of a service what it has written since, if there is more.
    fn notify_followers(&mut self, slot: u32) {
        let service = self.services.get_mut(slot);
        if let Some(written) = service.and_then(Service::take_written) {
            self.events.push(written);
        }
    }

    /// Do what is past its deadline.
    pub fn expire(&mut self, poller: &Poller, now: u64) {
        while let Some((kind, handle)) = self.deadlines.pop_due(now) {
            match kind {
                DeadlineKind::Spare => self.fork_spare(handle),
                DeadlineKind::ExitHooks => self.finish_exit(handle),
                DeadlineKind::GroupExit => self.check_group(poller, handle),
                DeadlineKind::Start
                | DeadlineKind::Reset
                | DeadlineKind::Idle
                | DeadlineKind::Lifetime => {
                    if let Some(cause) = self.retire(kind, handle, now) {
                        self.end_retired(poller, handle, cause);
                    }
                }
            }
        }
    }

    /// Retire the service of a deadline, unless it was in time; returns why it is to be ended.
    fn retire(&mut self, kind: DeadlineKind, handle: Handle, now: u64) -> Option<Cause> {
        let (services, deadlines) = (&self.services, &mut self.deadlines);
        let unanswered = |waiting| {
            let service = services.get(handle.slot);
            service.is_some_and(|it| self.leases.expire_unanswered(it, handle, waiting))
        };
        match kind {
            DeadlineKind::Start => unanswered(State::Starting).then_some(Cause::StartDeadline),
            DeadlineKind::Reset => unanswered(State::Resetting).then_some(Cause::ResetDeadline),
            DeadlineKind::Idle => self.leases.expire_idle(services, deadlines, handle, now),
            DeadlineKind::Lifetime => self.leases.expire_old(services, deadlines, handle, now),
            DeadlineKind::ExitHooks | DeadlineKind::GroupExit | DeadlineKind::Spare => None,
        }
    }

    /// Reap what services left behind and the kernel gave to us; end it where no service is left to own it.
    pub fn tend_orphans(&mut self, now: u64) {
        self.orphans.tend(now, &self.services, &mut self.templates);
    }

    /// End what services left behind, except in the group of a service that has time to end by itself.
    pub fn kill_orphans(&self) {
        orphans::kill(&self.services, &self.templates);
    }

    /// Milliseconds until there is something to remove or to measure; none where there is nothing to do.
    pub fn housekeeping_ms(&self, now: u64) -> Option<u64> {
        if !self.directories.is_done() {
            return Some(0);
        }
        let measure = self.memory.wait_ms(now);
        let leftovers = self.limits.has_leftovers().then_some(LEFTOVERS_MS);
        measure.into_iter().chain(leftovers).min()
    }

    /// Do a bounded part of what is due.
    pub fn do_housekeeping(&mut self, now: u64) {
        self.limits.tend();
        self.memory
            .step(now, &mut self.services, &self.leases, &mut self.events);
        self.directories.step(now);
    }

    /// Before the keeper exits: remove everything, but cgroups that are not empty at the deadline.
    pub fn finish_housekeeping(&mut self, poller: &mut Poller, deadline_ms: u64) {
        self.services.clear();
        while !self.limits.tend() && now_ms() < deadline_ms {
            let pause = Duration::from_millis(LEFTOVERS_MS);
            if poller.wait(Some(pause)).is_err() {
                break;
            }
        }
        self.templates.clear();
        self.directories.finish();
    }
}
