//! Blocks of arenas that a peer may still read though its connection is over.
//!
//! A view ends by its release or with its process, never with a socket: until then the block is not used again.
//! Whoever opens or closes a connection next looks whether it has, and so does an arena before it says that it is full.

use std::sync::{Mutex, PoisonError};

use forebay_base::process::has_ended;
use forebay_memory::Lease;

use crate::stream::shm::ledger::Ticket;
use crate::stream::shm::theirs::Theirs;
use crate::sys::per_process::PerProcess;

/// A child has none: what it has a copy of is its parent's, whose threads may have held the lock at the fork.
static WARDS: PerProcess<Mutex<Vec<Ward>>> = PerProcess::empty();

/// What one peer was lent.
struct Ward {
    peer: Theirs,
    loans: Vec<(Ticket, Lease)>,
}

impl Ward {
    /// Keep what is still lent; whether anything is.
    fn keeps(&mut self) -> bool {
        let peer = &self.peer;
        self.loans
            .retain(|(ticket, _)| peer.returned(ticket.place) != ticket.generation);
        !self.loans.is_empty() && !has_ended(&peer.process)
    }
}

/// Keep loans until their reader is done with them.
pub fn admit(peer: Theirs, loans: Vec<(Ticket, Lease)>) {
    let mut ward = Ward { peer, loans };
    if ward.keeps() {
        lock().push(ward);
    }
}

/// Give back what is not read any more; whether there was anything.
pub fn sweep() -> bool {
    let mut wards = lock();
    let loans = |wards: &Vec<Ward>| wards.iter().map(|ward| ward.loans.len()).sum::<usize>();
    let before = loans(&wards);
    wards.retain_mut(Ward::keeps);
    loans(&wards) < before
}

fn lock() -> std::sync::MutexGuard<'static, Vec<Ward>> {
    WARDS.get().lock().unwrap_or_else(PoisonError::into_inner)
}
