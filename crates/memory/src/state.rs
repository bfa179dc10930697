//! What lies under a region's lock: chunks, allocator and live blocks.
//!
//! Methods hand out chunks that are no longer needed instead of dropping them: unmapping is slow, and happens unlocked.
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::thread::ThreadId;

use crate::backing::{Backed, Backing};
use crate::block::{Block, BlockRegion, Location};
use crate::blocks::Blocks;
use crate::chunk::{Chunk, Fresh};
use crate::chunk_mapping::ChunkMapping;
use crate::config::{LARGE_BYTES, PAGE_BYTES, SHELVES_MAX};
use crate::counters::Counters;
use crate::error::Error;
use crate::heap::{Effort, GRANULE_BYTES, Grant, Heap, granules};
use crate::identity::Identity;
use crate::reference::Reference;
use crate::registrar::Registrars;
use crate::shelf::{self, Shelf};
use crate::stats::Stats;

/// Chunks are a multiple of a huge page where the limit leaves room for it.
const CHUNK_ALIGN_BYTES: u64 = 2 << 20;

/// Everything that changes in a region.
#[derive(Debug)]
pub(crate) struct State {
    heap: Heap,
    /// In the order of their numbers.
    pub(crate) chunks: Vec<Chunk>,
    chunks_made: u32,
    blocks: Blocks,
    /// One for each thread that freed something, until it ends.
    shelves: Vec<Arc<Shelf>>,
    /// How many guards keep a block in quarantine, by generation.
    quarantine: HashMap<u64, u32>,
    /// Notified of each chunk.
    pub(crate) registrars: Registrars,
    /// What the last chunk was made of.
    pub(crate) backed: Option<Backed>,
    /// The thread that has the turn to get a chunk.
    pub(crate) turn: Option<ThreadId>,
    pub(crate) closed: bool,
    /// What was allocated and freed, but for what shelves have counted since they were last asked.
    counters: Counters,
    /// Limits, and what is mapped and in quarantine; the rest is filled in by [`State::stats`].
    stats: Stats,
}

impl State {
    pub(crate) fn new(limit_bytes: u64, region: Weak<dyn BlockRegion>) -> Self {
        Self {
            heap: Heap::new(),
            chunks: Vec::new(),
            chunks_made: 0,
            blocks: Blocks::new(region),
            shelves: Vec::new(),
            quarantine: HashMap::new(),
            registrars: Registrars::new(),
            backed: None,
            turn: None,
            closed: false,
            counters: Counters::default(),
            stats: Stats {
                limit_bytes,
                ..Stats::default()
            },
        }
    }

    /// Allocate `length` bytes where there is room, and make a block of them; `None` without a further chunk.
    ///
    /// A quick search first, then one that looks everywhere.
    pub(crate) fn allocate(
        &mut self,
        region: &Identity,
        length: u64,
    ) -> Result<Option<Arc<Block>>, Error> {
        if self.is_quarantine_full(region) {
            return Err(self.quarantine_full(region, length));
        }
        let align = align_of(length);
        let heap = &mut self.heap;
        let grant = match heap.allocate(length, align, Effort::Quick) {
            None => heap.allocate(length, align, Effort::Full),
            grant => grant,
        };
        Ok(grant.map(|grant| self.begin(region, grant, length)))
    }

    /// Give a block's memory back; returns the chunks that are not needed any more.
    pub(crate) fn release(&mut self, region: &Identity, block: Arc<Block>) -> Vec<Chunk> {
        let (length, chunk) = (block.bytes(), block.grant().chunk);
        if let Some(counters) = shelf::with_own(region.id(), |shelf| shelf.take_counters()) {
            self.counters.add(counters);
        }
        self.counters.freed(length);
        self.free(block);
        let pop_stale = || shelf::with_own(region.id(), |shelf| shelf.pop_stale(length))?;
        while let Some(stale) = pop_stale() {
            self.free(stale);
        }
        if self.closed {
            self.take_empty()
        } else {
            self.take_idle(chunk, region.config().idle_bytes_max)
        }
    }

    /// The block that a reference names, with one more holder; the caller compares the whole reference.
    pub(crate) fn find(&self, reference: &Reference) -> Option<Arc<Block>> {
        self.blocks.find(reference)
    }

    /// Keep a thread's shelf, to be collected; `false` where no further one may be.
    pub(crate) fn enlist(&mut self, theirs: &Arc<Shelf>) -> bool {
        let kept = !self.closed && self.shelves.len() < SHELVES_MAX;
        if kept {
            self.shelves.push(Arc::clone(theirs));
        }
        kept
    }

