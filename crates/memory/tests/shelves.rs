//! Shelves: what a thread freed is at hand for it, and in nobody's way.
#![allow(clippy::disallowed_methods)] // plain threads stand for the systems that allocate

use std::fs;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use forebay_memory::{Config, Error, Lease, Region, Stats};

const MIB: u64 = 1 << 20;
const DEADLINE: Duration = Duration::from_secs(20);

fn region(limit_bytes: u64) -> Region {
    let config = Config::new("shelves", limit_bytes)
        .chunk_bytes(2 * MIB)
        .shelf_bytes_max(MIB);
    Region::new(config).expect("a region")
}

fn stats(region: &Region) -> Stats {
    region.stats().expect("owner")
}

/// Allocate as many blocks of `bytes` before the first of them is freed.
fn blocks(region: &Region, count: usize, bytes: usize) -> Vec<Lease> {
    (0..count)
        .map(|_| region.allocate(bytes).expect("room"))
        .collect()
}

/// Free a block of a size often enough that blocks of it are put on this thread's shelf from then on.
fn get_to_know(region: &Region, bytes: usize) {
    drop(blocks(region, 2, bytes));
    assert_eq!(
        stats(region).shelved_blocks,
        1,
        "the first leaves its mark only"
    );
    drop(region.allocate(bytes).expect("room"));
}

/// Two ends: one waits until the other says so, or is gone.
fn gate() -> (Sender<()>, Receiver<()>) {
    mpsc::channel()
}

/// Put blocks on the shelf of a thread that lives on while `act` runs.
fn beside_a_shelf(region: &Region, count: usize, bytes: usize, act: impl FnOnce()) {
    let ((filled, is_filled), (end, ends)) = (gate(), gate());
    thread::scope(|scope| {
        scope.spawn(move || {
            drop(blocks(region, count + 1, bytes));
            filled.send(()).expect("the test waits");
            let _ = ends.recv_timeout(DEADLINE);
        });
        is_filled.recv_timeout(DEADLINE).expect("filled");
        act();
        drop(end);
    });
}

#[test]
fn a_freed_block_is_taken_again_by_its_thread_and_counted_meanwhile() {
    let region = region(64 * MIB);
    get_to_know(&region, 65_536);
    let peak = stats(&region).live_bytes_peak;
    let first = region.allocate(65_536).expect("room");
    let old = first.reference();
    drop(first);
    let there = stats(&region);
    assert_eq!((there.blocks, there.live_bytes), (0, 0));
    assert_eq!((there.shelved_blocks, there.shelved_bytes), (1, 65_536));
    assert!(matches!(region.lease(&old), Err(Error::Stale { .. })));

    let second = region.allocate(65_530).expect("room");
    let new = second.reference();
    assert_eq!(
        (new.chunk, new.offset, new.length),
        (old.chunk, old.offset, 65_530)
    );
    assert!(new.generation > old.generation);
    assert!(matches!(region.lease(&old), Err(Error::Stale { .. })));
    let there = stats(&region);
    assert_eq!(
        (there.blocks, there.shelved_blocks, there.allocations),
        (1, 0, 5)
    );
    assert_eq!((there.live_bytes, there.live_bytes_peak), (65_530, peak));
}

#[test]
fn a_shelf_holds_no_more_than_it_may() {
    let region = region(64 * MIB);
    drop(blocks(&region, 40, 100));
    assert_eq!(stats(&region).shelved_blocks, 16, "of one size");
    drop(blocks(&region, 16, 65_536));
    assert!(stats(&region).shelved_bytes <= MIB);
    drop(region.allocate(300_000).expect("room"));
    assert!(
        stats(&region).shelved_bytes <= MIB,
        "large ones go back at once"
    );
}

#[test]
fn without_a_shelf_everything_goes_back_at_once() {
    let config = Config::new("bare", 64 * MIB).shelf_bytes_max(0);
    let region = Region::new(config).expect("a region");
    drop(blocks(&region, 10, 100));
    assert_eq!(stats(&region).shelved_blocks, 0);
    assert_eq!(region.trim().expect("open"), 64 * MIB);
}

#[test]
fn a_size_that_is_not_asked_for_any_more_makes_way() {
    let region = region(64 * MIB);
    // More sizes than a shelf has bins, so that some of them want the same one.
    let sizes = (1..=200).map(|n| n * 64);
    drop(
        sizes
            .map(|bytes| region.allocate(bytes).expect("room"))
            .collect::<Vec<_>>(),
    );
    for bytes in (1..=200).map(|n| n * 64) {
        for _ in 0..100 {
            drop(region.allocate(bytes).expect("room"));
        }
        let before = stats(&region).shelved_blocks;
        let block = region.allocate(bytes).expect("room");
        assert_eq!(stats(&region).shelved_blocks, before - 1, "{bytes} bytes");
        drop(block);
    }
}

