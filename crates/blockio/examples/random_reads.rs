//! Random blocks of a file, in batches: `cargo run --release --example random_reads -- FILE [direct]`.
use std::time::Instant;

use forebay_blockio::{BlockFile, BlockQueue, Config, Error, Mode};
use forebay_memory::{Config as RegionConfig, Region};

const BLOCK_BYTES: usize = 4096;
const LIST: usize = 2048;
const LISTS: usize = 200;

#[allow(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    clippy::cast_possible_wrap
)]
fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().expect("usage: random_reads FILE [direct]");
    let direct = arguments.next().is_some();

    let region = Region::new(RegionConfig::new("blocks", 64 << 20))?;
    let queue = BlockQueue::new(Config {
        batch_limit: 32,
        concurrency_limit: 128,
        ..Config::default()
    })?;
    queue.attach(&region)?;
    let file = BlockFile::open(path, Mode::Read, direct)?;
    let blocks = file.size_bytes()? / BLOCK_BYTES as u64;
    let mut memory = region.allocate(LIST * BLOCK_BYTES)?;
    let mut results = vec![0; LIST];
    let mut offsets = vec![0; LIST];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;

    let begun = Instant::now();
    for _ in 0..LISTS {
        for offset in &mut offsets {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            *offset = (state >> 33) % blocks * BLOCK_BYTES as u64;
        }
        queue.read_many(&file, &offsets, &mut memory, &mut results)?;
        assert!(results.iter().all(|&bytes| bytes == BLOCK_BYTES as i64));
    }
    let rate = (LISTS * LIST) as f64 / begun.elapsed().as_secs_f64();
    println!("{rate:.0} reads/s, {:?}", queue.stats());
    Ok(())
}
