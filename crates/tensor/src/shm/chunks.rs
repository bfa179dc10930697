//! Descriptors of the chunks in which published tensors lie, one for each chunk.
use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use forebay_memory::Lease;

use super::directory::File;
use crate::sys::arena;
use crate::sys::span::Span;

#[derive(Debug)]
struct Chunk {
    descriptor: OwnedFd,
    file: File,
}

/// Where a tensor lies that others may map; keeps the descriptor open by which they do.
#[derive(Clone, Debug)]
pub(crate) struct ChunkLocation {
    chunk: Arc<Chunk>,
    /// From the chunk's beginning.
    pub(super) offset: u64,
}

impl ChunkLocation {
    pub(super) fn descriptor(&self) -> u32 {
        self.chunk.descriptor.as_raw_fd().unsigned_abs()
    }

    pub(super) fn file(&self) -> File {
        self.chunk.file
    }
}

/// The chunks that are open, by region and number.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    open: Mutex<HashMap<(u64, u32), Weak<Chunk>>>,
}

impl Chunks {
    /// Where `memory` lies, which is of the block of `lease`.
    ///
    /// None: it is not inside, or no descriptor is left; then it can be pulled by the stream alone.
    pub(crate) fn find(&self, lease: &Lease, memory: Span) -> Option<ChunkLocation> {
        let block = arena::of_lease(lease);
        let start = block.address().as_ptr() as usize;
        let skipped = (memory.address().as_ptr() as usize).checked_sub(start)?;
        if skipped.checked_add(memory.bytes())? > block.bytes() {
            return None;
        }
        let reference = lease.reference();
        let offset = reference.offset + skipped as u64;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let place = (reference.region, reference.chunk);
        if let Some(chunk) = open.get(&place).and_then(Weak::upgrade) {
            return Some(ChunkLocation { chunk, offset });
        }
        open.retain(|_, chunk| chunk.strong_count() > 0);
        let descriptor = lease.share_chunk().ok()?;
        let file = File::behind(&descriptor).ok()?;
        let chunk = Arc::new(Chunk { descriptor, file });
        open.insert(place, Arc::downgrade(&chunk));
        Some(ChunkLocation { chunk, offset })
    }
}