    /// Take a shelf back from a thread that ends; returns the chunks that are not needed any more.
    pub(crate) fn retire_shelf(&mut self, region: &Identity, theirs: &Arc<Shelf>) -> Vec<Chunk> {
        theirs.close();
        let mut found = Vec::new();
        self.counters.add(theirs.take_counters());
        theirs.drain(&mut found);
        self.shelves.retain(|kept| !Arc::ptr_eq(kept, theirs));
        let mut gone = Vec::new();
        for block in found {
            let chunk = block.grant().chunk;
            self.free(block);
            gone.append(&mut self.take_idle(chunk, region.config().idle_bytes_max));
        }
        gone
    }

    /// Free what lies on all shelves.
    pub(crate) fn collect(&mut self) {
        let mut found = Vec::new();
        for shelf in &self.shelves {
            self.counters.add(shelf.take_counters());
            shelf.drain(&mut found);
        }
        self.free_all(found);
    }

    /// Refuse from now on; returns the chunks that are not needed any more.
    pub(crate) fn close(&mut self) -> Vec<Chunk> {
        self.closed = true;
        for shelf in &self.shelves {
            shelf.close();
        }
        self.collect();
        self.shelves = Vec::new();
        self.blocks.end_spares();
        self.take_empty()
    }

    fn bytes_of(&self, pages: Backing) -> u64 {
        let ours = self.chunks.iter().filter(|chunk| chunk.pages == pages);
        ours.map(|chunk| chunk.bytes).sum()
    }

    /// How many blocks are live, but for what shelves have counted since they were last asked.
    pub(crate) fn live(&self) -> u64 {
        self.counters.blocks.max(0).cast_unsigned()
    }

    pub(crate) fn stats(&mut self) -> Stats {
        let (mut shelved_blocks, mut shelved_bytes) = (0, 0);
        for shelf in &self.shelves {
            self.counters.add(shelf.take_counters());
            let (blocks, bytes) = shelf.holds();
            shelved_blocks += blocks;
            shelved_bytes += bytes;
        }
        // Below nought for a moment, where a block that one thread allocated was freed by another while this adds up.
        let live_bytes = self.live_bytes();
        Stats {
            live_bytes,
            live_bytes_peak: self.counters.high.max(0).cast_unsigned(),
            waste_bytes: self.stats.mapped_bytes.saturating_sub(live_bytes),
            blocks: self.live(),
            shelved_blocks,
            shelved_bytes,
            quarantined_blocks: self.quarantine.len() as u64,
            hugetlb_bytes: self.bytes_of(Backing::HugeTlb),
            transparent_bytes: self.bytes_of(Backing::Transparent),
            chunks: self.chunks.len() as u64,
            allocations: self.counters.allocations,
            ..self.stats
        }
    }

    /// How large a chunk to map for a block, after empty ones were given up for it if they had to be.
    pub(crate) fn make_room(
        &mut self,
        region: &Identity,
        bytes: u64,
    ) -> (Result<u64, Error>, Vec<Chunk>) {
        let mut gone = Vec::new();
        if self.room() < bytes.max(1) {
            gone = self.take_empty();
        }
        if self.room() < bytes.max(1) {
            return (Err(self.full(region, bytes)), gone);
        }
        let wanted = bytes.max(region.config().chunk_bytes).max(1);
        let chunk_bytes = wanted
            .checked_next_multiple_of(CHUNK_ALIGN_BYTES)
            .unwrap_or(wanted)
            .min(self.room());
        (Ok(chunk_bytes), gone)
    }

    /// The number of the next chunk. Never again the same one: peers remember chunks by it.
    pub(crate) fn next_chunk(&self) -> u32 {
        self.chunks_made
    }

    /// Give a fresh chunk, which has the next number, to the allocator, and make the block in it that it was mapped for.
    pub(crate) fn settle(&mut self, region: &Identity, fresh: Fresh, length: u64) -> Arc<Block> {
        debug_assert_eq!(fresh.id, self.chunks_made, "one at a time");
        let bytes = fresh.bytes;
        let root = self.heap.add(fresh.id, bytes);
        self.backed = Some(fresh.backed.clone());
        self.chunks.push(fresh.into_chunk(root));
        self.chunks_made += 1;
        self.stats.mapped_bytes += bytes;
        self.stats.mapped_bytes_peak = self.stats.mapped_bytes_peak.max(self.stats.mapped_bytes);
        let grant = self
            .heap
            .allocate(length, align_of(length), Effort::Full)
            .expect("a fresh chunk has room for its block");
        self.begin(region, grant, length)
    }

    /// The memory of all chunks, which stays mapped while it is held.
    pub(crate) fn mappings(&self) -> Vec<Arc<ChunkMapping>> {
        let mappings = self.chunks.iter().map(|chunk| Arc::clone(&chunk.mapping));
        mappings.collect()
    }

