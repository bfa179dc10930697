//! The private memory of services, measured in turn, a few at a time.

use super::events::Events;
use super::leases::Leases;
use super::services::Services;
use crate::death::Cause;
use crate::keeper::service::{Memory, Service};
use crate::limit::{MEMORY_BATCH, MEMORY_SCAN_MS};
use crate::wire::{Deadlines, Event};
use crate::word::{Stamp, State};

/// When the next services are measured, and which.
#[derive(Debug, Default)]
pub struct MemoryScan {
    /// Some service has a limit of private memory.
    wanted: bool,
    due_ms: u64,
    /// The slot that is measured next.
    next: u32,
}

impl MemoryScan {
    /// A service with these limits is started.
    pub fn include(&mut self, limits: &Deadlines) {
        self.wanted |= has_limit(limits);
    }

    /// Milliseconds until the next step; none where there is nothing to measure.
    pub fn wait_ms(&self, now: u64) -> Option<u64> {
        self.wanted.then(|| self.due_ms.saturating_sub(now))
    }

    /// Measure the next few services, if it is time: retire an idle one that is too large; report a leased one, so that
    /// it is not lent again.
    pub fn step(
        &mut self,
        now: u64,
        services: &mut Services,
        leases: &Leases,
        events: &mut Events,
    ) {
        if !self.wanted || now < self.due_ms {
            return;
        }
        let due: Vec<u32> = services
            .iter_from(self.next)
            .filter(|service| has_limit(service.deadlines()))
            .map(|service| service.handle().slot)
            .take(MEMORY_BATCH)
            .collect();
        for &slot in &due {
            if let Some(service) = services.get_mut(slot) {
                measure(service, leases, events);
            }
        }
        if let Some(last) = due.last() {
            self.next = last + 1;
        } else {
            // The end of a round; without a service to measure there is no next one.
            self.wanted = self.next > 0;
            self.next = 0;
            self.due_ms = now + MEMORY_SCAN_MS;
        }
    }
}

fn measure(service: &mut Service, leases: &Leases, events: &mut Events) {
    let slot = service.handle().slot;
    let word = leases.word(slot);
    let seen = Stamp::load(word);
    match (seen.state, service.measure(seen)) {
        (State::Leased, Memory::Above) => events.push(Event::Heavy { slot }),
        (State::Idle, Memory::Above) if seen.expire(word) => service.end(Cause::Memory),
        _ => {}
    }
}

fn has_limit(limits: &Deadlines) -> bool {
    limits.private_bytes_max > 0
}
