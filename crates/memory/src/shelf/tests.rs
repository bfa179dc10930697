//! Shelves after a fork: the child leaves its parent's alone.
use forebay_base::process::in_child;

use crate::config::Config;
use crate::error::Error;
use crate::region::Region;

#[test]
#[cfg_attr(miri, ignore = "system calls about maps and forks, which miri has not")]
fn a_forked_child_neither_takes_from_its_parents_shelf_nor_puts_there() {
    let region = Region::new(Config::new("forked", 64 << 20)).expect("a region");
    let held = [(); 3].map(|()| region.allocate(4096).expect("room"));
    let reference = held[0].reference();
    let [kept, first, second] = held;
    drop((first, second));
    assert_eq!(region.stats().expect("owner").shelved_blocks, 1);
    let mut owned = Some(kept);
    let left_alone = in_child(|| {
        let refused = region.allocate(4096);
        drop(owned.take());
        let own = Region::new(Config::new("own", 64 << 20)).expect("a region");
        let works = (0..10).all(|_| own.allocate(4096).is_ok());
        works && matches!(refused, Err(Error::Forked { .. }))
    });
    assert!(left_alone);
    let stats = region.stats().expect("owner");
    assert_eq!((stats.blocks, stats.shelved_blocks), (1, 1));
    assert_eq!(region.lease(&reference).expect("live").len(), 4096);
}

#[test]
#[cfg_attr(miri, ignore = "system calls about maps and forks, which miri has not")]
fn a_forked_child_leaves_its_parents_memory_mapped() {
    let region = Region::new(Config::new("inherited", 64 << 20)).expect("a region");
    let mut block = region.allocate(300_000).expect("room");
    block.bytes_mut().expect("sole").fill(7);
    drop(block);
    let mut owned = Some(region);
    let is_mapped = in_child(|| {
        drop(owned.take());
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        maps.contains("memfd:forebay:inherited ")
    });
    assert!(is_mapped);
}
