//! The templates of a keeper, by number.

use std::collections::BTreeMap;

use rustix::process::Pid;

use crate::error::{Error, Result};
use crate::keeper::template::{Running, Template};
use crate::limit::TEMPLATES_MAX;
use crate::wire::{Handle, Launch};

/// The table of templates: at most `TEMPLATES_MAX`, each described once.
#[derive(Debug, Default)]
pub struct Templates(BTreeMap<u32, Template>);

impl Templates {
    /// The client has described a template.
    pub fn describe(&mut self, id: u32, launch: Launch, setup: Vec<u8>, spares: u32) {
        if self.0.len() < TEMPLATES_MAX {
            self.0
                .entry(id)
                .or_insert_with(|| Template::new(launch, setup, spares));
        }
    }

    /// A template that was described.
    pub fn get(&mut self, id: u32) -> Result<&mut Template> {
        self.0.get_mut(&id).ok_or(Error::Malformed {
            what: "unknown template",
        })
    }

    /// The process of a template, where one runs.
    pub fn running(&mut self, id: u32) -> Option<&mut Running> {
        self.0.get_mut(&id)?.running_mut()
    }

    /// The process of a template, where it has this serial.
    pub fn running_of(&mut self, id: u32, serial: u32) -> Option<&mut Running> {
        self.0.get_mut(&id)?.running_of(serial)
    }

    /// Whether the process of some template runs.
    pub fn any_runs(&self) -> bool {
        self.each_running().next().is_some()
    }

    /// Whether a child may exist that its template has not reported.
    pub fn any_forks(&self) -> bool {
        self.each_running().any(Running::is_forking)
    }

    /// Whether a process is a template's, or a spare of one.
    pub fn owns(&self, pid: Pid) -> bool {
        self.each_running().any(|running| running.owns(pid))
    }

    /// Let go of spares that have ended by themselves.
    pub fn reap_spares(&mut self) {
        for running in self.0.values_mut().filter_map(Template::running_mut) {
            running.reap_spares();
        }
    }

    /// End the template of a service that was not forked in time: it is stopped, or hangs in its imports, and would hang
    /// for ever.
    pub fn end_owing(&self, handle: Handle) {
        for running in self.each_running().filter(|running| running.owes(handle)) {
            running.kill();
        }
    }

    /// End the processes of all templates, and their spares.
    pub fn end_all(&self) {
        self.each_running().for_each(Running::end);
    }

    /// Remove all templates; their directories are removed with them.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    fn each_running(&self) -> impl Iterator<Item = &Running> {
        self.0.values().filter_map(Template::running)
    }
}
