//! Blocks of arenas that a peer may still read although its connection has ended.
//!
//! A view ends by its release or with its process, never with a socket: until then its block is not reused. Opening and
//! closing a connection sweep, and an arena sweeps before it reports that it is full.

use std::sync::{Mutex, PoisonError};

use forebay_base::PerProcess;
use forebay_base::process::has_ended;
use forebay_memory::Lease;

use crate::stream::shm::ledger::Ticket;
use crate::stream::shm::peer::PeerRegion;

/// A child begins with none: the copy is its parent's, and a thread of the parent may have held the lock at the fork.
static QUARANTINE: PerProcess<Mutex<Vec<Quarantined>>> = PerProcess::new();

/// What one peer may still read.
struct Quarantined {
    peer: PeerRegion,
    loans: Vec<(Ticket, Lease)>,
}

impl Quarantined {
    /// Drop returned loans; whether any remain.
    fn is_needed(&mut self) -> bool {
        let peer = &self.peer;
        self.loans
            .retain(|(ticket, _)| peer.returned(ticket.slot) != ticket.generation);
        !self.loans.is_empty() && !has_ended(&peer.process)
    }
}

/// Keep loans until their reader has released them.
pub fn admit(peer: PeerRegion, loans: Vec<(Ticket, Lease)>) {
    let mut entry = Quarantined { peer, loans };
    if entry.is_needed() {
        lock().push(entry);
    }
}

/// Drop what is no longer read; returns whether anything was.
pub fn sweep() -> bool {
    let mut quarantine = lock();
    let loans = |quarantine: &Vec<Quarantined>| {
        quarantine
            .iter()
            .map(|entry| entry.loans.len())
            .sum::<usize>()
    };
    let before = loans(&quarantine);
    quarantine.retain_mut(Quarantined::is_needed);
    loans(&quarantine) < before
}

fn lock() -> std::sync::MutexGuard<'static, Vec<Quarantined>> {
    QUARANTINE
        .get_or_init(Mutex::default)
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}
