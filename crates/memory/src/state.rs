//! What lies under a region's lock: chunks, allocator and live blocks.
//!
//! Methods hand out chunks that are no longer needed instead of dropping them: unmapping is slow, and happens unlocked.
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Weak};
use std::thread::ThreadId;

use crate::chunk::{Chunk, Fresh};
use crate::config::{LARGE_BYTES, PAGE_BYTES};
use crate::error::Error;
use crate::ground::Ground;
use crate::heap::{Effort, GRANULE_BYTES, Grant, Heap};
use crate::lease::Block;
use crate::reference::Reference;
use crate::region::Inner;
use crate::registrar::Registrars;
use crate::stats::Stats;

/// Chunks are a multiple of a huge page where the limit leaves room for it.
const CHUNK_ALIGN_BYTES: u64 = 2 << 20;

/// Generations are consecutive numbers: one multiplication spreads them, where the standard hasher takes 15 ns.
#[derive(Debug, Default)]
struct GenerationHasher(u64);

impl Hasher for GenerationHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, generation: u64) {
        self.0 = generation.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(self.0 ^ u64::from(byte));
        }
    }
}

/// Everything that changes in a region.
#[derive(Debug)]
pub(crate) struct State {
    heap: Heap,
    /// In the order of their numbers.
    pub(crate) chunks: Vec<Chunk>,
    chunks_made: u32,
    /// Live blocks by generation.
    blocks: HashMap<u64, Weak<Block>, BuildHasherDefault<GenerationHasher>>,
    /// How many guards keep a block in quarantine, by generation.
    quarantine: HashMap<u64, u32, BuildHasherDefault<GenerationHasher>>,
    /// Told of each chunk.
    pub(crate) registrars: Registrars,
    /// Who has the turn to get a chunk.
    pub(crate) turn: Option<ThreadId>,
    pub(crate) closed: bool,
    /// `blocks`, `quarantined_blocks`, `chunks` and `waste_bytes` are filled in when somebody asks.
    stats: Stats,
}

