//! Arenas against a model: what several threads allocate, fill, lend, free and trim at once.
#![allow(clippy::disallowed_methods)] // plain threads stand for the systems that allocate

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread;

use forebay_memory::{Config, Error, Lease, Reference, Region};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const LIMIT_BYTES: u64 = 12 * MIB;
const CHUNK_BYTES: u64 = 2 * MIB;
const STEPS: usize = 600;
const HELD_MAX: usize = 40;
const THREADS: u64 = 4;

/// A small generator of its own, for each thread (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((z ^ (z >> 31)) % n as u64).expect("below n")
    }

    /// Mostly sizes that come again, some ragged ones, some that need a chunk of their own.
    fn bytes(&mut self) -> usize {
        match self.below(20) {
            0 => self.below(3 << 20),
            1..6 => self.below(100_000),
            _ => [0, 64, 4096, 65_536, 262_144][self.below(5)],
        }
    }
}

/// What is live, by address: each entry ends before the next one begins; and by chunk and offset.
#[derive(Default)]
struct Live(
    Mutex<BTreeMap<usize, usize>>,
    Mutex<BTreeMap<(u32, u64), u64>>,
);

impl Live {
    fn add(&self, block: &Lease) {
        let (start, bytes) = (block.as_ptr().addr().get(), block.len().max(1));
        let mut live = self.0.lock().expect("no panic");
        let before = live.range(..=start).next_back();
        assert!(before.is_none_or(|(&at, &length)| at + length <= start));
        let after = live.range(start..).next();
        assert!(after.is_none_or(|(&at, _)| start + bytes <= at));
        live.insert(start, bytes);
        let Reference {
            chunk,
            offset,
            length,
            ..
        } = block.reference();
        (self.1.lock().expect("no panic")).insert((chunk, offset), length.max(1));
    }

    fn remove(&self, block: &Lease) {
        let gone = (self.0.lock().expect("no panic")).remove(&block.as_ptr().addr().get());
        assert_eq!(gone, Some(block.len().max(1)));
        let Reference { chunk, offset, .. } = block.reference();
        (self.1.lock().expect("no panic")).remove(&(chunk, offset));
    }

    /// Where a block of so many bytes fits between live ones; what lies behind the last one of a chunk counts up
    /// to the next multiple of what all chunks are a multiple of.
    fn gap_for(&self, bytes: u64) -> Option<(u32, u64)> {
        let align = align_of(bytes);
        let live = self.1.lock().expect("no panic");
        let mut ends: BTreeMap<u32, u64> = BTreeMap::new();
        for (&(chunk, start), &length) in live.iter() {
            let end = ends.entry(chunk).or_default();
            if end.next_multiple_of(align) + granules(bytes) <= start {
                return Some((chunk, *end));
            }
            *end = start + granules(length);
        }
        let fits = |&(_, end): &(u32, u64)| {
            end.next_multiple_of(align) + granules(bytes) <= end.next_multiple_of(CHUNK_BYTES)
        };
        ends.into_iter().find(fits)
    }
}

/// What a block takes, in bytes.
fn granules(bytes: u64) -> u64 {
    bytes.max(1).next_multiple_of(64)
}

fn align_of(bytes: u64) -> u64 {
    if bytes >= 64 << 10 { 4096 } else { 64 }
}

/// A block with what was written into it.
struct Held {
    block: Lease,
    fill: u8,
}

impl Held {
    /// End it: it must hold what was written, and its reference be refused afterwards.
    fn end(mut self, region: &Region, live: &Live) -> Reference {
        let reference = self.block.reference();
        let bytes = self.block.bytes_mut().expect("the only lease");
        // All alike: each byte as the one before it.
        assert!(bytes.first().is_none_or(|&byte| byte == self.fill));
        assert!(
            bytes
                .get(1..)
                .is_none_or(|rest| *rest == bytes[..rest.len()])
        );
        live.remove(&self.block);
        drop(self.block);
        assert!(matches!(region.lease(&reference), Err(Error::Stale { .. })));
        reference
    }
}

struct Thread<'a> {
    region: &'a Region,
    live: &'a Live,
    /// Blocks on their way from one thread to another.
    exchange: &'a Mutex<Vec<Held>>,
    dice: Dice,
    held: Vec<Held>,
    dead: Vec<Reference>,
    /// Nobody else uses the region.
    alone: bool,
}

