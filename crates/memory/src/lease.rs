//! A block and the handles that keep it.
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use crate::error::Error;
use crate::ground::Ground;
use crate::reference::Reference;
use crate::region::Inner;
use crate::sys;

/// An allocation. Dropped by its last lease, it goes back to its region.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) region: Arc<Inner>,
    pub(crate) ground: Arc<Ground>,
    pub(crate) reference: Reference,
    /// The allocator's name for it.
    pub(crate) node: u32,
}

impl Block {
    /// Fits: the block is mapped.
    #[allow(clippy::cast_possible_truncation)]
    pub(crate) fn length(&self) -> usize {
        self.reference.length as usize
    }

    #[allow(clippy::cast_possible_truncation)]
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.ground
            .at(self.reference.offset as usize, self.length())
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.region.release(self);
    }
}

/// Keeps a block: while one lease of it lives, its memory is mapped and is not handed out again.
///
/// Clones are further leases of the same block; the last one to be dropped frees it, on any thread.
/// A lease outlives its region's closing.
#[derive(Clone, Debug)]
pub struct Lease(Arc<Block>);

impl Lease {
    pub(crate) fn new(block: Arc<Block>) -> Self {
        Self(block)
    }

    pub(crate) fn region(&self) -> &Inner {
        &self.0.region
    }

    /// Address of the first byte: 64-byte aligned, 4096-byte aligned for blocks of 64 KiB or more.
    ///
    /// Valid while a lease of the block lives, for reading and writing by this process.
    /// Who writes beside others is for the holders to agree; the address says nothing about it.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.0.start()
    }

    /// Bytes that were asked for.
    pub fn len(&self) -> usize {
        self.0.length()
    }

    /// Whether no byte was asked for.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The block's name, for a message.
    pub fn reference(&self) -> Reference {
        self.0.reference
    }

    /// The bytes, if this is the only lease of the block; what they hold at first is undefined.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        sys::sole_bytes(&mut self.0)
    }

    /// A descriptor of the chunk that the block lies in, for another process to map for reading.
    ///
    /// # Errors
    ///
    /// As [`Region::share_chunk`](crate::Region::share_chunk).
    pub fn share_chunk(&self) -> Result<OwnedFd, Error> {
        self.0.region.share_chunk(self.0.reference.chunk)
    }

    /// Something that tells when the chunk is gone, without keeping it.
    pub fn chunk_mark(&self) -> ChunkMark {
        ChunkMark(Arc::downgrade(&self.0.ground))
    }

    /// Check that this process owns the block.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`] in a forked child, which must not use the memory of its parent.
    pub fn check(&self) -> Result<(), Error> {
        self.0.region.check_owner()
    }
}

/// Tells whether a chunk is still mapped by its owner.
#[derive(Clone, Debug)]
pub struct ChunkMark(Weak<Ground>);

impl ChunkMark {
    /// Whether its region has given it up; nothing will ever lie in it again.
    pub fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }
}