impl State {
    pub(crate) fn new(limit_bytes: u64) -> Self {
        Self {
            heap: Heap::new(),
            chunks: Vec::new(),
            chunks_made: 0,
            blocks: HashMap::default(),
            quarantine: HashMap::default(),
            registrars: Registrars::new(),
            turn: None,
            closed: false,
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
        inner: &Arc<Inner>,
        length: u64,
    ) -> Result<Option<Arc<Block>>, Error> {
        if self.stats.quarantined_bytes > inner.config.quarantine_bytes_max {
            return Err(self.quarantine_full(inner, length));
        }
        let align = align_of(length);
        let heap = &mut self.heap;
        let grant = match heap.allocate(length, align, Effort::Quick) {
            None => heap.allocate(length, align, Effort::Full),
            grant => grant,
        };
        Ok(grant.map(|grant| self.adopt(inner, grant, length)))
    }

    /// Give a block's memory back; returns the chunks that nobody needs any more.
    pub(crate) fn release(&mut self, block: &Block) -> Vec<Chunk> {
        self.blocks.remove(&block.reference.generation);
        self.heap.free(block.node);
        self.stats.live_bytes -= block.reference.length;
        if self.closed {
            self.take_empty()
        } else {
            Vec::new()
        }
    }

    /// The live block of a generation.
    pub(crate) fn block(&self, generation: u64) -> Option<Arc<Block>> {
        self.blocks.get(&generation).and_then(Weak::upgrade)
    }

    /// How many blocks are live.
    pub(crate) fn live(&self) -> u64 {
        self.blocks.len() as u64
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats {
            blocks: self.blocks.len() as u64,
            quarantined_blocks: self.quarantine.len() as u64,
            chunks: self.chunks.len() as u64,
            waste_bytes: self.stats.mapped_bytes - self.stats.live_bytes,
            ..self.stats
        }
    }

    /// How large a chunk to map for a block, after empty ones were given up for it if they had to be.
    pub(crate) fn make_room(
        &mut self,
        inner: &Inner,
        bytes: u64,
    ) -> (Result<u64, Error>, Vec<Chunk>) {
        let mut gone = Vec::new();
        if self.room() < bytes.max(1) {
            gone = self.take_empty();
        }
        if self.room() < bytes.max(1) {
            return (Err(self.full(inner, bytes)), gone);
        }
        let wanted = bytes.max(inner.config.chunk_bytes).max(1);
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
    pub(crate) fn settle(&mut self, inner: &Arc<Inner>, fresh: Fresh, length: u64) -> Arc<Block> {
        debug_assert_eq!(fresh.id, self.chunks_made, "one at a time");
        let bytes = fresh.bytes;
        let root = self.heap.add(fresh.id, bytes);
        self.chunks.push(fresh.into_chunk(root));
        self.chunks_made += 1;
        self.stats.mapped_bytes += bytes;
        self.stats.mapped_bytes_peak = self.stats.mapped_bytes_peak.max(self.stats.mapped_bytes);
        let grant = self
            .heap
            .allocate(length, align_of(length), Effort::Full)
            .expect("a fresh chunk has room for its block");
        self.adopt(inner, grant, length)
    }

    /// The memory of all chunks, which stays mapped while it is held.
    pub(crate) fn grounds(&self) -> Vec<Arc<Ground>> {
        let grounds = self.chunks.iter().map(|chunk| Arc::clone(&chunk.ground));
        grounds.collect()
    }

    /// Count a block as one that somebody else may still write.
    pub(crate) fn enter_quarantine(&mut self, reference: Reference) {
        let guards = self.quarantine.entry(reference.generation).or_default();
        *guards += 1;
        if *guards == 1 {
            self.stats.quarantined_bytes += reference.length;
        }
    }

    /// Take one guard's word that nobody writes the block; the last one's counts.
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

    /// What the limit still allows to map, in whole pages.
    fn room(&self) -> u64 {
        (self.stats.limit_bytes - self.stats.mapped_bytes) / PAGE_BYTES * PAGE_BYTES
    }

    /// Make a block of what the allocator granted.
    fn adopt(&mut self, inner: &Arc<Inner>, grant: Grant, length: u64) -> Arc<Block> {
        let Grant {
            node,
            chunk,
            offset,
            ..
        } = grant;
        self.stats.allocations += 1;
        self.stats.live_bytes += length;
        self.stats.live_bytes_peak = self.stats.live_bytes_peak.max(self.stats.live_bytes);
        let generation = self.stats.allocations;
        let at = self
            .chunks
            .binary_search_by_key(&chunk, |chunk| chunk.id)
            .expect("granted from a chunk that is here");
        let block = Arc::new(Block {
            region: Arc::clone(inner),
            ground: Arc::clone(&self.chunks[at].ground),
            reference: Reference {
                region: inner.id,
                chunk,
                offset,
                length,
                generation,
            },
            node,
        });
        self.blocks.insert(generation, Arc::downgrade(&block));
        block
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

    fn full(&self, inner: &Inner, asked: u64) -> Error {
        Error::Full {
            arena: inner.config.name.clone(),
            asked,
            live: self.stats.live_bytes,
            blocks: self.blocks.len() as u64,
            limit: self.stats.limit_bytes,
        }
    }

    fn quarantine_full(&self, inner: &Inner, asked: u64) -> Error {
        Error::Quarantine {
            arena: inner.config.name.clone(),
            asked,
            quarantined: self.stats.quarantined_bytes,
            blocks: self.quarantine.len() as u64,
            limit: inner.config.quarantine_bytes_max,
        }
    }
}

/// Where a block of that size may begin.
fn align_of(length: u64) -> u64 {
    if length >= LARGE_BYTES {
        PAGE_BYTES
    } else {
        GRANULE_BYTES
    }
}
