//! Which shelves this thread has.
//!
//! Nothing is dropped and no other code is called while the list is borrowed: a block's end may come back here.
use std::cell::RefCell;
use std::sync::{Arc, Weak};

use super::{SHELVED_BYTES_MAX, Shelf};
use crate::lease::Block;
use crate::region::Inner;

/// Regions of which one thread has a shelf; with more of them in use at once, the later ones are used without.
const SHELVES_OF_THREAD_MAX: usize = 16;

struct Mine {
    region: u64,
    shelf: Arc<Shelf>,
    home: Weak<Inner>,
}

/// Given back when the thread ends.
struct Shelves(Vec<Mine>);

thread_local! {
    static SHELVES: RefCell<Shelves> = const { RefCell::new(Shelves(Vec::new())) };
}

impl Shelves {
    /// The shelf of a region, which comes to the front: a thread uses few regions in turn.
    fn find(&mut self, region: u64) -> Option<&Arc<Shelf>> {
        let at = self.0.iter().position(|mine| mine.region == region)?;
        self.0.swap(0, at);
        self.0.first().map(|mine| &mine.shelf)
    }
}

impl Drop for Shelves {
    fn drop(&mut self) {
        for mine in self.0.drain(..) {
            if let Some(home) = mine.home.upgrade() {
                home.dismiss(&mine.shelf);
            }
        }
    }
}

/// Act on this thread's shelf of a region, if it has one.
pub(crate) fn with_mine<R>(region: u64, act: impl FnOnce(&Arc<Shelf>) -> R) -> Option<R> {
    // Gone at the end of the thread, when the last leases may still be dropped.
    let found = SHELVES.try_with(|shelves| {
        let mut shelves = shelves.try_borrow_mut().ok()?;
        shelves.find(region).map(act)
    });
    found.ok().flatten()
}

/// A block of `length` bytes from this thread's shelf, as a new allocation.
pub(crate) fn take(home: &Inner, length: u64) -> Option<Arc<Block>> {
    if length > SHELVED_BYTES_MAX {
        return None;
    }
    with_mine(home.id, |shelf| shelf.take(length, &home.generations))?
}

/// Put a block that nobody holds on this thread's shelf; it comes back if it cannot lie there.
pub(crate) fn put(block: Arc<Block>) -> Option<Arc<Block>> {
    if block.bytes() > SHELVED_BYTES_MAX {
        return Some(block);
    }
    let mut block = Some(block);
    let region = block.as_ref().map(|block| block.home().id)?;
    with_mine(region, |shelf| {
        block = block.take().and_then(|block| shelf.put(block));
    });
    block
}

/// Keep a shelf for this thread, unless it has too many or one already; whether it is kept.
pub(crate) fn keep(home: &Arc<Inner>, shelf: &Arc<Shelf>) -> bool {
    let kept = SHELVES.try_with(|shelves| {
        let Ok(mut shelves) = shelves.try_borrow_mut() else {
            return false;
        };
        // What is closed is empty, so nothing ends here but the shelf itself.
        shelves.0.retain(|mine| mine.shelf.is_open());
        let is_new = shelves.0.iter().all(|mine| mine.region != home.id);
        let kept = is_new && shelves.0.len() < SHELVES_OF_THREAD_MAX;
        if kept {
            shelves.0.push(Mine {
                region: home.id,
                shelf: Arc::clone(shelf),
                home: Arc::downgrade(home),
            });
        }
        kept
    });
    kept.unwrap_or(false)
}
