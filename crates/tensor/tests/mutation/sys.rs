//! Memory for the machines, and an allocator that knows how much there was at once.
#![allow(unsafe_code)]
#[path = "../sys/loan.rs"]
pub mod loan;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the bytes that all threads have of the heap.
pub struct Metered;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

/// The most bytes that `work` had of the heap at once, beside those that were there before.
pub fn peak_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let done = work();
    (done, MOST.load(Ordering::Relaxed) - before)
}

fn took(bytes: usize) {
    let held = HELD.fetch_add(bytes, Ordering::Relaxed) + bytes;
    MOST.fetch_max(held, Ordering::Relaxed);
}

// SAFETY: the system's allocator, and two numbers beside it; `realloc` is made of these two.
unsafe impl GlobalAlloc for Metered {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller keeps to the contract of this function, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as in `alloc`.
        unsafe { System.dealloc(start, layout) };
    }
}
