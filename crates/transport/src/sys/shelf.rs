//! Large blocks that were freed a moment ago, kept for the next frame of the same size.
//!
//! An allocator returns freed pages at the end of its heap to the kernel, and above 1 MB fresh pages are most of the cost
//! of a transfer. A program that receives arrays of one shape receives the next one into the same pages.

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;
use std::sync::{Mutex, TryLockError};

use crate::limit::{SHELF_BLOCK_BYTES_MAX, SHELF_BLOCK_BYTES_MIN, SHELF_BYTES_MAX};

static SHELF: Mutex<Shelf> = Mutex::new(Shelf {
    blocks: Vec::new(),
    bytes: 0,
});

struct Block {
    pointer: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the shelf owns its blocks, and memory has no thread affinity.
unsafe impl Send for Block {}

struct Shelf {
    /// The newest, whose pages are the warmest, is the last.
    blocks: Vec<Block>,
    bytes: usize,
}

impl Shelf {
    fn take(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        let place = self
            .blocks
            .iter()
            .rposition(|block| block.layout == layout)?;
        self.bytes -= layout.size();
        Some(self.blocks.remove(place).pointer)
    }

    /// Put a block on the shelf; the oldest fall off it.
    fn put(&mut self, block: Block) -> Vec<Block> {
        self.bytes += block.layout.size();
        self.blocks.push(block);
        let mut fallen = 0;
        while self.bytes > SHELF_BYTES_MAX {
            self.bytes -= self.blocks[fallen].layout.size();
            fallen += 1;
        }
        self.blocks.drain(..fallen).collect()
    }
}

/// Memory of this layout, whose size is not 0; `None` if there is none.
pub fn obtain(layout: Layout) -> Option<NonNull<u8>> {
    if let Some(pointer) = with_shelf(layout, |shelf| shelf.take(layout)).flatten() {
        return Some(pointer);
    }
    // SAFETY: the size is not zero.
    NonNull::new(unsafe { alloc(layout) })
}

/// Give memory back.
///
/// # Safety
/// It was obtained here or from the global allocator, with this layout, and is no longer used.
pub unsafe fn give_back(pointer: NonNull<u8>, layout: Layout) {
    let block = Block { pointer, layout };
    let mut block = Some(block);
    let fallen = with_shelf(layout, |shelf| block.take().map(|block| shelf.put(block)));
    for block in fallen.flatten().into_iter().flatten().chain(block) {
        // SAFETY: the caller's promise, and that of the callers who gave back what falls off the shelf.
        unsafe { dealloc(block.pointer.as_ptr(), block.layout) };
    }
}

/// Act on the shelf, if it takes blocks of this size and no other thread has its lock.
///
/// No thread waits for the lock: in a process that was forked while another thread had it, it stays locked.
fn with_shelf<R>(layout: Layout, act: impl FnOnce(&mut Shelf) -> R) -> Option<R> {
    if !(SHELF_BLOCK_BYTES_MIN..=SHELF_BLOCK_BYTES_MAX).contains(&layout.size()) {
        return None;
    }
    match SHELF.try_lock() {
        Ok(mut shelf) => Some(act(&mut shelf)),
        Err(TryLockError::Poisoned(shelf)) => Some(act(&mut shelf.into_inner())),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(size: usize) -> Block {
        let layout = Layout::from_size_align(size, 64).expect("a layout");
        // SAFETY: the size is not zero.
        let pointer = NonNull::new(unsafe { alloc(layout) }).expect("memory");
        Block { pointer, layout }
    }

    fn free(blocks: Vec<Block>) {
        for block in blocks {
            // SAFETY: allocated above with this layout, and used by nobody.
            unsafe { dealloc(block.pointer.as_ptr(), block.layout) };
        }
    }

    #[test]
    fn the_newest_block_of_the_same_layout_comes_back() {
        let mut shelf = Shelf {
            blocks: Vec::new(),
            bytes: 0,
        };
        let (older, newer, other) = (block(1 << 20), block(1 << 20), block(2 << 20));
        let (layout, newest) = (newer.layout, newer.pointer);
        for block in [older, newer, other] {
            assert!(shelf.put(block).is_empty());
        }
        assert_eq!(shelf.take(layout), Some(newest));
        assert_eq!(shelf.bytes, 3 << 20);
        let missing = Layout::from_size_align(3 << 20, 64).expect("a layout");
        assert_eq!(shelf.take(missing), None);
        free(vec![Block {
            pointer: newest,
            layout,
        }]);
        free(shelf.blocks.drain(..).collect());
    }

    #[test]
    fn the_oldest_fall_off_a_full_shelf() {
        let mut shelf = Shelf {
            blocks: Vec::new(),
            bytes: 0,
        };
        let half = SHELF_BYTES_MAX / 2;
        let oldest = block(half);
        let first = oldest.pointer;
        assert!(shelf.put(oldest).is_empty());
        assert!(shelf.put(block(half)).is_empty());
        let fallen = shelf.put(block(half));
        assert_eq!(fallen.len(), 1);
        assert_eq!(fallen[0].pointer, first);
        assert_eq!(shelf.bytes, SHELF_BYTES_MAX);
        free(fallen);
        free(shelf.blocks.drain(..).collect());
    }
}
