//! The region from which a process lends segments of calls.
//!
//! A process has one, so that a block which one peer has released is warm for the next. The memory is freed when no
//! connection lends, except blocks that are still read.
//!
//! Messages have a region for each connection instead (`stream::shm::own`): it has the ring as well, a limit that no
//! other connection uses up, and is given up as a whole at the end, so that no frame in it must be waited for.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_base::PerProcess;
use forebay_memory::{Backing, Config, Lease, Region};

use crate::limit::{LEND_CHUNK_BYTES, LEND_REGION_BYTES_MAX, LENT_BYTES_MAX};
use crate::share::ledger::{Ledger, Ticket};
use crate::share::loans::{PeerLoans, Peers};
use crate::sys::shared::Staged;

/// The pool of this process, once something was lent.
static POOL: PerProcess<Mutex<Option<Arc<SharePool>>>> = PerProcess::new();

/// A region, and the peers that hold parts of it.
#[derive(Debug)]
pub struct SharePool {
    region: Region,
    peers: Peers,
}

/// Copies long segments for one peer into the pool before they are sent.
#[derive(Clone, Debug)]
pub struct ShareWriter {
    pub(super) pool: Arc<SharePool>,
    pub(super) loans: Arc<PeerLoans>,
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
            peers: Peers::default(),
        });
        *slot = Some(Arc::clone(&pool));
        Some(pool)
    }

    /// Begin to lend to a peer.
    pub fn open(self: Arc<Self>, loans: Arc<PeerLoans>, lends_any_length: bool) -> ShareWriter {
        self.peers.add(&loans);
        ShareWriter {
            pool: self,
            loans,
            lends_any_length,
        }
    }

    /// Take back what was released.
    pub fn sweep(&self) {
        self.peers.sweep();
        if !self.peers.any_open() {
            let _ = self.region.trim(); // refused only in a forked child, which does not own the memory
        }
    }

    /// The loans of a closed connection with this many lent segments.
    #[cfg(test)]
    pub fn closed_with(&self, lent: usize) -> Option<Arc<PeerLoans>> {
        self.peers.closed_with(lent)
    }

    fn allocate(&self, bytes: usize) -> Option<Lease> {
        if let Ok(lease) = self.region.allocate(bytes) {
            return Some(lease);
        }
        self.sweep();
        self.region.allocate(bytes).ok()
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
        let lent = self.loans.settled(|ledger| bytes_of(ledger));
        if !self.has_room(lent + before, bytes.len()) {
            return None;
        }
        Staged::new(self.pool.allocate(bytes.len())?, bytes)
    }

    /// Keep a block until the peer releases it; `None` at the limit of blocks or bytes.
    pub fn lend(&self, lease: Lease) -> Option<Ticket> {
        let lent = self.loans.settled(|ledger| {
            if self.has_room(bytes_of(ledger), lease.len()) {
                ledger.lend(lease)
            } else {
                Err(lease)
            }
        });
        lent.ok()
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
