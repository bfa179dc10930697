//! The leases of the services, as the keeper sees and ends them: by their words.
//!
//! A service is retired only by a swap of its word from the state in which it was found too late, so that a caller
//! that comes at the same moment either has the service or learns that it is gone.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use super::services::Services;
use crate::clock::now_ms;
use crate::death::Cause;
use crate::keeper::deadline::{DeadlineKind, DeadlineQueue};
use crate::keeper::service::Service;
use crate::limit::LIFETIME_LOOK_MS;
use crate::sync::AtomicU64;
use crate::sys::{Cell, Page};
use crate::wire::Handle;
use crate::word::{Stamp, State};

/// The page of words, and how many idle services the client wants to keep.
#[derive(Debug)]
pub struct Leases {
    page: Page,
    /// How many idle services of a key stay.
    keep: BTreeMap<u32, u32>,
}

impl Leases {
    /// The leases whose words are in a page.
    pub const fn new(page: Page) -> Self {
        let keep = BTreeMap::new();
        Self { page, keep }
    }

    /// Keep `min_idle` idle services of a key.
    pub fn keep(&mut self, key: u32, min_idle: u32) {
        self.keep.insert(key, min_idle);
    }

    /// The word of a slot.
    pub fn word(&self, slot: u32) -> &AtomicU64 {
        &self.page.cell(slot).word
    }

    /// The generation of a slot's lease, or of its next one.
    pub fn generation(&self, slot: u32) -> u64 {
        Stamp::load(self.word(slot)).generation
    }

    /// A service whose answer to a start or a reset is due: retired, unless it has answered in
    /// time and was not needed since; then it is idle.
    pub fn expire_unanswered(&self, service: &Service, due: Handle, waiting: State) -> bool {
        let cell = self.page.cell(due.slot);
        let seen = Stamp::load(&cell.word);
        if seen.generation != due.generation || seen.state != waiting {
            return false;
        }
        if service.has_answered(was_left(cell)) {
            // Idle from now on, where its caller has not let go of it.
            let since = &cell.since_ms;
            let _ = since.compare_exchange(0, now_ms(), Ordering::AcqRel, Ordering::Acquire);
            seen.settle(&cell.word);
            return false;
        }
        seen.expire(&cell.word)
    }

    /// A service that may have been idle for too long; retired where enough others of its key stay.
    pub fn expire_idle(
        &self,
        services: &Services,
        deadlines: &mut DeadlineQueue,
        handle: Handle,
        now: u64,
    ) -> Option<Cause> {
        let limits = services.since(handle)?.deadlines();
        let cell = self.page.cell(handle.slot);
        let seen = Stamp::load(&cell.word);
        let since = cell.since_ms.load(Ordering::Acquire);
        let idle = seen.state == State::Idle;
        let due = if idle { since.min(now) } else { now } + limits.idle_ms;
        let keep = self.keep.get(&limits.key).copied().unwrap_or(0) as usize;
        if due > now || self.idle_of(services, limits.key) <= keep {
            let next = if due > now { due } else { now + limits.idle_ms };
            deadlines.push(next, DeadlineKind::Idle, handle);
            return None;
        }
        seen.expire(&cell.word).then_some(Cause::IdleTimeout)
    }

    /// A service that has lived its time; one that is in use is ended by the client when it comes back.
    pub fn expire_old(
        &self,
        services: &Services,
        deadlines: &mut DeadlineQueue,
        handle: Handle,
        now: u64,
    ) -> Option<Cause> {
        services.since(handle)?;
        let word = self.word(handle.slot);
        let seen = Stamp::load(word);
        let retired = seen.state == State::Idle && seen.expire(word);
        if !retired {
            let next = now + LIFETIME_LOOK_MS;
            deadlines.push(next, DeadlineKind::Lifetime, handle);
        }
        retired.then_some(Cause::Lifetime)
    }

    /// Services of a key that are ready and not lent, whether or not their answer was read.
    fn idle_of(&self, services: &Services, key: u32) -> usize {
        let of_key = |service: &&Service| service.deadlines().key == key;
        let is_ready = |service: &&Service| {
            let cell = self.page.cell(service.handle().slot);
            match Stamp::load(&cell.word).state {
                State::Idle => true,
                State::Starting | State::Resetting => service.has_answered(was_left(cell)),
                State::Free | State::Leased | State::Retired => false,
            }
        };
        services.iter().filter(of_key).filter(is_ready).count()
    }
}

/// Whether no caller waits for the answer of a service: its last caller has let go of it.
fn was_left(cell: &Cell) -> bool {
    cell.since_ms.load(Ordering::Acquire) > 0
}
