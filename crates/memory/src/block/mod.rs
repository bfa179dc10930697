//! A block: one allocation of a region.
//!
//! A block keeps its region, which has a list of its blocks, so each needs the other.
//! The region knows the type [`Block`]; a block knows the trait [`BlockRegion`], by which its last lease gives it back.
mod sys;

use std::fmt;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::chunk::Unused;
use crate::chunk_mapping::{ChunkMapping, ChunkMark};
use crate::error::Error;
use crate::heap::{GRANULE_BYTES, Grant};
use crate::holders::Holders;
use crate::reference::Reference;
pub(crate) use sys::sole_bytes;

/// The region of a block, as far as the block's leases need it.
pub(crate) trait BlockRegion: fmt::Debug + Send + Sync {
    /// Free a block without holders that found no room on a shelf.
    fn release(self: Arc<Self>, block: Arc<Block>) -> Unused;

    /// A descriptor of a chunk, for another process to map for reading.
    fn share_chunk(&self, chunk: u32) -> Result<OwnedFd, Error>;

    /// Count a block as one that the kernel or a peer may still write.
    fn enter_quarantine(&self, reference: Reference);

    /// Undo one [`Self::enter_quarantine`].
    fn leave_quarantine(&self, reference: Reference);

    /// The refusal in a forked child.
    fn forked(&self) -> Error;
}

/// Where a block lies.
#[derive(Debug)]
pub(crate) struct Location {
    pub(crate) mapping: Arc<ChunkMapping>,
    pub(crate) grant: Grant,
}

/// An allocation, or what is left of one for the next: on a shelf at the same location, or spare without one.
#[derive(Debug)]
pub(crate) struct Block {
    region: Arc<dyn BlockRegion>,
    /// None while it is spare.
    location: Option<Location>,
    length: AtomicU64,
    holders: Holders,
}

impl Block {
    /// A block without holders.
    pub(crate) fn new(region: Arc<dyn BlockRegion>, location: Location) -> Self {
        Self {
            region,
            location: Some(location),
            length: AtomicU64::new(0),
            holders: Holders::unheld(),
        }
    }

    /// Begin an allocation of `length` bytes with one holder; the caller has the block alone.
    pub(crate) fn begin(&self, generation: u64, length: u64) {
        self.length.store(length, Ordering::Relaxed);
        self.holders.begin(generation);
    }

    /// Whether the allocation of `generation` was held, and has a further holder now.
    /// The low half of the number is what is compared; the caller compares the rest.
    pub(crate) fn find(&self, generation: u64) -> bool {
        self.holders.find(generation)
    }

    /// Count a further holder in, beside one that stays meanwhile.
    pub(crate) fn join(&self) {
        self.holders.join();
    }

    /// Count a holder out; whether it was the last one, which then has the block alone.
    pub(crate) fn leave(&self) -> bool {
        self.holders.leave()
    }

    /// Move a block without holders, or make it spare.
    pub(crate) fn move_to(&mut self, location: Option<Location>) {
        self.location = location;
    }

    pub(crate) fn region(&self) -> &Arc<dyn BlockRegion> {
        &self.region
    }

    pub(crate) fn region_id(&self) -> u64 {
        self.location().mapping.region()
    }

    /// Whether this is the process that allocated it, not a forked child.
    pub(crate) fn is_owner(&self) -> bool {
        self.location().mapping.is_owner()
    }

    pub(crate) fn grant(&self) -> &Grant {
        &self.location().grant
    }

    /// What it takes in the allocator.
    pub(crate) fn granules(&self) -> u64 {
        self.grant().bytes / GRANULE_BYTES
    }

    /// What was asked for.
    pub(crate) fn bytes(&self) -> u64 {
        self.length.load(Ordering::Relaxed)
    }

    /// Fits: the block is mapped.
    #[allow(clippy::cast_possible_truncation)]
    pub(crate) fn length(&self) -> usize {
        self.bytes() as usize
    }

    #[allow(clippy::cast_possible_truncation)]
    pub(crate) fn start(&self) -> NonNull<u8> {
        let Location { mapping, grant } = self.location();
        mapping.at(grant.offset as usize, self.length())
    }

    pub(crate) fn reference(&self) -> Reference {
        let grant = self.grant();
        Reference {
            region: self.region_id(),
            chunk: grant.chunk,
            offset: grant.offset,
            length: self.bytes(),
            generation: self.holders.generation(),
        }
    }

    /// A mark that tells whether its chunk is gone.
    pub(crate) fn chunk_mark(&self) -> ChunkMark {
        ChunkMark::of(&self.location().mapping)
    }

    fn location(&self) -> &Location {
        self.location.as_ref().expect("a spare block has no holder")
    }
}
