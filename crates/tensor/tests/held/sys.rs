//! A heap that knows how much of it is taken.
#![allow(unsafe_code)]
use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_tensor::Span;

static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Bytes that the process has on the heap.
pub fn taken_bytes() -> usize {
    TAKEN.load(Ordering::Relaxed)
}

/// The system's heap, counted.
pub struct Counted;

// SAFETY: every call goes on to the system's heap as it came.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        TAKEN.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Lend memory for the length of a test.
pub fn lend(memory: &mut [u8]) -> Span {
    let bytes = memory.len();
    // SAFETY: the test keeps it longer than the shard, and leaves it alone meanwhile.
    unsafe { Span::new(NonNull::from(memory).cast(), bytes) }
}
