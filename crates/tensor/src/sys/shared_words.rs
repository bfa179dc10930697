//! Words in memory that other processes map for reading.
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use super::span::Span;

/// 64-bit words that are written by one process, and read by others at any time.
#[derive(Debug)]
pub(crate) struct SharedWords {
    start: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: atomics at an address that stays valid, as the maker of the span promised; they are shared by design.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// The words in `memory`; `None` if it is not aligned.
    pub(crate) fn new(memory: Span) -> Option<Self> {
        let start = memory.address().cast::<AtomicU64>();
        start.is_aligned().then_some(Self {
            start,
            count: memory.bytes() / 8,
        })
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn at(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.count, "a word beyond the shared memory");
        // SAFETY: in range and aligned; all users of the memory use it as atomic words only.
        unsafe { self.start.add(index).as_ref() }
    }
}
