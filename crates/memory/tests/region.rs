//! Regions with real memory: leases, references, the limit, closing, threads.
#![allow(clippy::disallowed_methods)] // plain threads stand for the systems that allocate

use std::fs;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread;

use forebay_memory::{Config, Error, Lease, Reference, Region};

const MIB: u64 = 1 << 20;

fn region(limit_bytes: u64) -> Region {
    Region::new(Config::new("test", limit_bytes).chunk_bytes(2 * MIB)).expect("a region")
}

/// Bytes of this process's address space that are mapped from the arena `name`.
fn mapped_bytes(name: &str) -> u64 {
    let maps = fs::read_to_string("/proc/self/maps").expect("procfs");
    let ours = maps
        .lines()
        .filter(|line| line.contains(&format!("memfd:forebay:{name} ")));
    ours.map(|line| {
        let (start, end) = line
            .split(' ')
            .next()
            .and_then(|range| range.split_once('-'))
            .expect("a range");
        let [start, end] = [start, end].map(|at| u64::from_str_radix(at, 16).expect("an address"));
        end - start
    })
    .sum()
}

#[test]
fn nothing_is_mapped_before_the_first_allocation() {
    let region = Region::new(Config::new("lazy", 1 << 40)).expect("a region");
    assert_eq!(mapped_bytes("lazy"), 0);
    let block = region.allocate(1).expect("room");
    assert_eq!(mapped_bytes("lazy"), 64 * MIB);
    drop((block, region));
    assert_eq!(mapped_bytes("lazy"), 0);
}

#[test]
fn small_blocks_are_aligned_to_a_cache_line_and_large_ones_to_a_page() {
    let region = region(64 * MIB);
    let blocks: Vec<Lease> = [1, 63, 65, 100_000, 1, 70_000, 5_000_000]
        .map(|n| region.allocate(n).expect("room"))
        .into();
    for block in &blocks {
        let align = if block.len() >= 64 << 10 { 4096 } else { 64 };
        assert!(
            block.as_ptr().addr().get().is_multiple_of(align),
            "{block:?}"
        );
    }
}

#[test]
fn a_block_without_bytes_is_a_block() {
    let region = region(MIB);
    let mut block = region.allocate(0).expect("room");
    assert!(block.is_empty());
    assert_eq!(block.bytes_mut().expect("sole lease"), b"");
    assert_eq!(region.lease(&block.reference()).expect("live").len(), 0);
}

#[test]
fn a_reference_from_before_a_free_is_refused_even_when_the_place_is_in_use_again() {
    let region = region(MIB);
    let block = region.allocate(1000).expect("room");
    let old = block.reference();
    drop(block);
    for _ in 0..1000 {
        let block = region.allocate(1000).expect("room");
        assert_eq!(block.reference().offset, old.offset, "the place is reused");
        assert!(matches!(region.lease(&old), Err(Error::Stale { .. })));
    }
}

#[test]
fn a_reference_with_any_number_changed_is_refused() {
    let region = region(MIB);
    let block = region.allocate(1000).expect("room");
    let good = block.reference();
    assert_eq!(region.lease(&good).expect("live").reference(), good);
    for bad in [
        Reference {
            chunk: good.chunk + 1,
            ..good
        },
        Reference {
            offset: good.offset + 64,
            ..good
        },
        Reference {
            length: good.length + 1,
            ..good
        },
        Reference {
            generation: good.generation + 1,
            ..good
        },
    ] {
        assert!(
            matches!(region.lease(&bad), Err(Error::Stale { .. })),
            "{bad}"
        );
    }
    let foreign = Reference {
        region: !good.region,
        ..good
    };
    assert!(matches!(region.lease(&foreign), Err(Error::Foreign { .. })));
}

#[test]
fn bytes_are_lent_to_a_sole_lease_only() {
    let region = region(MIB);
    let mut block = region.allocate(4).expect("room");
    block
        .bytes_mut()
        .expect("sole lease")
        .copy_from_slice(b"abcd");
    let second = block.clone();
    assert!(block.bytes_mut().is_none());
    drop(second);
    assert_eq!(block.bytes_mut().expect("sole again"), b"abcd");
}

#[test]
fn a_full_arena_says_what_is_in_use_and_has_room_again_after_a_free() {
    let region = region(MIB);
    let first = region.allocate(700_000).expect("room");
    let Err(Error::Full {
        asked: 500_000,
        live: 700_000,
        blocks: 1,
        limit: MIB,
        ..
    }) = region.allocate(500_000)
    else {
        panic!("the limit was passed");
    };
    drop(first);
    region.allocate(500_000).expect("room again");
    assert!(matches!(
        region.allocate(usize::MAX),
        Err(Error::Full { .. })
    ));
}

#[test]
fn the_whole_limit_can_be_one_block() {
    let region = region(5 * MIB);
    let block = region.allocate(5 << 20).expect("exactly the limit");
    let stats = region.stats().expect("owner");
    assert_eq!((stats.mapped_bytes, stats.waste_bytes), (5 * MIB, 0));
    drop(block);
}

#[test]
fn empty_chunks_make_way_for_a_block_that_is_larger_than_each() {
    let region = region(8 * MIB);
    let blocks: Vec<_> = (0..4)
        .map(|_| region.allocate(2 << 20).expect("room"))
        .collect();
    let old = blocks[0].reference();
    assert_eq!(region.stats().expect("owner").chunks, 4);
    drop(blocks);
    let large = region
        .allocate(8 << 20)
        .expect("the empty chunks are given up");
    let stats = region.stats().expect("owner");
    assert_eq!(
        (stats.chunks, stats.mapped_bytes, stats.mapped_bytes_peak),
        (1, 8 * MIB, 8 * MIB)
    );
    assert!(
        large.reference().chunk > old.chunk,
        "a chunk's number is never used again"
    );
}

