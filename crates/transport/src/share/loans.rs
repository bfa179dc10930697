//! What peers may still read of this process's memory: segments of calls, and frames of messages.
//!
//! A block is reused once its reader has released it in its return table, has ended, or has closed the table before it
//! received the block. Whether the connection is still open makes no difference: the loans of a closed one stay until
//! then. No thread waits for that: lending settles what its own peer has released; opening and closing settle for others,
//! and so does an arena before it says that it is full. A peer only reads: such blocks are not in quarantine
//! (`Lease::quarantine`), which counts and limits what may still be written.
//!
//! Lock order: the list of peers, then one peer's ledger, then a region's own lock. The last block of a chunk is given
//! back under the first two, but the chunk goes without them: its registrars may sweep, too.

use std::os::fd::OwnedFd;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use forebay_base::process::{epoch, has_ended};
use forebay_memory::{Lease, Unused};

use crate::share::ledger::Ledger;
use crate::share::return_table;
use crate::stream::shm::sync::{Arc, Mutex, MutexGuard};
use crate::sys::shared::PeerBlock;

/// What one peer may still read.
#[derive(Debug)]
pub struct PeerLoans {
    returns: PeerBlock,
    /// A pidfd of the peer.
    process: OwnedFd,
    ledger: Mutex<Ledger<Lease>>,
    owner: u64,
}

/// The loans of all peers, those of closed connections too.
#[derive(Debug, Default)]
pub struct Peers(Mutex<Vec<Arc<PeerLoans>>>);

impl PeerLoans {
    /// Nothing is lent yet to the process of a pidfd, whose return table is `returns`.
    pub fn new(returns: PeerBlock, process: OwnedFd) -> Arc<Self> {
        Arc::new(Self {
            returns,
            process,
            ledger: Mutex::default(),
            owner: epoch(),
        })
    }

    /// `act` on the ledger, without what the return table shows as released: both under one lock.
    pub fn settled<R>(&self, act: impl FnOnce(&mut Ledger<Lease>) -> R) -> R {
        let mut unused = Vec::new();
        // Declared last, so that it is unlocked before the chunks go.
        let mut ledger = lock(&self.ledger);
        self.settle(&mut ledger, &mut unused);
        act(&mut ledger)
    }

    /// How many blocks the peer may still read.
    ///
    /// None in a forked child: they are its parent's, one of whose threads may have had the lock at the fork.
    pub fn lent(&self) -> usize {
        if self.owner != epoch() {
            return 0;
        }
        self.settled(|ledger| ledger.len())
    }

    /// Give up the loans of a region, whether the peer reads them or not.
    pub fn forget(&self, region: u64) {
        let mut unused = Vec::new();
        let mut ledger = lock(&self.ledger);
        let is_its = |lease: &Lease| lease.reference().region == region;
        ledger.settle(
            |_, lease| is_its(lease),
            |lease| give_back(lease, &mut unused),
        );
    }

    fn settle(&self, ledger: &mut Ledger<Lease>, unused: &mut Vec<Unused>) {
        let load = |at| self.returns.load(at, Ordering::Acquire);
        return_table::settle(ledger, load, |lease| give_back(lease, unused));
    }

    /// Whether its connection is open, which holds the other reference.
    fn is_open(loans: &Arc<Self>) -> bool {
        Arc::strong_count(loans) > 1
    }

    /// Take back what was released, or everything once the connection is closed and the peer has ended.
    fn sweep(loans: &Arc<Self>, unused: &mut Vec<Unused>) -> Swept {
        let mut ledger = lock(&loans.ledger);
        let before = ledger.len();
        loans.settle(&mut ledger, unused);
        // Nobody lends while the ledger is locked: a connection that is closed now has lent all that it ever will.
        let needed = Self::is_open(loans) || (ledger.len() > 0 && !has_ended(&loans.process));
        if !needed {
            ledger.settle(|_, _| true, |lease| give_back(lease, unused));
        }
        Swept {
            released: before - ledger.len(),
            needed,
        }
    }
}

/// What the sweep of one peer found.
struct Swept {
    released: usize,
    /// The connection is open, or the peer still reads.
    needed: bool,
}

/// Drop a lease, but for the chunks that go with it.
fn give_back(lease: Lease, unused: &mut Vec<Unused>) {
    let chunks = lease.give_back();
    if !chunks.is_empty() {
        unused.push(chunks);
    }
}

impl Peers {
    /// A connection has opened; it keeps the loans for as long as it is open.
    pub fn add(&self, loans: &Arc<PeerLoans>) {
        lock(&self.0).push(Arc::clone(loans));
    }

    /// Take back what was released; returns whether anything was. Cost: a load for each block that is lent.
    pub fn sweep(&self) -> bool {
        self.sweep_those(|_| true)
    }

    /// As [`Self::sweep`], but of closed connections alone: an open one settles by itself when it lends.
    pub fn sweep_closed(&self) -> bool {
        self.sweep_those(|loans| !PeerLoans::is_open(loans))
    }

    fn sweep_those(&self, is_swept: impl Fn(&Arc<PeerLoans>) -> bool) -> bool {
        let (mut released, mut unused) = (0, Vec::new());
        let is_over = |loans: &mut Arc<PeerLoans>| {
            if !is_swept(loans) {
                return false;
            }
            let swept = PeerLoans::sweep(loans, &mut unused);
            released += swept.released;
            !swept.needed
        };
        // Their tables are unmapped without the lock.
        let over: Vec<_> = lock(&self.0).extract_if(.., is_over).collect();
        drop(over);
        released > 0
    }

    /// Whether a connection is open.
    pub fn any_open(&self) -> bool {
        lock(&self.0).iter().any(PeerLoans::is_open)
    }

    /// The loans of a closed connection with this many lent blocks.
    #[cfg(test)]
    pub fn closed_with(&self, lent: usize) -> Option<Arc<PeerLoans>> {
        let peers = lock(&self.0);
        let found = peers
            .iter()
            .find(|loans| !PeerLoans::is_open(loans) && loans.lent() == lent);
        found.map(Arc::clone)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use forebay_base::process::in_child;
    use forebay_memory::{Backing, Config, Region, Window};
    use rustix::process::{PidfdFlags, getpid, pidfd_open};

    use super::*;

    /// The loans of a peer that gives nothing back.
    fn of_a_reader(region: &Region) -> Arc<PeerLoans> {
        let table = region.allocate(return_table::BYTES).expect("room");
        let window = Window::open(&table.share_chunk().expect("a descriptor")).expect("mapped");
        let at = table.reference().offset;
        let returns = PeerBlock::new(Arc::new(window), at, return_table::BYTES).expect("inside");
        let process = pidfd_open(getpid(), PidfdFlags::empty()).expect("a pidfd");
        PeerLoans::new(returns, process)
    }

    fn region() -> Region {
        let config = Config::new("loans", 4 << 20).backing(Backing::Pages);
        Region::new(config).expect("a region")
    }

    #[test]
    fn a_forked_child_counts_nothing_and_needs_no_lock() {
        let region = region();
        let loans = of_a_reader(&region);
        let lease = region.allocate(100).expect("room");
        loans.settled(|ledger| {
            ledger.lend(lease).expect("room");
            assert!(in_child(|| loans.lent() == 0), "it waited, or counted");
        });
        assert_eq!(loans.lent(), 1);
    }

    #[test]
    fn only_what_was_lent_counts_as_released() {
        let (region, peers) = (region(), Peers::default());
        peers.add(&of_a_reader(&region));
        assert!(!peers.sweep(), "a connection has closed that lent nothing");
        assert!(peers.closed_with(0).is_none());
    }
}
