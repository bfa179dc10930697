//! A block and the handles that keep it.
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use crate::chunk::Chunk;
use crate::chunk_mapping::ChunkMapping;
use crate::error::Error;
use crate::heap::{GRANULE_BYTES, Grant};
use crate::holders::Holders;
use crate::reference::Reference;
use crate::region::Inner;
use crate::shelf;
use crate::sys;

/// Where a block lies.
#[derive(Debug)]
pub(crate) struct Location {
    pub(crate) mapping: Arc<ChunkMapping>,
    pub(crate) grant: Grant,
}

/// An allocation, or what is left of one for the next: on a shelf at the same location, or spare without one.
#[derive(Debug)]
pub(crate) struct Block {
    region: Arc<Inner>,
    /// None while it is spare.
    location: Option<Location>,
    length: AtomicU64,
    holders: Holders,
}

impl Block {
    /// A block without holders.
    pub(crate) fn new(region: Arc<Inner>, location: Location) -> Self {
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
    /// The low half of the number is what is compared; the holder's [`Lease`] compares the rest.
    pub(crate) fn find(&self, generation: u64) -> bool {
        self.holders.find(generation)
    }

    /// Move a block without holders, or make it spare.
    pub(crate) fn move_to(&mut self, location: Option<Location>) {
        self.location = location;
    }

    pub(crate) fn region(&self) -> &Arc<Inner> {
        &self.region
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

    pub(crate) fn is_sole(&self) -> bool {
        self.holders.is_sole()
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
            region: self.region.id,
            chunk: grant.chunk,
            offset: grant.offset,
            length: self.bytes(),
            generation: self.holders.generation(),
        }
    }

    fn location(&self) -> &Location {
        self.location.as_ref().expect("a spare block has no holder")
    }
}

/// Keeps a block: while one lease of it lives, its memory is mapped and is not handed out again.
///
/// Clones are further leases of the same block; the last one to be dropped frees it, on any thread.
/// A lease outlives its region's closing.
#[derive(Debug)]
pub struct Lease {
    /// None once the drop has begun.
    block: Option<Arc<Block>>,
}

impl Lease {
    /// The lease of a holder that is counted already.
    pub(crate) fn new(block: Arc<Block>) -> Self {
        Self { block: Some(block) }
    }

    fn block(&self) -> &Arc<Block> {
        self.block.as_ref().expect("only the drop takes it")
    }

    pub(crate) fn region(&self) -> &Inner {
        self.block().region()
    }

    /// Address of the first byte: 64-byte aligned, 4096-byte aligned for blocks of 64 KiB or more.
    ///
    /// Valid while a lease of the block lives, for reading and writing by this process.
    /// The holders have to agree which of them writes when.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.block().start()
    }

    /// Bytes that were asked for.
    pub fn len(&self) -> usize {
        self.block().length()
    }

    /// Whether no byte was asked for.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The block's name, for a message.
    pub fn reference(&self) -> Reference {
        self.block().reference()
    }

    /// The bytes, if this is the only lease of the block; what they hold at first is undefined.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        sys::sole_bytes(self.block.as_mut()?)
    }

    /// A descriptor of the chunk that the block lies in, for another process to map for reading.
    ///
    /// # Errors
    ///
    /// As [`Region::share_chunk`](crate::Region::share_chunk).
    pub fn share_chunk(&self) -> Result<OwnedFd, Error> {
        self.region().share_chunk(self.block().grant().chunk)
    }

    /// A mark that tells whether the chunk is gone, without keeping it.
    pub fn chunk_mark(&self) -> ChunkMark {
        ChunkMark(Arc::downgrade(&self.block().location().mapping))
    }

    /// Drop it, but for what is to be unmapped with it, for a caller that holds a lock.
    pub fn give_back(mut self) -> Unused {
        self.leave()
    }

    fn leave(&mut self) -> Unused {
        match self.block.take() {
            Some(block) if block.holders.leave() => release(block),
            _ => Unused(Vec::new()),
        }
    }

    /// Check that this process owns the block.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`] in a forked child, which must not use the memory of its parent.
    pub fn check(&self) -> Result<(), Error> {
        self.region().check_owner()
    }
}

impl Clone for Lease {
    fn clone(&self) -> Self {
        let block = Arc::clone(self.block());
        block.holders.join();
        Self::new(block)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        drop(self.leave());
    }
}

/// Give back a block whose last holder has gone: to this thread's shelf, else to the allocator.
fn release(block: Arc<Block>) -> Unused {
    // A forked child's copy says nothing about the owner's.
    if block.region.is_owner()
        && let Some(block) = shelf::put(block)
    {
        return Unused(Inner::release(block));
    }
    Unused(Vec::new())
}

/// Chunks that a region has given up; dropping this notifies registrars and unmaps them.
#[derive(Debug)]
#[must_use = "to drop it takes milliseconds for a large chunk"]
pub struct Unused(Vec<Chunk>);

impl Unused {
    /// Whether there is nothing to unmap.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Tells whether a chunk is still mapped by its owner.
#[derive(Clone, Debug)]
pub struct ChunkMark(Weak<ChunkMapping>);

impl ChunkMark {
    /// Whether its region has given it up; nothing will ever lie in it again.
    pub fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }
}
