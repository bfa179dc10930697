//! Descriptors of the chunks that hold published tensors, one per chunk.
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

/// Where a mappable tensor is; keeps the descriptor open through which readers map it.
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
    /// Where `memory`, a part of the block of `lease`, is.
    ///
    /// `None` if it is not inside, or no descriptor is left; then only the stream can pull it.
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
        let key = (reference.region, reference.chunk);
        if let Some(chunk) = open.get(&key).and_then(Weak::upgrade) {
            return Some(ChunkLocation { chunk, offset });
        }
        open.retain(|_, chunk| chunk.strong_count() > 0);
        let descriptor = lease.share_chunk().ok()?;
        let file = File::behind(&descriptor).ok()?;
        let chunk = Arc::new(Chunk { descriptor, file });
        open.insert(key, Arc::downgrade(&chunk));
        Some(ChunkLocation { chunk, offset })
    }
}
