//! The holders of a block: how many leases, of which allocation.
//!
//! # Invariant
//!
//! *A count that has reached zero stays zero until the thread that has the block alone begins the next allocation.*
//! One word holds the count and the low half of the generation, so that a lookup by reference
//! counts itself in only while the very allocation that it means is held:
//! it can neither revive a block that is free nor be counted, even for a moment, among the holders of a later one.
//! The low half comes round after 2^32 allocations, so a lookup compares the whole number afterwards.
//!
//! Self-contained, so that the test `loom` can check every interleaving.
#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

/// The lower half of the word is the count.
const COUNT: u64 = u32::MAX as u64;

/// From here on leases are leaked in a loop; the other half of the numbers is for threads that are counted in meanwhile.
const COUNT_MAX: u64 = COUNT / 2;

#[derive(Debug)]
pub(crate) struct Holders {
    word: AtomicU64,
    generation: AtomicU64,
}

impl Holders {
    /// No holders, of no allocation.
    pub(crate) fn unheld() -> Self {
        Self {
            word: AtomicU64::new(0),
            generation: AtomicU64::new(0),
        }
    }

    /// Begin an allocation with one holder; the caller has the block alone.
    pub(crate) fn begin(&self, generation: u64) {
        self.generation.store(generation, Ordering::Relaxed);
        // Released for `find`, which reads what was stored before.
        self.word.store(generation << 32 | 1, Ordering::Release);
    }

    /// The allocation that it is held for; meaningful to its holders.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Count a further holder in, beside one that stays meanwhile.
    pub(crate) fn join(&self) {
        let before = self.word.fetch_add(1, Ordering::Relaxed);
        // A count that spilled over would free the block under its holders.
        if before & COUNT > COUNT_MAX {
            std::process::abort();
        }
    }

    /// Count a further holder in, if the allocation of `generation` is held; its low half is what is compared.
    pub(crate) fn find(&self, generation: u64) -> bool {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            let count = word & COUNT;
            if word >> 32 != generation & COUNT || count == 0 || count > COUNT_MAX {
                return false;
            }
            let further = (self.word).compare_exchange_weak(
                word,
                word + 1,
                Ordering::Acquire,
                Ordering::Acquire,
            );
            match further {
                Ok(_) => return true,
                Err(seen) => word = seen,
            }
        }
    }

    /// Count a holder out; whether it was the last one, which then has the block alone.
    pub(crate) fn leave(&self) -> bool {
        if self.word.fetch_sub(1, Ordering::Release) & COUNT != 1 {
            return false;
        }
        // Pairs with the release of all that left before: what they wrote is visible to the next holder.
        // A load rather than a fence, which ThreadSanitizer does not see; this core has the word at hand.
        self.word.load(Ordering::Acquire);
        true
    }

    /// Whether there is one holder. What those wrote that have left is visible then.
    pub(crate) fn is_sole(&self) -> bool {
        self.word.load(Ordering::Acquire) & COUNT == 1
    }
}
