//! A region's blocks by their locations, and spare ones for those to come.
//!
//! A block is among them for as long as the allocator has granted its location, be it held or on a shelf.
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Weak};

use crate::block::{Block, BlockRegion, Location};
use crate::heap::Grant;
use crate::reference::Reference;

/// Spare blocks save the global allocator a call each way; beyond so many, they are ended.
const SPARES_MAX: usize = 1024;

/// Offsets are multiples of granules: a multiplication for each part spreads them, where the standard hasher takes 15 ns.
#[derive(Debug, Default)]
pub(crate) struct LocationHasher(u64);

impl Hasher for LocationHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write_u64(&mut self, part: u64) {
        self.0 = (self.0.rotate_left(5) ^ part).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn write_u32(&mut self, part: u32) {
        self.write_u64(part.into());
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }
}

#[derive(Debug)]
pub(crate) struct Blocks {
    /// What each block keeps.
    region: Weak<dyn BlockRegion>,
    /// By chunk and offset.
    by_location: HashMap<(u32, u64), Arc<Block>, BuildHasherDefault<LocationHasher>>,
    spare: Vec<Arc<Block>>,
    /// No block is made any more. A spare one would keep its region, which keeps it.
    closed: bool,
}

impl Blocks {
    /// None yet; those of `region`.
    pub(crate) fn new(region: Weak<dyn BlockRegion>) -> Self {
        Self {
            region,
            by_location: HashMap::default(),
            spare: Vec::new(),
            closed: false,
        }
    }

    /// Make a block at a location, without holders yet.
    pub(crate) fn make(&mut self, location: Location) -> Arc<Block> {
        let at = (location.grant.chunk, location.grant.offset);
        let block = if let Some(mut spare) = self.spare.pop() {
            let alone = Arc::get_mut(&mut spare).expect("put there by its only owner");
            alone.move_to(Some(location));
            spare
        } else {
            let region = self.region.upgrade().expect("whoever allocates has it");
            Arc::new(Block::new(region, location))
        };
        let before = self.by_location.insert(at, Arc::clone(&block));
        debug_assert!(before.is_none(), "two blocks at one location");
        block
    }

    /// The block that a reference names, with one more holder; the caller compares the whole reference.
    pub(crate) fn find(&self, reference: &Reference) -> Option<Arc<Block>> {
        let block = self.by_location.get(&(reference.chunk, reference.offset))?;
        block.find(reference.generation).then(|| Arc::clone(block))
    }

    /// End a block without holders, and keep what is left of it as a spare; returns what it was granted.
    pub(crate) fn end(&mut self, mut block: Arc<Block>) -> Grant {
        let grant = *block.grant();
        let removed = self.by_location.remove(&(grant.chunk, grant.offset));
        debug_assert!(removed.is_some(), "a block at no location");
        drop(removed);
        // A thread that has dropped its lease may not have dropped the block yet: then that thread ends it.
        if let Some(alone) = Arc::get_mut(&mut block) {
            // The chunk still owns a share of its mapping, so no memory is unmapped here.
            alone.move_to(None);
            if !self.closed && self.spare.len() < SPARES_MAX {
                self.spare.push(block);
            }
        }
        grant
    }

    /// End the spare blocks, each of which has a share of the region, and keep none from now on.
    pub(crate) fn end_spares(&mut self) {
        self.closed = true;
        self.spare = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use crate::region::Region;

    #[test]
    #[cfg_attr(miri, ignore = "system calls about maps and forks, which miri has not")]
    fn a_region_that_a_lease_outlives_goes_with_the_lease() {
        for bytes in [64, 1 << 10, 300 << 10] {
            let region = Region::new(Config::new("test", 1 << 20)).expect("a region");
            let held = region.allocate(bytes).expect("room");
            let shelved = [region.allocate(bytes), region.allocate(bytes)];
            drop(shelved);
            let inner = region.watch();
            drop(region);
            assert!(inner.upgrade().is_some(), "its lease needs it");
            drop(held);
            assert!(inner.upgrade().is_none(), "{bytes} bytes keep it");
        }
    }
}
