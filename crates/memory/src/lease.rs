//! The handles that keep a block.
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::block::{Block, BlockRegion, sole_bytes};
use crate::chunk::Unused;
use crate::chunk_mapping::ChunkMark;
use crate::error::Error;
use crate::reference::Reference;
use crate::shelf;

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

    pub(crate) fn region(&self) -> &dyn BlockRegion {
        &**self.block().region()
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
        sole_bytes(self.block.as_mut()?)
    }

    /// A descriptor of the chunk that the block lies in, for another process to map for reading.
    ///
    /// # Errors
    ///
    /// As `Region::share_chunk`.
    pub fn share_chunk(&self) -> Result<OwnedFd, Error> {
        self.region().share_chunk(self.block().grant().chunk)
    }

    /// A mark that tells whether the chunk is gone, without keeping it.
    pub fn chunk_mark(&self) -> ChunkMark {
        self.block().chunk_mark()
    }

    /// Drop it, but for what is to be unmapped with it, for a caller that holds a lock.
    pub fn give_back(mut self) -> Unused {
        self.leave()
    }

    fn leave(&mut self) -> Unused {
        match self.block.take() {
            Some(block) if block.leave() => release(block),
            _ => Unused::new(Vec::new()),
        }
    }

    /// Check that this process owns the block.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`] in a forked child, which must not use the memory of its parent.
    pub fn check(&self) -> Result<(), Error> {
        if self.block().is_owner() {
            return Ok(());
        }
        Err(self.region().forked())
    }
}

impl Clone for Lease {
    fn clone(&self) -> Self {
        let block = Arc::clone(self.block());
        block.join();
        Self::new(block)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        drop(self.leave());
    }
}

/// Give back a block whose last holder has gone: to this thread's shelf, else to its region.
fn release(block: Arc<Block>) -> Unused {
    // A forked child's copy says nothing about the owner's.
    if block.is_owner()
        && let Some(block) = shelf::put(block)
    {
        return Arc::clone(block.region()).release(block);
    }
    Unused::new(Vec::new())
}
