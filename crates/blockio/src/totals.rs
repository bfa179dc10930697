//! Operations that this process has given to the kernel, by what they do and what carries them out.
//!
//! They outlive the queues, which is why the figures of queues do not do. Cost: an addition for each kind in a batch.

use std::sync::atomic::{AtomicU64, Ordering};

/// What carries operations out, by its name in metrics.
pub const BACKENDS: [&str; 2] = ["io_uring", "threads"];

/// What operations do, by their names in metrics.
pub const KINDS: [&str; 4] = ["read", "write", "fsync", "fdatasync"];

static OPERATIONS: [[AtomicU64; KINDS.len()]; BACKENDS.len()] =
    [const { [const { AtomicU64::new(0) }; KINDS.len()] }; BACKENDS.len()];

/// Operations so far, by backend and kind: since the process, or the one that it was forked from, has started.
pub fn totals() -> [[u64; KINDS.len()]; BACKENDS.len()] {
    OPERATIONS
        .each_ref()
        .map(|kinds| kinds.each_ref().map(|count| count.load(Ordering::Relaxed)))
}

/// So many operations of each kind are carried out, by a ring or by threads.
pub(crate) fn note(kinds: [u64; KINDS.len()], ring: bool) {
    for (total, count) in OPERATIONS[usize::from(!ring)].iter().zip(kinds) {
        if count > 0 {
            total.fetch_add(count, Ordering::Relaxed);
        }
    }
}
