//! Which chunks of an owner are mapped, and for how long.
use std::fs::read_to_string;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use forebay_memory::{Config, Region, Window};

use super::super::directory::File;
use super::super::mapped::MappedTensors;
use super::{Owner, ROW_BYTES, Reader, all};
use crate::table::Key;

/// Rows that take a chunk of their own.
const ROWS: usize = (2 << 20) / ROW_BYTES;

fn pulled(reader: &Reader, key: Key, value: u8) {
    let mut out = vec![0; ROWS * ROW_BYTES];
    assert_eq!(reader.pull(&all(key, ROWS as u64, &mut out)), Some(0));
    assert_eq!((out[0], out[out.len() - 1]), (value, value));
}

/// How many maps of this process are of a region, and may only be read.
fn mapped(region: &str) -> u64 {
    let maps = read_to_string("/proc/self/maps").expect("this process");
    let name = format!("/memfd:forebay:{region} ");
    let found = maps
        .lines()
        .filter(|line| line.contains(&name) && line.split_whitespace().nth(1) == Some("r--s"));
    found.count() as u64
}

#[test]
fn chunks_of_dropped_tensors_are_unmapped_as_others_are_mapped() {
    let mut owner = Owner::named("dropped");
    let reader = owner.reader();
    for value in 0..10 {
        let names = ["a", "b", "c", "d", "e", "f"];
        for name in names {
            let key = owner.publish(name, ROWS, value);
            pulled(&reader, key, value);
        }
        for name in names {
            owner.shard.drop_tensor(name).expect("it is there");
        }
        owner.retire();
        owner.region.trim().expect("open"); // so that what comes next is in a chunk that is mapped anew
        let key = owner.publish("a", ROWS, value);
        pulled(&reader, key, value);
        assert_eq!((reader.counters().chunks, mapped("dropped")), (1, 1));
    }
}

#[test]
fn chunks_of_dropped_tensors_are_unmapped_as_others_are_pulled() {
    let mut owner = Owner::named("left");
    let reader = owner.reader();
    let keys: Vec<Key> = (0..6)
        .map(|value| owner.publish(&format!("table {value}"), ROWS, value))
        .collect();
    for (value, key) in (0..).zip(&keys) {
        pulled(&reader, *key, value);
    }
    assert_eq!((reader.counters().chunks, mapped("left")), (6, 6));
    reader.check_some();
    assert!(!reader.has_stale());
    for value in 1..6 {
        let name = format!("table {value}");
        owner.shard.drop_tensor(&name).expect("it is there");
    }
    reader.check_some();
    assert!(reader.has_stale());
    reader.sweep();
    assert!(!reader.has_stale());
    assert_eq!((reader.counters().chunks, mapped("left")), (1, 1));
    pulled(&reader, keys[0], 0);
}

#[test]
fn what_is_not_known_yet_is_left_to_whoever_may_map_it() {
    let mut owner = Owner::new();
    let key = owner.publish("table", ROWS, 3);
    let reader = owner.reader();
    let mut out = vec![0; ROWS * ROW_BYTES];
    let whole = all(key, ROWS as u64, &mut out);
    assert_eq!(reader.pull_mapped(&whole), None);
    assert_eq!(reader.pull(&whole), Some(0));
    assert_eq!(reader.pull_mapped(&whole), Some(0));
    let counted = reader.counters();
    assert_eq!((counted.pulls, counted.elsewhere, counted.stale), (2, 0, 0));
}

/// Huge pages of the pool are another file system, which numbers its inodes for itself.
#[test]
fn chunks_of_one_inode_on_two_devices_are_two() {
    let region = Region::new(Config::new("devices", 4 << 20).chunk_bytes(1 << 20));
    let region = region.expect("a region");
    let [one, other] = [1, 1].map(|bytes: usize| region.allocate(bytes).expect("room"));
    let open = |descriptor: OwnedFd| Window::open(&descriptor).ok();
    let known = MappedTensors::default();
    let at = |device| File { device, inode: 5 };
    let share = || one.share_chunk().expect("a descriptor");
    let first = known.window(at(1), || open(share())).expect("mapped");
    let again = known.window(at(1), || None).expect("it is there");
    assert!(Arc::ptr_eq(&first, &again));
    assert!(known.window(at(2), || None).is_none());
    let second = known.window(at(2), || open(other.share_chunk().expect("a descriptor")));
    assert!(!Arc::ptr_eq(&first, &second.expect("mapped")));
    assert_eq!(known.windows(), 1);
    drop((first, again));
    assert_eq!(known.windows(), 0);
}
