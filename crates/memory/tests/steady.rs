//! The steady state: allocating and freeing asks nothing of the global allocator.
mod sys;

use std::collections::VecDeque;

use forebay_memory::{Config, Lease, Region};
use sys::{Counting, calls};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Calls of the global allocator while `act` runs for the third time: the first two fill lists that grow.
fn calls_of(mut act: impl FnMut()) -> u64 {
    act();
    act();
    let before = calls();
    act();
    calls() - before
}

fn region(shelf_bytes_max: u64) -> Region {
    let config = Config::new("steady", 1 << 30).shelf_bytes_max(shelf_bytes_max);
    Region::new(config).expect("a region")
}

#[test]
fn the_count_counts() {
    assert_eq!(calls_of(|| drop(std::hint::black_box(Box::new(1)))), 1);
}

#[test]
fn one_size_over_and_over_allocates_nothing_with_a_shelf_or_without() {
    for shelf_bytes_max in [0, 1 << 20] {
        let region = region(shelf_bytes_max);
        let turns = || (0..10_000).for_each(|_| drop(region.allocate(65_536).expect("room")));
        assert_eq!(calls_of(turns), 0);
    }
}

#[test]
fn ragged_sizes_in_flight_allocate_nothing() {
    for shelf_bytes_max in [0, 1 << 20] {
        let region = region(shelf_bytes_max);
        let mut held: VecDeque<Lease> = VecDeque::with_capacity(64);
        let turns = || {
            for turn in 0..10_000_usize {
                held.push_back(region.allocate(1 + turn * 7919 % 300_000).expect("room"));
                if held.len() == 64 {
                    held.pop_front();
                }
            }
            held.clear();
        };
        assert_eq!(calls_of(turns), 0);
    }
}

#[test]
fn further_leases_of_a_block_allocate_nothing() {
    let region = region(1 << 20);
    let block = region.allocate(1000).expect("room");
    let turns = || {
        for _ in 0..1000 {
            let further = region.lease(&block.reference()).expect("live");
            drop((further.clone(), further));
        }
    };
    assert_eq!(calls_of(turns), 0);
}
