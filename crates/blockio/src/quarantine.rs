//! Memory of cancelled operations that the kernel may still write: counted, and bounded.
//!
//! A queue counts operations, also into memory that is of no arena. An arena's blocks that it reads into are kept and
//! counted by the arena besides (`forebay_memory::Quarantined`), whose limit refuses allocations; this one refuses reads.
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Error;

/// What a queue has in quarantine.
#[derive(Debug)]
pub(crate) struct Quarantine {
    bytes: AtomicU64,
    batches: AtomicU64,
    bytes_max: u64,
}

impl Quarantine {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            bytes: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            bytes_max,
        }
    }

    /// A batch of `bytes` was cancelled in flight.
    pub(crate) fn enter(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.batches.fetch_add(1, Ordering::Relaxed);
    }

    /// The kernel has let go of it.
    pub(crate) fn leave(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.batches.fetch_sub(1, Ordering::Relaxed);
    }

    /// Refuse new work while there is too much.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let value = self.bytes();
        if value > self.bytes_max {
            return Err(Error::Quarantine {
                value,
                limit: self.bytes_max,
            });
        }
        Ok(())
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn batches(&self) -> u64 {
        self.batches.load(Ordering::Relaxed)
    }
}
