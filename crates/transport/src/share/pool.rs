//! The region from which a process lends, and what each peer holds of it.
//!
//! A process has one, so that a block which one peer has released is warm for the next. A block is reused once its
//! reader has released it in the return table, has ended, or has closed the table before it received the block. Whether
//! the connection is still open makes no difference: the shares of a closed connection stay until then. No thread waits
//! for that; opening, closing and lending sweep. The memory is freed when no connection lends, except blocks that are
//! still read.
//!
//! Lock order: the list of peers, then one peer's ledger, then the region's own lock.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_base::PerProcess;
use forebay_base::process::has_ended;
use forebay_memory::{Backing, Config, Lease, Region};

use crate::limit::{LEND_CHUNK_BYTES, LEND_REGION_BYTES_MAX, LENT_BYTES_MAX};
use crate::share::return_table;
use crate::stream::shm::ledger::{Ledger, Ticket};
use crate::sys::shared::{PeerBlock, Staged};

/// The pool of this process, once something was lent.
static POOL: PerProcess<Mutex<Option<Arc<SharePool>>>> = PerProcess::new();

/// A region, and the peers that hold parts of it.
#[derive(Debug)]
pub struct SharePool {
    region: Region,
    peers: Mutex<Vec<Arc<PeerShares>>>,
}

/// What one peer holds.
#[derive(Debug)]
pub struct PeerShares {
    returns: PeerBlock,
    /// A pidfd of the peer.
    process: OwnedFd,
    ledger: Mutex<Ledger<Lease>>,
}

/// Copies long segments for one peer into the pool before they are sent.
#[derive(Clone, Debug)]
pub struct ShareWriter {
    pub(super) pool: Arc<SharePool>,
    pub(super) shares: Arc<PeerShares>,
    /// Whether a segment above `LENT_BYTES_MAX` may be lent while nothing else is.
    lends_any_length: bool,
}

impl SharePool {
    /// The pool of this process; `None` where there is no memory for one.
    pub fn here() -> Option<Arc<Self>> {
        let mut slot = lock(POOL.get_or_init(Mutex::default));
        if let Some(pool) = &*slot {
            return Some(Arc::clone(pool));
        }
        // Plain pages: a borrower that writes copies page by page.
        let config = Config::new("calls", LEND_REGION_BYTES_MAX)
            .chunk_bytes(LEND_CHUNK_BYTES)
            .backing(Backing::Pages)
            .shelf_bytes_max(0);
        let pool = Arc::new(Self {
            region: Region::new(config).ok()?,
            peers: Mutex::new(Vec::new()),
        });
        *slot = Some(Arc::clone(&pool));
        Some(pool)
    }

    /// Begin to lend to a peer.
    pub fn open(
        self: Arc<Self>,
        returns: PeerBlock,
        process: OwnedFd,
        lends_any_length: bool,
    ) -> ShareWriter {
        let shares = Arc::new(PeerShares {
            returns,
            process,
            ledger: Mutex::default(),
        });
        lock(&self.peers).push(Arc::clone(&shares));
        ShareWriter {
            pool: self,
            shares,
            lends_any_length,
        }
    }

    /// Take back what was released, and drop the shares of closed connections that hold nothing.
    pub fn sweep(&self) {
        let mut peers = lock(&self.peers);
        peers.retain(PeerShares::is_needed);
        if !peers.iter().any(PeerShares::is_open) {
            let _ = self.region.trim(); // refused only in a forked child, which does not own the memory
        }
    }

    /// The shares of a closed connection with this many lent segments.
    #[cfg(test)]
    pub fn shares_with(&self, lent: usize) -> Option<Arc<PeerShares>> {
        let peers = lock(&self.peers);
        let found = peers
            .iter()
            .find(|shares| !shares.is_open() && shares.settle() == lent);
        found.map(Arc::clone)
    }

    fn allocate(&self, bytes: usize) -> Option<Lease> {
        if let Ok(lease) = self.region.allocate(bytes) {
            return Some(lease);
        }
        self.sweep();
        self.region.allocate(bytes).ok()
    }
}

impl PeerShares {
    /// Whether its connection is open: the writer holds the other reference.
    fn is_open(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) > 1
    }

    /// Whether its connection is open, or its peer still reads.
    fn is_needed(self: &Arc<Self>) -> bool {
        let lent = self.settle();
        self.is_open() || (lent > 0 && !has_ended(&self.process))
    }

    /// Take back what the return table shows as released; returns how many segments are still lent.
    pub fn settle(&self) -> usize {
        let mut ledger = lock(&self.ledger);
        return_table::settle(&mut ledger, |at| self.returns.load(at, Ordering::Acquire));
        ledger.len()
    }
}

fn bytes_of(ledger: &Ledger<Lease>) -> u64 {
    ledger.loans().map(|lease| lease.len() as u64).sum()
}

impl ShareWriter {
    /// Copy a segment to where the peer can read it; `None` if it does not fit beside what is lent and the `before`
    /// bytes that were staged for the same frame.
    ///
    /// What other threads stage meanwhile is not counted: [`Self::lend`] decides.
    /// Cost: one copy, into recently used memory if some is free.
    pub fn stage(&self, bytes: &[u8], before: u64) -> Option<Staged> {
        self.shares.settle();
        let lent = bytes_of(&lock(&self.shares.ledger));
        if !self.has_room(lent + before, bytes.len()) {
            return None;
        }
        Staged::new(self.pool.allocate(bytes.len())?, bytes)
    }

    /// Keep a block until the peer releases it; `None` at the limit of blocks or bytes.
    pub fn lend(&self, lease: Lease) -> Option<Ticket> {
        let mut ledger = lock(&self.shares.ledger);
        let lent = bytes_of(&ledger);
        self.has_room(lent, lease.len())
            .then(|| ledger.lend(lease).ok())
            .flatten()
    }

    fn has_room(&self, lent: u64, bytes: usize) -> bool {
        let alone = lent == 0 && self.lends_any_length;
        lent + bytes as u64 <= LENT_BYTES_MAX || alone
    }
}

/// Reclaim segments that peers have released since their connections closed. Opening a connection does so too.
pub fn sweep_lent() {
    let pool = POOL.get().and_then(|pool| lock(pool).clone());
    if let Some(pool) = pool {
        pool.sweep();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
