//! What services left behind: the kernel gives it to the keeper, which ends it.

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::Registry;
use crate::keeper::service::Service;
use crate::keeper::template::Running;
use crate::limit::ORPHAN_SCAN_MS;

impl Registry {
    /// Reap what services left behind and the kernel gave to us; end it where no service is left to own it.
    pub fn tend_orphans(&mut self, now: u64) {
        if self.services.is_empty() {
            self.kill_orphans();
        } else if now >= self.scanned_ms + ORPHAN_SCAN_MS {
            self.scanned_ms = now;
            self.reap_spares();
            self.each_orphan(|_| {});
        }
    }

    /// End and reap them, but for those of a service that is given time for its end.
    pub fn kill_orphans(&self) {
        self.each_orphan(|pid| {
            if !self.is_exiting(pid) {
                let _ = kill_process(pid, Signal::KILL); // gone already is as good
            }
        });
    }

    fn each_orphan(&self, act: impl Fn(Pid)) {
        // A child that is not known yet may be a fork that its template has not reported.
        let forking = self
            .templates
            .values()
            .filter_map(|template| template.running.as_ref());
        let branching = |service: &Service| !service.branching.is_empty();
        if forking.into_iter().any(Running::is_forking) || self.services.values().any(branching) {
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
        let mut templates = self
            .templates
            .values()
            .filter_map(|template| template.running.as_ref());
        services.into_iter().any(|process| process.pid == pid)
            || templates.any(|running| running.owns(pid))
    }
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
