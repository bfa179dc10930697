//! Which shelves this thread has.
//!
//! Nothing is dropped and no other code is called while the list is borrowed: a block's end may come back here.
use std::cell::RefCell;
use std::sync::{Arc, Weak};

use super::{SHELVED_BYTES_MAX, Shelf};
use crate::block::Block;
use crate::identity::Identity;

/// Regions of which one thread has a shelf; with more of them in use at once, the later ones are used without.
const SHELVES_OF_THREAD_MAX: usize = 16;

/// The region of a shelf, as far as the shelf's thread needs it.
pub(crate) trait ShelfRegion: Send + Sync {
    /// Take back the shelf of a thread that ends.
    fn retire_shelf(&self, theirs: &Arc<Shelf>);
}

struct OwnShelf {
    region_id: u64,
    shelf: Arc<Shelf>,
    region: Weak<dyn ShelfRegion>,
}

/// Given back when the thread ends.
struct Shelves(Vec<OwnShelf>);

thread_local! {
    static SHELVES: RefCell<Shelves> = const { RefCell::new(Shelves(Vec::new())) };
}

impl Shelves {
    /// The shelf of a region, which comes to the front: a thread uses few regions in turn.
    fn find(&mut self, region: u64) -> Option<&Arc<Shelf>> {
        let at = self.0.iter().position(|own| own.region_id == region)?;
        self.0.swap(0, at);
        self.0.first().map(|own| &own.shelf)
    }
}

impl Drop for Shelves {
    fn drop(&mut self) {
        for own in self.0.drain(..) {
            if let Some(region) = own.region.upgrade() {
                region.retire_shelf(&own.shelf);
            }
        }
    }
}

/// Act on this thread's shelf of a region, if it has one.
pub(crate) fn with_own<R>(region: u64, act: impl FnOnce(&Arc<Shelf>) -> R) -> Option<R> {
    // Gone at the end of the thread, when the last leases may still be dropped.
    let found = SHELVES.try_with(|shelves| {
        let mut shelves = shelves.try_borrow_mut().ok()?;
        shelves.find(region).map(act)
    });
    found.ok().flatten()
}

/// A block of `length` bytes from this thread's shelf, as a new allocation.
pub(crate) fn take(region: &Identity, length: u64) -> Option<Arc<Block>> {
    if length > SHELVED_BYTES_MAX {
        return None;
    }
    with_own(region.id(), |shelf| shelf.take(length, region))?
}

/// Put a block without holders on this thread's shelf; it is returned if the shelf refuses it.
pub(crate) fn put(block: Arc<Block>) -> Option<Arc<Block>> {
    if block.bytes() > SHELVED_BYTES_MAX {
        return Some(block);
    }
    let mut block = Some(block);
    let region = block.as_ref().map(|block| block.region_id())?;
    with_own(region, |shelf| {
        block = block.take().and_then(|block| shelf.put(block));
    });
    block
}

/// Keep a shelf of region `region_id` for this thread, unless it has too many or one already; whether it is kept.
pub(crate) fn keep(region_id: u64, region: Weak<dyn ShelfRegion>, shelf: &Arc<Shelf>) -> bool {
    let kept = SHELVES.try_with(|shelves| {
        let Ok(mut shelves) = shelves.try_borrow_mut() else {
            return false;
        };
        // What is closed is empty, so nothing ends here but the shelf itself.
        shelves.0.retain(|own| own.shelf.is_open());
        let is_new = shelves.0.iter().all(|own| own.region_id != region_id);
        let kept = is_new && shelves.0.len() < SHELVES_OF_THREAD_MAX;
        if kept {
            shelves.0.push(OwnShelf {
                region_id,
                shelf: Arc::clone(shelf),
                region,
            });
        }
        kept
    });
    kept.unwrap_or(false)
}