impl Thread<'_> {
    fn step(&mut self) {
        match self.dice.below(20) {
            0 => drop(self.region.trim().expect("open")),
            1 => self.exchange_one(),
            2 => self.lend_one(),
            _ if self.held.len() == HELD_MAX || self.dice.below(2) == 0 => self.end_one(),
            _ => self.allocate_one(),
        }
        for reference in self.dead.iter().rev().take(3) {
            let outcome = self.region.lease(reference);
            assert!(matches!(outcome, Err(Error::Stale { .. })), "{outcome:?}");
        }
    }

    fn allocate_one(&mut self) {
        let bytes = self.dice.bytes();
        let mut block = match self.region.allocate(bytes) {
            Ok(block) => block,
            Err(Error::Full { limit, .. }) => {
                assert_eq!(limit, LIMIT_BYTES);
                if self.alone {
                    self.check_refusal(bytes as u64);
                }
                return self.end_one();
            }
            Err(other) => panic!("{other}"),
        };
        let align = align_of(bytes as u64);
        assert!((block.as_ptr().addr().get() as u64).is_multiple_of(align));
        self.live.add(&block);
        let fill = u8::try_from(self.dice.below(256)).expect("a byte");
        block.bytes_mut().expect("the only lease").fill(fill);
        self.held.push(Held { block, fill });
    }

    /// A refusal is right where neither a gap between blocks nor a further chunk has room; others may allocate meanwhile.
    fn check_refusal(&self, bytes: u64) {
        let gap = self.live.gap_for(bytes);
        assert_eq!(
            gap, None,
            "{bytes} bytes were refused beside a gap for them"
        );
        let mapped = self.region.stats().expect("owner").mapped_bytes;
        assert!(
            LIMIT_BYTES - mapped < granules(bytes),
            "{bytes} bytes were refused with {mapped} mapped"
        );
    }

    fn end_one(&mut self) {
        if !self.held.is_empty() {
            let at = self.dice.below(self.held.len());
            let reference = self.held.swap_remove(at).end(self.region, self.live);
            self.dead.push(reference);
        }
    }

    /// Give a block away and take one that another thread allocated.
    fn exchange_one(&mut self) {
        let mut exchange = self.exchange.lock().expect("no panic");
        let taken = exchange.pop();
        exchange.extend(self.held.pop());
        self.held.extend(taken);
    }

    /// A further lease keeps the block from being written and from being freed.
    fn lend_one(&mut self) {
        if let Some(held) = self.held.last_mut() {
            let further = self.region.lease(&held.block.reference()).expect("live");
            assert!(held.block.bytes_mut().is_none());
            assert_eq!(further.reference(), held.block.reference());
        }
    }
}

fn check(seed: u64, threads: u64, shelf_bytes_max: u64) {
    let config = Config::new("model", LIMIT_BYTES)
        .chunk_bytes(CHUNK_BYTES)
        .idle_bytes_max(4 * MIB)
        .shelf_bytes_max(shelf_bytes_max);
    let region = Region::new(config).expect("a region");
    let (live, exchange) = (Live::default(), Mutex::default());
    thread::scope(|scope| {
        for number in 0..threads {
            let (region, live, exchange) = (&region, &live, &exchange);
            scope.spawn(move || {
                let mut thread = Thread {
                    region,
                    live,
                    exchange,
                    dice: Dice(seed ^ (number << 32)),
                    held: Vec::new(),
                    dead: Vec::new(),
                    alone: threads == 1,
                };
                (0..STEPS).for_each(|_| thread.step());
                (exchange.lock().expect("no panic")).append(&mut thread.held);
            });
        }
    });
    let left = exchange.into_inner().expect("no panic");
    let stats = region.stats().expect("owner");
    let bytes: usize = left.iter().map(|held| held.block.len()).sum();
    assert_eq!(
        (stats.blocks, stats.live_bytes),
        (left.len() as u64, bytes as u64)
    );
    assert_eq!(stats.waste_bytes, stats.mapped_bytes - stats.live_bytes);
    assert!(stats.live_bytes <= stats.live_bytes_peak && stats.mapped_bytes_peak <= LIMIT_BYTES);
    for held in left {
        held.end(&region, &live);
    }
    region.trim().expect("open");
    let stats = region.stats().expect("owner");
    assert_eq!(
        (stats.blocks, stats.live_bytes, stats.shelved_bytes),
        (0, 0, 0)
    );
    assert_eq!((stats.chunks, stats.mapped_bytes), (0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn several_threads_agree_with_the_model(seed: u64, has_shelves: bool) {
        check(seed, THREADS, if has_shelves { MIB } else { 0 });
    }

    #[test]
    fn one_thread_agrees_with_the_model(seed: u64, has_shelves: bool) {
        check(seed, 1, if has_shelves { MIB } else { 0 });
    }
}
