//! Blocks of arenas that a peer may still read though its connection is over.
//!
//! A view ends by its release or with its process, never with a socket: until then the block is not used again.
//! Whoever opens or closes a connection next looks whether it has, and so does an arena before it says that it is full.

use std::sync::{Mutex, PoisonError};

use forebay_base::process::has_ended;
use forebay_memory::Lease;

use crate::stream::shm::ledger::Ticket;
use crate::stream::shm::peer::PeerRegion;
use crate::sys::per_process::PerProcess;

/// A child has none: what it has a copy of is its parent's, whose threads may have held the lock at the fork.
static QUARANTINE: PerProcess<Mutex<Vec<Quarantined>>> = PerProcess::empty();

/// What one peer was lent.
struct Quarantined {
    peer: PeerRegion,
    loans: Vec<(Ticket, Lease)>,
}

impl Quarantined {
    /// Keep what is still lent; whether anything is.
    fn is_needed(&mut self) -> bool {
        let peer = &self.peer;
        self.loans
            .retain(|(ticket, _)| peer.returned(ticket.slot) != ticket.generation);
        !self.loans.is_empty() && !has_ended(&peer.process)
    }
}

/// Keep loans until their reader is done with them.
pub fn admit(peer: PeerRegion, loans: Vec<(Ticket, Lease)>) {
    let mut entry = Quarantined { peer, loans };
    if entry.is_needed() {
        lock().push(entry);
    }
}

/// Give back what is not read any more; whether there was anything.
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
        .get()
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}
