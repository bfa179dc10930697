//! Every process of the keeper, by slot and by template.

mod branch;
mod confine;
mod end;
mod follow;
mod housekeeping;
mod orderly_end;
mod orphans;
mod spare;
mod start;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use super::limits::LimitEnforcer;
use super::scratch::{Scratch, SharedRemoval};
use super::service::Service;
use super::source::{Poller, Source, Token};
use super::template::Template;
use super::{DeadlineKind, DeadlineQueue};
use crate::clock::now_ms;
use crate::control::Receiver;
use crate::death::{Cause, Death};
use crate::error::{Error, Result};
use crate::limit::{ORPHAN_SCAN_MS, TEMPLATES_MAX};
use crate::sys::Page;
use crate::wire::{Event, Handle, KeeperRequest};
use crate::word::Stamp;
use housekeeping::Housekeeping;

type Events = Vec<(Event, Option<OwnedFd>)>;

pub struct Registry {
    page: Page,
    scratch_base: PathBuf,
    scratch: Option<Scratch>,
    services: BTreeMap<u32, Service>,
    templates: BTreeMap<u32, Template>,
    deadlines: DeadlineQueue,
    /// How many idle services of a key stay.
    keep: BTreeMap<u32, u32>,
    serial: u32,
    events: Events,
    scanned_ms: u64,
    receiver: Receiver,
    removal: SharedRemoval,
    enforcer: LimitEnforcer,
    housekeeping: Housekeeping,
}

impl Registry {
    pub fn new(page: Page, scratch_base: PathBuf) -> Self {
        Self {
            page,
            scratch_base,
            scratch: None,
            services: BTreeMap::new(),
            templates: BTreeMap::new(),
            deadlines: DeadlineQueue::default(),
            keep: BTreeMap::new(),
            serial: 0,
            events: Vec::new(),
            scanned_ms: 0,
            receiver: Receiver::default(),
            removal: SharedRemoval::default(),
            enforcer: LimitEnforcer::default(),
            housekeeping: Housekeeping::default(),
        }
    }

    /// The events for the client.
    pub fn take_events(&mut self) -> Events {
        std::mem::take(&mut self.events)
    }

    /// Milliseconds until something must be looked at.
    pub fn wait_ms(&self, now: u64) -> Option<u64> {
        if self.services.is_empty() {
            return self.deadlines.wait_ms(now);
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
            || !orphans::children().is_empty()
    }

    /// Do what the client asks. A request that fails is reported as the death of its service.
    pub fn request(&mut self, poller: &Poller, request: KeeperRequest, descriptors: &[OwnedFd]) {
        match request {
            KeeperRequest::Template {
                template,
                launch,
                setup,
                spares,
            } => {
                if self.templates.len() < TEMPLATES_MAX {
                    self.templates
                        .entry(template)
                        .or_insert_with(|| Template::new(launch, setup, spares));
                }
            }
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
                let lease = self.lease_of(handle.slot);
                let text = self
                    .services
                    .get_mut(&handle.slot)
                    .map_or_else(Vec::new, |service| {
                        service.take_output(lease);
                        service.output.text()
                    });
                self.events.push((Event::Output { handle, text }, None));
            }
            KeeperRequest::Keep { key, min_idle } => {
                self.keep.insert(key, min_idle);
            }
            KeeperRequest::Follow { handle, beyond } => self.follow(handle, beyond),
            KeeperRequest::Shutdown => {} // handled by the keeper itself
        }
    }

    /// The generation of a slot's lease, or of its next one.
    pub(super) fn lease_of(&self, slot: u32) -> u64 {
        Stamp::load(&self.page.cell(slot).word).generation
    }

    fn report_failure(&mut self, handle: Handle, done: Result<()>) {
        if let Err(error) = done.map_err(Error::explained) {
            self.services.remove(&handle.slot);
            let cause = match error {
                Error::Unenforceable { .. } => Cause::Unenforceable,
                _ => Cause::NotStarted,
            };
            self.report_not_started(handle.slot, cause, error.to_string().into_bytes());
        }
    }

    fn report_not_started(&mut self, slot: u32, cause: Cause, text: Vec<u8>) {
        self.events.push((
            Event::Died {
                slot,
                death: Death {
                    cause,
                    pid: 0,
                    text,
                    ..Death::default()
                },
            },
            None,
        ));
    }

    /// React to a descriptor.
    pub fn handle(&mut self, poller: &Poller, token: Token) {
        let (index, serial) = (token.key.index, token.key.generation);
        match token.kind {
            Source::Control | Source::Client => {}
            Source::Report => self.take_reports(poller, index, serial),
            Source::TemplateExit => self.template_ended(poller, index, serial),
            Source::TemplateOutput => {
                let running = self
                    .templates
                    .get_mut(&index)
                    .and_then(|template| template.running.as_mut());
                if let Some(running) = running.filter(|running| running.serial() == serial) {
                    running.drain_output(poller);
                }
            }
            Source::Branched => self.take_copies(poller, index, serial),
            Source::Exit => self.service_ended(poller, index, serial),
            Source::Output => {
                let lease = self.lease_of(index);
                let service = self
                    .services
                    .get_mut(&index)
                    .filter(|service| service.serial == serial);
                if let Some(service) = service
                    && !service.take_output(lease)
                {
                    poller.remove(&service.output);
                }
                self.notify_followers(index);
            }
            Source::File => self.look_at_file(poller, index, serial),
        }
    }
}
