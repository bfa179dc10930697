//! Shelves: blocks that a thread freed and takes again, past the region's lock.
//!
//! # Invariant
//!
//! *A block on a shelf is granted by the allocator and has no holder.*
//! It keeps its chunk and stays among the region's blocks; a reference to it is refused, because it has no holder.
//!
//! # What may lie there, and how long
//!
//! A bin holds blocks of one size, rounded to granules, and a size has one bin that it may have:
//! so a block fits exactly, and shelves waste nothing but what lies on them. That is bounded for each thread.
//! A size is taken in when it is freed a second time, and before another one that may have the same bin:
//! under ragged sizes, what lies on shelves cost up to a tenth of the arena, and was seldom taken again.
//! A bin whose size is not asked for any more is given up to another size after some refusals.
//!
//! Shelves hide no memory: before a region maps a further chunk or refuses by its limit, it collects all shelves
//! (`State::collect`), as `trim` and `close` do; a thread that ends gives its own back.
//!
//! # Lock order
//!
//! The region's lock, then a shelf's. The owner of a shelf takes its lock alone, and does without where it is taken.
mod sys;
#[cfg(test)]
mod tests;
mod thread;

use std::sync::Arc;

use crate::block::Block;
use crate::config::LARGE_BYTES;
use crate::counters::Counters;
use crate::heap::{GRANULE_BYTES, granules};
use crate::identity::Identity;
use sys::SpinLock;
pub(crate) use thread::{ShelfRegion, keep, put, take, with_own};

/// Larger blocks are used for longer than the lock takes.
pub(crate) const SHELVED_BYTES_MAX: u64 = 4 * LARGE_BYTES;

/// A request for each slot of a transfer, of which a tensor client has 16 by default.
const BIN_BLOCKS_MAX: usize = 16;

/// A power of two, and more than the sizes that a program has in use at once.
const BINS: usize = 32;

/// How often a bin may refuse another size in a row before it is given up.
const REFUSALS_MAX: u32 = 64;

/// Numbers that a shelf takes from the region at once.
const GENERATIONS: u64 = 1024;

/// Blocks of one size.
#[derive(Debug, Default)]
struct Bin {
    granules: u64,
    refusals: u32,
    blocks: Vec<Arc<Block>>,
}

#[derive(Debug)]
struct Contents {
    /// Whether blocks may be put there. A shelf that was closed stays so.
    open: bool,
    bins: [Bin; BINS],
    /// How much lies there, and may.
    granules: u64,
    granules_max: u64,
    /// The generations from here on, as many, are this shelf's to give.
    generation: u64,
    generations: u64,
    counters: Counters,
}

/// One thread's blocks of one region.
#[derive(Debug)]
pub(crate) struct Shelf(SpinLock<Contents>);

impl Shelf {
    /// An empty one, on which `bytes_max` may lie.
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self(SpinLock::new(Contents {
            open: true,
            bins: Default::default(),
            granules: 0,
            granules_max: bytes_max / GRANULE_BYTES,
            generation: 0,
            generations: 0,
            counters: Counters::default(),
        }))
    }

    /// A block of `length` bytes as a new allocation of `region`, if one lies there.
    fn take(&self, length: u64, region: &Identity) -> Option<Arc<Block>> {
        self.0.try_with(|contents| contents.take(length, region))?
    }

    /// Put a block without holders there; it is returned if there is no room for it.
    fn put(&self, block: Arc<Block>) -> Option<Arc<Block>> {
        let mut block = Some(block);
        self.0.try_with(|contents| contents.put(&mut block));
        block
    }

    /// What was counted here, which is taken out.
    pub(crate) fn take_counters(&self) -> Counters {
        self.0
            .with(|contents| std::mem::take(&mut contents.counters))
    }

    /// How many blocks lie there, and of how many bytes.
    pub(crate) fn holds(&self) -> (u64, u64) {
        self.0.with(|contents| {
            let blocks = contents.bins.iter().map(|bin| bin.blocks.len() as u64);
            (blocks.sum(), contents.granules * GRANULE_BYTES)
        })
    }

    /// Take everything off.
    pub(crate) fn drain(&self, into: &mut Vec<Arc<Block>>) {
        self.0.with(|contents| {
            for bin in &mut contents.bins {
                into.append(&mut bin.blocks);
            }
            contents.granules = 0;
        });
    }

    /// Take off one of the blocks that are in the way of those of `length` bytes, if they have been for long.
    pub(crate) fn pop_stale(&self, length: u64) -> Option<Arc<Block>> {
        self.0.with(|contents| {
            let bin = &mut contents.bins[bin_of(granules(length))];
            if bin.refusals < REFUSALS_MAX {
                return None;
            }
            let block = bin.blocks.pop();
            match block {
                Some(_) => contents.granules -= bin.granules,
                None => bin.refusals = 0,
            }
            block
        })
    }

    /// Let nothing be put there from now on.
    pub(crate) fn close(&self) {
        self.0.with(|contents| contents.open = false);
    }

    /// Whether blocks may be put there. Never waits: in a forked child, the thread that had the lock may not exist.
    fn is_open(&self) -> bool {
        self.0.try_with(|contents| contents.open).unwrap_or(true)
    }
}

impl Contents {
    fn take(&mut self, length: u64, region: &Identity) -> Option<Arc<Block>> {
        let granules = granules(length);
        let bin = &mut self.bins[bin_of(granules)];
        if bin.granules != granules {
            return None;
        }
        let block = bin.blocks.pop()?;
        bin.refusals = 0;
        self.granules -= granules;
        if self.generations == 0 {
            self.generation = region.take_generations(GENERATIONS);
            self.generations = GENERATIONS;
        }
        block.begin(self.generation, length);
        self.generation += 1;
        self.generations -= 1;
        self.counters.allocated(length);
        Some(block)
    }

    /// Take the block if there is room for it.
    fn put(&mut self, block: &mut Option<Arc<Block>>) {
        let Some((granules, length)) = block
            .as_ref()
            .map(|block| (block.granules(), block.bytes()))
        else {
            return;
        };
        let bin = &mut self.bins[bin_of(granules)];
        if bin.granules != granules {
            if !bin.blocks.is_empty() {
                bin.refusals += 1;
                return;
            }
            // The first of a size leaves its mark only: a size that does not come again is no use on a shelf.
            bin.granules = granules;
            return;
        }
        let is_room = self.granules + granules <= self.granules_max;
        if self.open && is_room && bin.blocks.len() < BIN_BLOCKS_MAX {
            self.counters.freed(length);
            self.granules += granules;
            bin.blocks.extend(block.take());
        }
    }
}

/// The bin that a size may have.
#[allow(clippy::cast_possible_truncation)] // five bits are left
fn bin_of(granules: u64) -> usize {
    (granules.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - BINS.ilog2())) as usize
}
