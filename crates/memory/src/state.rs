//! What lies under a region's lock: chunks, allocator and live blocks.
//!
//! Methods hand out chunks that are no longer needed instead of dropping them: unmapping is slow, and happens unlocked.
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Weak};

use crate::chunk::{Chunk, Fresh};
use crate::config::{LARGE_BYTES, PAGE_BYTES};
use crate::error::Error;
use crate::heap::{Effort, GRANULE_BYTES, Grant, Heap};
use crate::lease::Block;
use crate::reference::Reference;
use crate::region::Inner;
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
    pub(crate) closed: bool,
    /// `blocks`, `chunks` and `waste_bytes` are filled in when somebody asks.
    stats: Stats,
}

impl State {
    pub(crate) fn new(limit_bytes: u64) -> Self {
        Self {
            heap: Heap::new(),
            chunks: Vec::new(),
            chunks_made: 0,
            blocks: HashMap::default(),
            closed: false,
            stats: Stats {
                limit_bytes,
                ..Stats::default()
            },
        }
    }

    /// Allocate `length` bytes and make a block of them.
    ///
    /// Returns the chunks that were given up for it too, to be unmapped without the lock.
    pub(crate) fn allocate(
        &mut self,
        inner: &Arc<Inner>,
        length: u64,
    ) -> Result<(Arc<Block>, Vec<Chunk>), Error> {
        let align = if length >= LARGE_BYTES {
            PAGE_BYTES
        } else {
            GRANULE_BYTES
        };
        let (grant, gone) = match self.heap.allocate(length, align, Effort::Quick) {
            Some(grant) => (grant, Vec::new()),
            None => self.allocate_hard(inner, length, align)?,
        };
        Ok((self.adopt(inner, grant, length), gone))
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
            chunks: self.chunks.len() as u64,
            waste_bytes: self.stats.mapped_bytes - self.stats.live_bytes,
            ..self.stats
        }
    }

    /// Allocate where a quick search found nothing: look everywhere, then map a chunk, trading empty ones for it.
    fn allocate_hard(
        &mut self,
        inner: &Inner,
        bytes: u64,
        align: u64,
    ) -> Result<(Grant, Vec<Chunk>), Error> {
        if let Some(grant) = self.heap.allocate(bytes, align, Effort::Full) {
            return Ok((grant, Vec::new()));
        }
        let mut gone = Vec::new();
        if self.room() < bytes.max(1) {
            gone = self.take_empty();
        }
        if self.room() < bytes.max(1) {
            return Err(self.full(inner, bytes));
        }
        let wanted = bytes.max(inner.config.chunk_bytes).max(1);
        let chunk_bytes = wanted
            .checked_next_multiple_of(CHUNK_ALIGN_BYTES)
            .unwrap_or(wanted)
            .min(self.room());
        self.map(inner, chunk_bytes)?;
        let grant = self
            .heap
            .allocate(bytes, align, Effort::Full)
            .expect("a fresh chunk has room for its block");
        Ok((grant, gone))
    }

    /// What the limit still allows to map, in whole pages.
    fn room(&self) -> u64 {
        (self.stats.limit_bytes - self.stats.mapped_bytes) / PAGE_BYTES * PAGE_BYTES
    }

    fn map(&mut self, inner: &Inner, bytes: u64) -> Result<(), Error> {
        let arena = &inner.config.name;
        let fresh = Fresh::new(arena, bytes).map_err(|(call, source)| Error::System {
            arena: arena.clone(),
            call,
            bytes,
            source,
        })?;
        let root = self.heap.add(self.chunks_made, bytes);
        self.chunks.push(fresh.into_chunk(self.chunks_made, root));
        // Never again the same number: peers remember chunks by it.
        self.chunks_made += 1;
        self.stats.mapped_bytes += bytes;
        self.stats.mapped_bytes_peak = self.stats.mapped_bytes_peak.max(self.stats.mapped_bytes);
        Ok(())
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
            mapping: Arc::clone(&self.chunks[at].mapping),
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
}
