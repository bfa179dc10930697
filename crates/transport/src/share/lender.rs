//! What one peer is lent, and which chunks were announced to it.
//!
//! `stream::shm::own` announces chunks too, and is apart: its chunks are of many regions, so that they need names of the
//! connection's own, and at the limit it sweeps and looks again, since a chunk of an arena may be gone then. What both
//! have in common is a map and a limit.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use forebay_base::process;
use forebay_memory::{ChunkMark, Window};

use crate::error::Violation;
use crate::limit::WINDOWS_MAX;
use crate::share::loans::PeerLoans;
use crate::share::pool::{SharePool, ShareWriter};
use crate::share::{return_table, windows};
use crate::stream::shm::Name;
use crate::sys::shared::{PeerBlock, Staged};

/// Our side of a connection whose peer borrows.
#[derive(Debug)]
pub struct Lender {
    writer: ShareWriter,
    announced: HashMap<u32, ChunkMark>,
    /// The last field, so that it sweeps after the writer has dropped its reference.
    _sweep: SweepOnDrop,
}

/// Sweeps the pool when a lender ends.
#[derive(Debug)]
struct SweepOnDrop {
    pool: Arc<SharePool>,
    owner: u64,
}

impl Lender {
    /// Begin with the descriptors of the peer's `Borrow` frame; `None` if this process has no memory to lend.
    pub fn new(
        descriptors: [OwnedFd; 2],
        lends_any_length: bool,
    ) -> Result<Option<Self>, Violation> {
        let [table, process] = descriptors;
        let window = Window::open(&table).map_err(windows::refused)?;
        let geometry = Violation::Geometry {
            bytes: window.len() as u64,
            expected: return_table::BYTES as u64,
        };
        let returns = PeerBlock::new(Arc::new(window), 0, return_table::BYTES).ok_or(geometry)?;
        Ok(SharePool::here().map(|pool| Self {
            writer: Arc::clone(&pool).open(PeerLoans::new(returns, process), lends_any_length),
            announced: HashMap::new(),
            _sweep: SweepOnDrop {
                pool,
                owner: process::epoch(),
            },
        }))
    }

    /// Copies segments for this peer.
    pub fn writer(&self) -> ShareWriter {
        self.writer.clone()
    }

    /// Segments that the peer may still read.
    pub fn lent(&self) -> usize {
        self.writer.loans.lent()
    }

    /// Announced chunks that are gone.
    pub fn gone(&mut self) -> Vec<u32> {
        let gone = self.announced.extract_if(|_, mark| mark.is_gone());
        gone.map(|(chunk, _)| chunk).collect()
    }

    /// Lend what our writer has staged; `None` if too much is lent, or no descriptor is left.
    ///
    /// `announce` announces a new chunk to the peer and returns whether it could.
    pub fn lend(
        &mut self,
        staged: Staged,
        announce: impl FnOnce(u32, OwnedFd) -> bool,
    ) -> Option<Name> {
        let lease = staged.into_lease();
        let reference = lease.reference();
        if !self.announced.contains_key(&reference.chunk) {
            let room = self.announced.len() < WINDOWS_MAX;
            let memory = lease.share_chunk().ok().filter(|_| room)?;
            if !announce(reference.chunk, memory) {
                return None;
            }
            self.announced.insert(reference.chunk, lease.chunk_mark());
        }
        let ticket = self.writer.lend(lease)?;
        Some(Name {
            chunk: reference.chunk,
            slot: ticket.slot,
            generation: ticket.generation,
            offset: reference.offset,
            bytes: reference.length,
        })
    }
}

impl Drop for SweepOnDrop {
    fn drop(&mut self) {
        // A forked child's copy does not own what is lent.
        if self.owner == process::epoch() {
            self.pool.sweep();
        }
    }
}