    /// Count a block as one that the kernel or a peer may still write.
    pub(crate) fn enter_quarantine(&mut self, reference: Reference) {
        let guards = self.quarantine.entry(reference.generation).or_default();
        *guards += 1;
        if *guards == 1 {
            self.stats.quarantined_bytes += reference.length;
        }
    }

    /// Drop one guard of a block; the last one takes it out of quarantine.
    pub(crate) fn leave_quarantine(&mut self, reference: Reference) {
        let Some(guards) = self.quarantine.get_mut(&reference.generation) else {
            debug_assert!(false, "{reference} is not in quarantine");
            return;
        };
        *guards -= 1;
        if *guards == 0 {
            self.quarantine.remove(&reference.generation);
            self.stats.quarantined_bytes -= reference.length;
        }
    }

    /// Whether so much may still be written by others that nothing more is handed out.
    pub(crate) fn is_quarantine_full(&self, region: &Identity) -> bool {
        self.stats.quarantined_bytes > region.config().quarantine_bytes_max
    }

    /// What the limit still allows to map, in whole pages.
    fn room(&self) -> u64 {
        (self.stats.limit_bytes - self.stats.mapped_bytes) / PAGE_BYTES * PAGE_BYTES
    }

    /// Begin an allocation in what the allocator granted.
    fn begin(&mut self, region: &Identity, grant: Grant, length: u64) -> Arc<Block> {
        let at = self.position(grant.chunk);
        let mapping = Arc::clone(&self.chunks[at].mapping);
        let block = self.blocks.make(Location { mapping, grant });
        block.begin(region.take_generations(1), length);
        // In the order in which they happened, so that the most that was live is right where one thread is at work.
        if let Some(counters) = shelf::with_own(region.id(), |shelf| shelf.take_counters()) {
            self.counters.add(counters);
        }
        self.counters.allocated(length);
        block
    }

    /// Give the memory of a block without holders back to the allocator.
    fn free(&mut self, block: Arc<Block>) {
        let grant = self.blocks.end(block);
        self.heap.free(grant.node);
    }

    fn free_all(&mut self, blocks: Vec<Arc<Block>>) {
        for block in blocks {
            self.free(block);
        }
    }

    fn position(&self, chunk: u32) -> usize {
        (self.chunks.binary_search_by_key(&chunk, |chunk| chunk.id))
            .expect("granted from a chunk that is here")
    }

    /// Take out a chunk that has become empty, if there is more idle memory than may be. One is kept in any case:
    /// a program that frees its only block and allocates the next one would map memory for each.
    fn take_idle(&mut self, chunk: u32, idle_bytes_max: u64) -> Vec<Chunk> {
        let at = self.position(chunk);
        if !self.heap.is_empty(self.chunks[at].root) {
            return Vec::new();
        }
        let idle = (self.chunks.iter()).filter(|chunk| self.heap.is_empty(chunk.root));
        let (count, bytes) = idle.fold((0, 0), |(count, bytes), chunk| {
            (count + 1, bytes + chunk.bytes)
        });
        if count == 1 || bytes <= idle_bytes_max {
            return Vec::new();
        }
        let gone = self.chunks.remove(at);
        self.heap.remove(gone.root);
        self.stats.mapped_bytes -= gone.bytes;
        vec![gone]
    }

    /// Take out the chunks in which nothing is allocated; dropping them unmaps them.
    pub(crate) fn take_empty(&mut self) -> Vec<Chunk> {
        let Self {
            chunks,
            heap,
            stats,
            ..
        } = self;
        let gone: Vec<_> = chunks
            .extract_if(.., |chunk| heap.is_empty(chunk.root))
            .collect();
        for chunk in &gone {
            heap.remove(chunk.root);
            stats.mapped_bytes -= chunk.bytes;
        }
        gone
    }

    fn live_bytes(&self) -> u64 {
        self.counters.live.max(0).cast_unsigned()
    }

    fn full(&self, region: &Identity, asked: u64) -> Error {
        Error::Full {
            arena: region.name().to_owned(),
            asked,
            live: self.live_bytes(),
            blocks: self.live(),
            limit: self.stats.limit_bytes,
        }
    }

    fn quarantine_full(&self, region: &Identity, asked: u64) -> Error {
        Error::Quarantine {
            arena: region.name().to_owned(),
            asked,
            quarantined: self.stats.quarantined_bytes,
            blocks: self.quarantine.len() as u64,
            limit: region.config().quarantine_bytes_max,
        }
    }
}

/// Where a block of that size may begin: the same for all that are as large in granules,
/// because they share a bin of a shelf.
fn align_of(length: u64) -> u64 {
    if granules(length) >= LARGE_BYTES / GRANULE_BYTES {
        PAGE_BYTES
    } else {
        GRANULE_BYTES
    }
}
