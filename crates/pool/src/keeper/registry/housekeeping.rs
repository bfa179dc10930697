//! What the keeper does when there is time: removing what is left, measuring memory.

use std::time::Duration;

use rustix::process::Pid;

use super::Registry;
use crate::death::Cause;
use crate::keeper::memory::private_bytes;
use crate::keeper::process::Process;
use crate::keeper::source::Poller;
use crate::limit::{DIRECTORY_SCAN_MS, MEMORY_BATCH, MEMORY_SCAN_MS, REMOVE_BATCH};
use crate::wire::Event;
use crate::word::{Stamp, State};

/// How long a cgroup that is not empty yet is left alone: processes that were killed need a moment to go.
const LEFTOVERS_MS: u64 = 5;

/// When each task is due.
#[derive(Debug, Default)]
pub struct Housekeeping {
    /// Some service has a memory that is to be measured.
    pub measures: bool,
    measure_ms: u64,
    /// The slot that is measured next.
    next: u32,
    scanned_ms: u64,
}

impl Registry {
    /// Milliseconds until a task is due; none where there is nothing to do.
    pub fn housekeeping_ms(&self, now: u64) -> Option<u64> {
        let removes = self.removal.borrow().is_done();
        if !removes {
            return Some(0);
        }
        let measure = self
            .housekeeping
            .measures
            .then(|| self.housekeeping.measure_ms.saturating_sub(now));
        let leftovers = self.enforcer.has_leftovers().then_some(LEFTOVERS_MS);
        measure.into_iter().chain(leftovers).min()
    }

    /// Do a bounded part of what is due.
    pub fn do_housekeeping(&mut self, now: u64) {
        self.enforcer.tend();
        if self.housekeeping.measures && now >= self.housekeeping.measure_ms {
            self.measure_some(now);
        }
        if now >= self.housekeeping.scanned_ms + DIRECTORY_SCAN_MS {
            self.housekeeping.scanned_ms = now;
            self.collect_ended();
        }
        self.removal.borrow_mut().step(REMOVE_BATCH);
    }

    /// Before the keeper exits: finish them, at the latest at a deadline.
    pub fn finish_housekeeping(&mut self, poller: &mut Poller, deadline_ms: u64) {
        self.services.clear();
        while !self.enforcer.tend() && crate::clock::now_ms() < deadline_ms {
            if poller
                .wait(Some(Duration::from_millis(LEFTOVERS_MS)))
                .is_err()
            {
                break;
            }
        }
        self.templates.clear();
        self.scratch = None;
        self.removal.borrow_mut().finish();
    }

    /// Remove the directories of leases that have ended, which services have moved aside.
    fn collect_ended(&mut self) {
        if let Some(scratch) = &self.scratch {
            scratch.collect_ended();
        }
    }

    fn measure_some(&mut self, now: u64) {
        let due: Vec<u32> = self
            .services
            .range(self.housekeeping.next..)
            .filter(|(_, service)| service.deadlines.private_bytes_max > 0)
            .map(|(&slot, _)| slot)
            .take(MEMORY_BATCH)
            .collect();
        for &slot in &due {
            self.measure(slot);
        }
        if let Some(last) = due.last() {
            self.housekeeping.next = last + 1;
        } else {
            // The end of a round; without a service to measure there is no next one.
            self.housekeeping.measures = self.housekeeping.next > 0;
            self.housekeeping.next = 0;
            self.housekeeping.measure_ms = now + MEMORY_SCAN_MS;
        }
    }

    /// Retire an idle service that is too large; report a leased one, so that it is not lent again.
    fn measure(&mut self, slot: u32) {
        let Some(service) = self.services.get_mut(&slot) else {
            return;
        };
        let cell = self.page.cell(slot);
        let seen = Stamp::load(&cell.word);
        let known = service.measured == Some(seen);
        if known && seen.state == State::Idle || !matches!(seen.state, State::Idle | State::Leased)
        {
            return; // nothing has run since
        }
        let pid: Option<Pid> = service
            .process
            .as_ref()
            .map(|process: &Process| process.pid);
        let Some(bytes) = pid.and_then(private_bytes) else {
            return;
        };
        let reported = known && service.private_bytes > service.deadlines.private_bytes_max;
        service.measured = Some(seen);
        service.private_bytes = bytes;
        if bytes <= service.deadlines.private_bytes_max {
            return;
        }
        if seen.state == State::Leased && !reported {
            self.events.push((Event::Heavy { slot }, None));
        } else if seen.state == State::Idle && seen.expire(&cell.word) {
            service.end(Cause::Memory);
        }
    }
}
