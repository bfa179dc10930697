//! The interface that is called for each chunk of a region, to make it known to the kernel or to a device.
//!
//! The region calls out with no lock of its own held, and catches what panics:
//! a slow or faulty registrar delays only the callers that wait for a new chunk.
//!
//! # Ownership
//!
//! A region owns its registrars, and so does each chunk that they know, until it is unmapped.
//! A registrar must own neither a region nor a lease of it: that would be a cycle, and the chunk would never go.
//! What it may keep is the address, from [`Registrar::added`] to the end of [`Registrar::removed`].
use std::fmt;
use std::mem;
use std::panic::{self, AssertUnwindSafe};
use std::ptr::NonNull;
use std::sync::Arc;

use forebay_base::process;

/// Called for a region's chunks, so that it can make them known to the kernel or to a device.
///
/// For one chunk it is called in order and never twice: added, then removed, each on any thread.
/// It may be called for several chunks at once. A forked child calls none, and drops no registrar of its parent.
///
/// A panic is caught and changes nothing: a registrar that panicked in `added` is called for the chunk's removal, too.
pub trait Registrar: Send + Sync + fmt::Debug {
    /// A chunk is there; before a block of it is handed out, unless the registrar was attached later.
    ///
    /// A caller that waits for a new chunk of this region waits for it to return; other chunks serve allocations meanwhile.
    /// A call for a new chunk from in here gets [`Error::Nested`](crate::Error::Nested).
    fn added(&self, chunk: &ChunkMemory);

    /// A chunk goes: its last block is gone, and it is unmapped once this has returned.
    ///
    /// Also called for the chunks that are there when the registrar is detached; those stay mapped.
    fn removed(&self, chunk: &ChunkMemory);
}

/// Where a chunk lies in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChunkMemory {
    /// Number of the region, as in references.
    pub region: u64,
    /// Number of the chunk in its region, never used again.
    pub chunk: u32,
    /// Its first byte, at the start of a page.
    pub start: NonNull<u8>,
    /// Its size, a multiple of 4096.
    pub bytes: usize,
}

/// Registrars in the order in which they came. A forked child leaves them alone: what they hold is its parent's.
#[derive(Clone)]
pub(crate) struct Registrars {
    epoch: u64,
    held: Vec<Arc<dyn Registrar>>,
}

impl Registrars {
    pub(crate) fn new() -> Self {
        Self {
            epoch: process::epoch(),
            held: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    pub(crate) fn contains(&self, registrar: &Arc<dyn Registrar>) -> bool {
        self.held.iter().any(|held| Arc::ptr_eq(held, registrar))
    }

    pub(crate) fn add(&mut self, registrar: Arc<dyn Registrar>) {
        self.held.push(registrar);
    }

    /// Take one out, if it is here.
    pub(crate) fn remove(&mut self, registrar: &Arc<dyn Registrar>) -> Option<Arc<dyn Registrar>> {
        let at = (self.held.iter()).position(|held| Arc::ptr_eq(held, registrar))?;
        Some(self.held.remove(at))
    }

    /// Take all of them out; none in a forked child.
    pub(crate) fn take(&mut self) -> Vec<Arc<dyn Registrar>> {
        let held = mem::take(&mut self.held);
        if self.epoch == process::epoch() {
            return held;
        }
        mem::forget(held);
        Vec::new()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<dyn Registrar>> {
        self.held.iter()
    }
}

impl fmt::Debug for Registrars {
    /// How many: a region prints itself under its lock, where nothing of a registrar's may run.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Registrars({})", self.held.len())
    }
}

impl Drop for Registrars {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// Call a registrar. A panic has been reported by the panic hook, and ends here.
pub(crate) fn call_out(call: impl FnOnce()) {
    drop(panic::catch_unwind(AssertUnwindSafe(call)));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use forebay_base::process::in_child;

    use super::{ChunkMemory, Registrar};
    use crate::config::Config;
    use crate::error::Error;
    use crate::region::Region;

    /// How many chunks came and went; and how often a registrar itself ended.
    #[derive(Debug, Default)]
    struct Counters {
        added: AtomicU32,
        removed: AtomicU32,
        ended: AtomicU32,
    }

    impl Counters {
        fn is(&self, expected: [u32; 3]) -> bool {
            let counts = [&self.added, &self.removed, &self.ended];
            counts.map(|count| count.load(Ordering::Relaxed)) == expected
        }
    }

    #[derive(Debug)]
    struct Counter(Arc<Counters>);

    impl Registrar for Counter {
        fn added(&self, _: &ChunkMemory) {
            self.0.added.fetch_add(1, Ordering::Relaxed);
        }

        fn removed(&self, _: &ChunkMemory) {
            self.0.removed.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Drop for Counter {
        fn drop(&mut self) {
            self.0.ended.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_forked_child_tells_nobody_and_ends_no_registrar_of_its_parent() {
        let region = Region::new(Config::new("forked", 1 << 20)).expect("a region");
        let counters = Arc::new(Counters::default());
        let counter: Arc<dyn Registrar> = Arc::new(Counter(Arc::clone(&counters)));
        region.attach(Arc::clone(&counter)).expect("attached");
        let block = region.allocate(100).expect("room");
        let guard = block.quarantine();
        let mut owned = Some((region, block, guard));
        let quiet = in_child(|| {
            let (region, block, guard) = owned.take().expect("a copy of it");
            let late: Arc<dyn Registrar> = Arc::new(Counter(Arc::clone(&counters)));
            let refused = [region.attach(late), region.detach(&counter)];
            let refused = refused.map(|outcome| matches!(outcome, Err(Error::Forked { .. })));
            drop((region, block, guard));
            drop(counter); // the child's last reference
            refused == [true; 2] && counters.is([1, 0, 1])
        });
        assert!(quiet, "the child told, or was not refused");
        assert!(counters.is([1, 0, 0]));
        let stats = owned.as_ref().expect("ours").0.stats().expect("owner");
        assert_eq!((stats.quarantined_blocks, stats.blocks), (1, 1));
        drop(owned);
        assert!(counters.is([1, 1, 1]));
    }
}