#[test]
fn a_thread_that_ends_gives_its_shelf_back() {
    let region = region(64 * MIB);
    thread::scope(|scope| {
        let thread = scope.spawn(|| drop(blocks(&region, 17, 65_536)));
        thread.join().expect("no panic");
    });
    let there = stats(&region);
    assert_eq!(
        (there.shelved_blocks, there.blocks, there.allocations),
        (0, 0, 17)
    );
    // In one piece again: room for one block of it all.
    let chunk = region.allocate(2 << 20).expect("room");
    assert_eq!(stats(&region).chunks, 1);
    drop(chunk);
}

#[test]
fn what_lies_on_another_threads_shelf_is_collected_before_the_limit_refuses() {
    let region = region(2 * MIB);
    beside_a_shelf(&region, 16, 65_536, || {
        assert_eq!(stats(&region).shelved_bytes, MIB);
        let all = region.allocate(2 << 20).expect("all that there is");
        assert_eq!(stats(&region).shelved_blocks, 0);
        drop(all);
    });
}

#[test]
fn what_lies_on_another_threads_shelf_is_collected_before_a_chunk_is_mapped() {
    let region = region(64 * MIB);
    beside_a_shelf(&region, 16, 65_536, || {
        drop(region.allocate(2 << 20).expect("room"));
        assert_eq!(stats(&region).chunks, 1);
    });
}

#[test]
fn trim_collects_shelves_and_their_threads_go_on() {
    let region = region(64 * MIB);
    drop(blocks(&region, 17, 65_536));
    assert_eq!(region.trim().expect("open"), 2 * MIB);
    assert_eq!(stats(&region).shelved_blocks, 0);
    drop(region.allocate(65_536).expect("room"));
    assert_eq!(stats(&region).shelved_blocks, 1);
}

#[test]
fn a_closed_region_keeps_nothing_on_shelves_of_threads_that_live_on() {
    let region = Region::new(Config::new("shut", 1 << 30)).expect("a region");
    let mut kept = None;
    beside_a_shelf(&region, 16, 65_536, || {
        kept = Some(region.allocate(4096).expect("room"));
        assert_eq!(region.close().expect("owner"), 1);
        assert!(matches!(region.allocate(65_536), Err(Error::Closed { .. })));
        assert_eq!(stats(&region).shelved_blocks, 0);
    });
    let mapped = |name: &str| {
        let maps = fs::read_to_string("/proc/self/maps").expect("procfs");
        maps.contains(&format!("memfd:forebay:{name} "))
    };
    assert!(mapped("shut"));
    // On a thread that has a shelf, which is closed by now.
    drop(kept);
    assert!(!mapped("shut"));
}

#[test]
fn a_shelf_is_not_taken_from_while_too_much_is_in_quarantine() {
    let config = Config::new("quarantined", 64 * MIB).quarantine_bytes_max(100_000);
    let region = Region::new(config).expect("a region");
    let held = region.allocate(100_001).expect("room");
    get_to_know(&region, 4096);
    let guard = held.quarantine();
    assert_eq!(stats(&region).shelved_blocks, 1);
    assert!(matches!(
        region.allocate(4096),
        Err(Error::Quarantine { .. })
    ));
    drop(guard);
    region.allocate(4096).expect("room again");
}

#[test]
fn a_thread_that_uses_many_regions_has_a_shelf_in_some_and_the_others_work() {
    let regions: Vec<_> = (0..100).map(|_| region(4 * MIB)).collect();
    for region in &regions {
        drop(blocks(region, 2, 4096));
    }
    let shelved = regions.iter().map(|region| stats(region).shelved_blocks);
    assert_eq!(shelved.sum::<u64>(), 16);
    drop(regions);
    let next = region(4 * MIB);
    drop(blocks(&next, 2, 4096));
    assert_eq!(stats(&next).shelved_blocks, 1, "closed ones have made way");
}

#[test]
fn one_empty_chunk_is_kept_and_others_up_to_idle_bytes_max() {
    for (idle_bytes_max, kept) in [(0, 1), (4 * MIB, 2), (64 * MIB, 8)] {
        let config = Config::new("idle", 64 * MIB)
            .chunk_bytes(2 * MIB)
            .idle_bytes_max(idle_bytes_max);
        let region = Region::new(config).expect("a region");
        drop(blocks(&region, 8, 2 << 20));
        assert_eq!(stats(&region).chunks, kept, "{idle_bytes_max}");
        assert_eq!(region.trim().expect("open"), kept * 2 * MIB);
    }
}
