//! What services left behind: the kernel gives it to the keeper, which ends it.

use rustix::process::{Pid, Signal, WaitOptions, getpgid, kill_process, waitpid};

use super::services::Services;
use super::templates::Templates;
use crate::limit::ORPHAN_SCAN_MS;

/// When the keeper last looked for what services left behind.
#[derive(Debug, Default)]
pub struct Orphans {
    scanned_ms: u64,
}

impl Orphans {
    /// Milliseconds until the next look, while there are services.
    pub fn wait_ms(&self, now: u64) -> u64 {
        (self.scanned_ms + ORPHAN_SCAN_MS).saturating_sub(now)
    }

    /// Reap what services left behind; end it where no service is left to own it.
    pub fn tend(&mut self, now: u64, services: &Services, templates: &mut Templates) {
        if services.is_empty() {
            kill(services, templates);
        } else if now >= self.scanned_ms + ORPHAN_SCAN_MS {
            self.scanned_ms = now;
            templates.reap_spares();
            each(services, templates, |_| {});
        }
    }
}

/// End and reap what services left behind, except in the group of a service that has time to end by itself.
pub fn kill(services: &Services, templates: &Templates) {
    each(services, templates, |pid| {
        if !services.is_given_time(pid) {
            let _ = kill_process(pid, Signal::KILL); // gone already is as good
        }
    });
}

fn each(services: &Services, templates: &Templates, act: impl Fn(Pid)) {
    // A child that is not known yet may be a fork that its template has not reported.
    if templates.any_forks() || services.any_branches() {
        return;
    }
    for pid in children() {
        if !services.owns(pid) && !templates.owns(pid) {
            act(pid);
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }
}

/// Whether a group whose leader has ended has other processes that live. They came to us with its end.
pub fn has_members(leader: Pid) -> bool {
    children().into_iter().any(|pid| {
        pid != leader
            && getpgid(Some(pid)) == Ok(leader)
            && !matches!(waitpid(Some(pid), WaitOptions::NOHANG), Ok(Some(_)))
    })
}

/// The children of this process; empty where the kernel does not list them (`CONFIG_PROC_CHILDREN`).
pub fn children() -> Vec<Pid> {
    let own = std::process::id();
    let listed =
        std::fs::read_to_string(format!("/proc/self/task/{own}/children")).unwrap_or_default();
    listed
        .split_ascii_whitespace()
        .filter_map(|pid| Pid::from_raw(pid.parse().ok()?))
        .collect()
}