#[test]
fn trim_gives_back_empty_chunks_and_no_others() {
    let region = region(64 * MIB);
    let (kept, gone) = (
        region.allocate(2 << 20).expect("room"),
        region.allocate(2 << 20).expect("room"),
    );
    assert_eq!(region.trim().expect("open"), 0);
    drop(gone);
    assert_eq!(region.trim().expect("open"), 2 * MIB);
    assert_eq!(region.stats().expect("owner").mapped_bytes, 2 * MIB);
    drop(kept);
}

#[test]
fn statistics_add_up() {
    let region = region(64 * MIB);
    let blocks = [100, 200, 300].map(|bytes| region.allocate(bytes).expect("room"));
    drop(region.allocate(1000).expect("room"));
    let stats = region.stats().expect("owner");
    assert_eq!(
        (
            stats.blocks,
            stats.live_bytes,
            stats.live_bytes_peak,
            stats.allocations
        ),
        (3, 600, 1600, 4)
    );
    assert_eq!(stats.waste_bytes, stats.mapped_bytes - 600);
    drop(blocks);
}

#[test]
fn closing_refuses_new_blocks_and_leaves_memory_under_leases_in_place() {
    let region =
        Region::new(Config::new("closing", 64 * MIB).chunk_bytes(2 * MIB)).expect("a region");
    let mut first = region.allocate(2 << 20).expect("room");
    let second = region.allocate(2 << 20).expect("room");
    assert_eq!(region.close().expect("owner"), 2);
    assert!(matches!(region.allocate(1), Err(Error::Closed { .. })));
    assert!(matches!(
        region.lease(&first.reference()),
        Err(Error::Closed { .. })
    ));
    first.bytes_mut().expect("sole lease").fill(7);
    drop(second);
    assert_eq!(
        mapped_bytes("closing"),
        2 * MIB,
        "each chunk goes with its last block"
    );
    assert_eq!(region.close().expect("idempotent"), 1);
    drop(region);
    assert!(
        first
            .bytes_mut()
            .expect("sole lease")
            .iter()
            .all(|&byte| byte == 7)
    );
    drop(first);
    assert_eq!(mapped_bytes("closing"), 0);
}

#[test]
fn a_shared_chunk_can_be_opened_for_reading_only() {
    let region = region(64 * MIB);
    let mut block = region.allocate(5).expect("room");
    block
        .bytes_mut()
        .expect("sole lease")
        .copy_from_slice(b"water");
    let shared = region
        .share_chunk(block.reference().chunk)
        .expect("a descriptor");
    let mut seen = [0; 5];
    rustix::io::pread(&shared, &mut seen, block.reference().offset).expect("readable");
    assert_eq!(&seen, b"water");
    let again = fs::OpenOptions::new()
        .write(true)
        .open(format!("/proc/self/fd/{}", shared.as_raw_fd()))
        .expect("opens");
    assert_eq!(
        rustix::io::write(&again, b"x"),
        Err(rustix::io::Errno::PERM)
    );
    assert!(matches!(region.share_chunk(99), Err(Error::System { .. })));
}

#[test]
fn settings_that_cannot_work_are_refused() {
    assert!(matches!(
        Region::new(Config::new("small", 4095)),
        Err(Error::Config { .. })
    ));
    for name in ["", "a\nb", "a\0b", &"x".repeat(101)] {
        assert!(
            matches!(Region::new(Config::new(name, MIB)), Err(Error::Name { .. })),
            "{name:?}"
        );
    }
}

#[test]
fn eight_threads_never_share_a_block() {
    let region = Arc::new(region(256 * MIB));
    let threads: Vec<_> = (0..8_u8)
        .map(|me| {
            let region = Arc::clone(&region);
            thread::spawn(move || {
                let mut held: Vec<Lease> = Vec::new();
                for round in 0..2000_usize {
                    let mut block = region.allocate(1 + (round * 7919) % 9000).expect("room");
                    block.bytes_mut().expect("sole lease").fill(me);
                    held.push(block);
                    if held.len() > 20 {
                        let mut old = held.swap_remove(round % 20);
                        assert!(
                            old.bytes_mut()
                                .expect("sole lease")
                                .iter()
                                .all(|&byte| byte == me)
                        );
                        let reference = old.reference();
                        drop(old);
                        assert!(matches!(region.lease(&reference), Err(Error::Stale { .. })));
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
    let stats = region.stats().expect("owner");
    assert_eq!(
        (stats.blocks, stats.live_bytes, stats.allocations),
        (0, 0, 16_000)
    );
}

/// How many maps of this process are of a region.
fn maps_of(region: &str) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("this process");
    maps.matches(&format!("/memfd:forebay:{region} ")).count()
}

#[test]
fn what_is_unmapped_with_a_lease_may_be_unmapped_later() {
    let region = Region::new(Config::new("given back", 8 << 20)).expect("a region");
    let [one, other] = [1, 1].map(|bytes: usize| region.allocate(bytes).expect("room"));
    region.close().expect("this process's");
    assert!(one.give_back().is_empty(), "another lease needs the chunk");
    let unused = other.give_back();
    assert!(!unused.is_empty());
    assert_eq!(maps_of("given back"), 1);
    drop(unused);
    assert_eq!(maps_of("given back"), 0);
}
