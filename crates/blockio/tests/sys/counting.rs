//! An allocator that counts, of the tests of several crates.
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts what all threads ask of the heap.
pub struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static OWN: Cell<u64> = const { Cell::new(0) };
}

/// Allocations of all threads so far.
#[allow(dead_code)] // not every test has several threads
pub fn allocations() -> u64 {
    ALLOCATIONS.load(Ordering::Relaxed)
}

/// Allocations of this thread so far, beside which the harness has its own.
#[allow(dead_code)] // not every test has but one thread
pub fn own_allocations() -> u64 {
    OWN.get()
}

fn count() {
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    // Not at the end of the thread, when nobody asks any more.
    let _ = OWN.try_with(|own| own.set(own.get() + 1));
}

// SAFETY: the system's allocator, and a number beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps to the contract of this function, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: as in `alloc`.
        unsafe { System.dealloc(start, layout) };
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: as in `alloc`.
        unsafe { System.realloc(start, layout, bytes) }
    }
}
