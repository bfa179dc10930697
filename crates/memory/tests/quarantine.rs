//! Quarantine: blocks that somebody else may still write are kept, counted and bounded.
#![allow(clippy::disallowed_methods)] // plain threads stand for the systems that complete operations

use std::thread;

use forebay_memory::{Config, Error, Lease, Quarantined, Region};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

fn region() -> Region {
    Region::new(Config::new("test", MIB)).expect("a region")
}

/// Blocks and bytes in quarantine, and live blocks.
fn counts(region: &Region) -> (u64, u64, u64) {
    let stats = region.stats().expect("owner");
    (
        stats.quarantined_blocks,
        stats.quarantined_bytes,
        stats.blocks,
    )
}

#[test]
fn a_block_in_quarantine_is_not_handed_out_again_whoever_lets_go_of_it() {
    let region = region();
    let block = region.allocate(1000).expect("room");
    let reference = block.reference();
    let kept = block.quarantine();
    assert_eq!(kept.reference(), reference);
    drop(block);
    assert_eq!(counts(&region), (1, 1000, 1));
    let other = region.allocate(1000).expect("room");
    assert_ne!(other.reference().offset, reference.offset);
    assert_eq!(region.lease(&reference).expect("live").len(), 1000);
    drop(kept);
    assert_eq!(counts(&region), (0, 0, 1));
    assert!(matches!(region.lease(&reference), Err(Error::Stale { .. })));
    let again = region.allocate(1000).expect("room");
    assert_eq!(again.reference().offset, reference.offset);
}

#[test]
fn a_block_that_several_operations_may_write_counts_once() {
    let region = region();
    let block = region.allocate(1000).expect("room");
    let (first, second) = (block.quarantine(), block.quarantine());
    assert_eq!(counts(&region), (1, 1000, 1));
    drop(first);
    assert_eq!(counts(&region), (1, 1000, 1));
    drop(second);
    assert_eq!(counts(&region), (0, 0, 1));
    assert_eq!(block.len(), 1000);
}

#[test]
fn a_quarter_of_the_arena_may_be_in_quarantine_and_more_refuses_new_blocks() {
    let region = region();
    let full = region.allocate(256 << 10).expect("room").quarantine();
    let one_more = region.allocate(1).expect("a quarter is not too much");
    let too_much = one_more.quarantine();
    let Err(Error::Quarantine {
        asked: 5,
        quarantined: 262_145,
        blocks: 2,
        limit: 262_144,
        ..
    }) = region.allocate(5)
    else {
        panic!("the limit was passed");
    };
    region
        .lease(&full.reference())
        .expect("that is no new block");
    drop(too_much);
    region.allocate(5).expect("allowed again");
}

#[test]
fn the_limit_can_be_set() {
    let config = Config::new("test", MIB).quarantine_bytes_max(0);
    let region = Region::new(config).expect("a region");
    let nothing = region.allocate(0).expect("room").quarantine();
    let one = region
        .allocate(1)
        .expect("no byte is in quarantine")
        .quarantine();
    assert!(matches!(
        region.allocate(1),
        Err(Error::Quarantine { limit: 0, .. })
    ));
    drop((nothing, one));
    region.allocate(1).expect("allowed again");
}

#[test]
fn a_closed_region_keeps_what_is_in_quarantine_until_another_thread_says_it_is_over() {
    let region = region();
    let guard = region.allocate(1000).expect("room").quarantine();
    assert_eq!(region.close().expect("owner"), 1);
    assert_eq!(counts(&region), (1, 1000, 1));
    assert_eq!(region.stats().expect("owner").chunks, 1);
    thread::spawn(move || drop(guard)).join().expect("no panic");
    assert_eq!(counts(&region), (0, 0, 0));
    assert_eq!(region.stats().expect("owner").chunks, 0);
}

#[derive(Clone, Debug)]
enum Step {
    Allocate(usize),
    Free(usize),
    Enter(usize),
    Leave(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..100_000_usize).prop_map(Step::Allocate),
        any::<usize>().prop_map(Step::Free),
        any::<usize>().prop_map(Step::Enter),
        any::<usize>().prop_map(Step::Leave),
    ]
}

proptest! {
    #[test]
    fn counts_are_those_of_the_blocks_that_are_guarded(
        steps in proptest::collection::vec(step(), 1..100)
    ) {
        let region = region();
        let mut leases: Vec<Lease> = Vec::new();
        let mut guards: Vec<Quarantined> = Vec::new();
        for step in steps {
            let mut guarded: Vec<_> = guards.iter().map(Quarantined::reference).collect();
            guarded.sort_by_key(|reference| reference.generation);
            guarded.dedup();
            let bytes: u64 = guarded.iter().map(|reference| reference.length).sum();
            let (blocks_seen, bytes_seen, _) = counts(&region);
            prop_assert_eq!((blocks_seen, bytes_seen), (guarded.len() as u64, bytes));
            match step {
                Step::Allocate(length) => match region.allocate(length) {
                    Ok(lease) => leases.push(lease),
                    Err(Error::Quarantine { quarantined, .. }) => {
                        prop_assert!(quarantined == bytes && bytes > MIB / 4);
                    }
                    Err(Error::Full { .. }) => {}
                    Err(error) => panic!("{error}"),
                },
                Step::Free(which) if !leases.is_empty() => {
                    leases.swap_remove(which % leases.len());
                }
                Step::Enter(which) if !leases.is_empty() => {
                    guards.push(leases[which % leases.len()].quarantine());
                }
                Step::Leave(which) if !guards.is_empty() => {
                    drop(guards.swap_remove(which % guards.len()));
                }
                Step::Free(_) | Step::Enter(_) | Step::Leave(_) => {}
            }
        }
        drop((leases, guards));
        prop_assert_eq!(counts(&region), (0, 0, 0));
    }
}
