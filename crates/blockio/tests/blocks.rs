//! Blocks of a file and of a region, through the methods that need no `unsafe`.

use forebay_blockio::{BlockFile, BlockQueue, Config, Error, Mode};
use forebay_memory::{Config as RegionConfig, Region};

const BLOCK: usize = 512;

#[test]
fn blocks_are_written_and_read_in_any_order_and_memory_of_another_size_is_refused() {
    let path = std::env::temp_dir().join(format!("forebay-blocks-{}", std::process::id()));
    std::fs::write(&path, []).expect("a file");
    let region = Region::new(RegionConfig::new("blocks", 1 << 20)).expect("a region");
    let queue = BlockQueue::new(Config::default()).expect("a queue");
    let file = BlockFile::open(&path, Mode::ReadWrite, false).expect("opened");
    let mut memory = region.allocate(4 * BLOCK).expect("room");
    let mut results = [0; 4];
    let offsets = [0, 1, 2, 3].map(|block| block * BLOCK as u64);

    for (number, block) in (1..).zip(memory.bytes_mut().expect("ours").chunks_mut(BLOCK)) {
        block.fill(number);
    }
    queue
        .write_many(&file, &offsets, &mut memory, &mut results)
        .expect("written");
    assert_eq!(results, [512; 4]);

    memory.bytes_mut().expect("ours").fill(0);
    let beyond_the_end = 9 * BLOCK as u64;
    let asked = [offsets[3], offsets[1], beyond_the_end, offsets[0]];
    queue
        .read_many(&file, &asked, &mut memory, &mut results)
        .expect("read");
    assert_eq!(results, [512, 512, 0, 512]);
    let firsts: Vec<u8> = memory.bytes_mut().expect("ours")[..]
        .chunks(BLOCK)
        .map(|block| block[0])
        .collect();
    assert_eq!(firsts, [4, 2, 0, 1]);

    let refused = queue.read_many(&file, &offsets[..3], &mut memory, &mut results[..3]);
    assert!(
        matches!(refused, Err(Error::Config { setting: "the size of the memory", value, .. }) if value == 2048),
        "{refused:?}"
    );
    std::fs::remove_file(&path).expect("removed");
}
