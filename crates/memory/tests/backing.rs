//! Backings: which pages a chunk is made of, and what is said where they are not to be had.

use std::fs;

use forebay_memory::{Backed, Backing, Config, Error, Region, Window};

const MIB: u64 = 1 << 20;

fn config(name: &str, backing: Backing) -> Config {
    Config::new(name, 8 * MIB)
        .chunk_bytes(2 * MIB)
        .backing(backing)
}

fn region(backing: Backing) -> Region {
    Region::new(config("backed", backing)).expect("a region")
}

/// Free huge pages of the machine's pool.
fn free_in_pool() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").expect("procfs");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("HugePages_Free:"));
    line.map_or(0, |count| count.trim().parse().expect("a number"))
}

fn may_be_transparent() -> bool {
    let path = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    let text = fs::read_to_string(path).unwrap_or_default();
    !text.is_empty() && !text.contains("[never]") && !text.contains("[deny]")
}

/// Bytes of this process's memory that are there, of the mapping from the arena `name`.
fn resident_bytes(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/smaps").expect("procfs");
    let mut lines = text
        .lines()
        .skip_while(|line| !line.contains(&format!("memfd:forebay:{name} ")));
    let line = lines
        .find_map(|line| line.strip_prefix("Rss:"))
        .expect("mapped");
    let kib = line.trim().trim_end_matches(" kB");
    1024 * kib.parse::<u64>().expect("a number")
}

/// Each backing holds what is written, is sealed, and can be read by others.
fn check(region: &Region) {
    let mut block = region.allocate(2 << 20).expect("room");
    block.bytes_mut().expect("sole").fill(7);
    let shared = block.share_chunk().expect("a descriptor");
    assert_eq!(Window::open(&shared).expect("sealed").len(), 2 << 20);
    assert!(rustix::fs::ftruncate(&shared, 0).is_err());
    assert!(
        block
            .bytes_mut()
            .expect("sole")
            .iter()
            .all(|&byte| byte == 7)
    );
    drop(block);
    assert_eq!(region.trim().expect("open"), 2 * MIB);
}

#[test]
fn pages_are_always_there() {
    let region = region(Backing::Pages);
    assert_eq!(region.backed().expect("owner"), None);
    check(&region);
    let backed = Backed {
        pages: Backing::Pages,
        reason: String::new(),
    };
    assert_eq!(region.backed().expect("owner"), Some(backed));
}

#[test]
fn auto_takes_what_there_is_and_says_why_it_is_nothing_better() {
    let region = region(Backing::Auto);
    let block = region.allocate(2 << 20).expect("room");
    let (stats, backed) = (
        region.stats().expect("owner"),
        region.backed().expect("owner"),
    );
    let Backed { pages, reason } = backed.expect("a chunk is there");
    let bytes = match pages {
        Backing::HugeTlb => (2 * MIB, 0),
        Backing::Transparent => (0, 2 * MIB),
        _ => (0, 0),
    };
    assert_eq!((stats.hugetlb_bytes, stats.transparent_bytes), bytes);
    assert_eq!(
        reason.contains("hugetlb: "),
        pages != Backing::HugeTlb,
        "{reason}"
    );
    assert_eq!(
        reason.contains("transparent: "),
        pages == Backing::Pages,
        "{reason}"
    );
    drop(block);
    check(&region);
}

#[test]
fn huge_pages_that_were_asked_for_are_there_or_refused_with_the_reason() {
    let region = region(Backing::HugeTlb);
    if free_in_pool() >= 2 {
        check(&region);
        let block = region.allocate(2 << 20).expect("room");
        let shared = block.share_chunk().expect("a descriptor");
        let refused = Window::private(&shared);
        assert!(matches!(refused, Err(Error::System { .. })), "{refused:?}");
        return;
    }
    let refused = region.allocate(1).expect_err("there are none").to_string();
    for part in ["\"backed\"", "hugetlb", "2097152 bytes", "auto"] {
        assert!(refused.contains(part), "{refused}");
    }
    assert_eq!(region.stats().expect("owner").mapped_bytes, 0);
}

#[test]
fn huge_pages_for_a_limit_that_is_none_are_refused_with_the_reason() {
    let config = Config::new("odd", MIB).backing(Backing::HugeTlb);
    let region = Region::new(config).expect("a region");
    let refused = region.allocate(1).expect_err("half a page").to_string();
    assert!(
        refused.contains("1048576 bytes are no multiple of 2097152"),
        "{refused}"
    );
}

#[test]
fn transparent_pages_that_were_asked_for_are_there_or_refused_with_the_reason() {
    let region = region(Backing::Transparent);
    if may_be_transparent() {
        return check(&region);
    }
    let refused = region.allocate(1).expect_err("switched off").to_string();
    assert!(refused.contains("transparent: "), "{refused}");
}

#[test]
fn a_chunk_is_populated_when_it_is_made_where_that_is_asked_for() {
    for (name, populate, expected) in [("full", true, 2 * MIB), ("empty", false, 0)] {
        let config = config(name, Backing::Pages).populate(populate);
        let region = Region::new(config).expect("a region");
        let block = region.allocate(1).expect("room");
        assert_eq!(resident_bytes(name), expected, "{name}");
        drop(block);
    }
}
