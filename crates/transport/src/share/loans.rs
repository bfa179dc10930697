//! What peers may still read of this process's memory: segments of calls, and frames of messages.
//!
//! A block is reused once its reader has released it in its return table, has ended, or has closed the table before it
//! received the block. Whether the connection is still open makes no difference: the loans of a closed one stay until
//! then. No thread waits for that: opening, closing and lending sweep, and so does an arena before it says that it is
//! full. A peer only reads: such blocks are not in quarantine (`Lease::quarantine`), which counts and limits what may
//! still be written.
//!
//! Lock order: the list of peers, then one peer's ledger, then a region's own lock.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_base::process::has_ended;
use forebay_memory::Lease;

use crate::share::ledger::Ledger;
use crate::share::return_table;
use crate::sys::shared::PeerBlock;

/// What one peer may still read.
#[derive(Debug)]
pub struct Loans {
    returns: PeerBlock,
    /// A pidfd of the peer.
    process: OwnedFd,
    ledger: Mutex<Ledger<Lease>>,
}

/// The loans of all peers, those of closed connections too.
#[derive(Debug, Default)]
pub struct Peers(Mutex<Vec<Arc<Loans>>>);

impl Loans {
    /// Nothing is lent yet to the process of a pidfd, whose return table is `returns`.
    pub fn new(returns: PeerBlock, process: OwnedFd) -> Arc<Self> {
        Arc::new(Self {
            returns,
            process,
            ledger: Mutex::default(),
        })
    }

    /// The ledger.
    pub fn ledger(&self) -> MutexGuard<'_, Ledger<Lease>> {
        lock(&self.ledger)
    }

    /// The ledger without what the return table shows as released.
    pub fn settled(&self) -> MutexGuard<'_, Ledger<Lease>> {
        let mut ledger = self.ledger();
        return_table::settle(&mut ledger, |at| self.returns.load(at, Ordering::Acquire));
        ledger
    }

    /// Whether its connection is open, which holds the other reference.
    fn is_open(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) > 1
    }

    /// Take back what was released. Returns whether anything was, and whether the connection is open or the peer still reads.
    fn sweep(self: &Arc<Self>) -> (bool, bool) {
        // Asked first: a connection that lends and closes in between has a loan that was not counted.
        let open = self.is_open();
        let before = self.ledger().len();
        let lent = self.settled().len();
        let needed = open || (lent > 0 && !has_ended(&self.process));
        (lent < before || !needed, needed)
    }
}

impl Peers {
    /// A connection has opened; it keeps the loans for as long as it is open.
    pub fn add(&self, loans: &Arc<Loans>) {
        lock(&self.0).push(Arc::clone(loans));
    }

    /// Take back what was released; returns whether anything was.
    pub fn sweep(&self) -> bool {
        let mut any = false;
        lock(&self.0).retain(|loans| {
            let (released, needed) = loans.sweep();
            any |= released;
            needed
        });
        any
    }

    /// Whether a connection is open.
    pub fn any_open(&self) -> bool {
        lock(&self.0).iter().any(Loans::is_open)
    }

    /// The loans of a closed connection with this many lent blocks.
    #[cfg(test)]
    pub fn closed_with(&self, lent: usize) -> Option<Arc<Loans>> {
        let peers = lock(&self.0);
        let found = peers
            .iter()
            .find(|loans| !loans.is_open() && loans.settled().len() == lent);
        found.map(Arc::clone)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
