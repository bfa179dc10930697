//! What an arena saves: `cargo run --release -p forebay-memory --example arena_cost`.
//!
//! Two ways to memory that the kernel knows, 64 KiB at a time, in one thread, in turns:
//!
//! - `arena`: allocate and free a block of an arena, whose chunk was made known once.
//! - `fresh`: map memory, register it with `io_uring`, unregister it, unmap it.
//!
//! Prints one line of JSON: the median over the rounds in nanoseconds, and their ratio.
mod sys;

use std::hint::black_box;
use std::time::Instant;

use forebay_memory::{Config, Error, Region};

const BLOCK_BYTES: usize = 64 << 10;
const ROUNDS: usize = 15;
const ARENA_TURNS: u32 = 1_000_000;
const FRESH_TURNS: u32 = 2_000;

#[allow(clippy::print_stdout)] // what it is for
fn main() -> Result<(), Error> {
    let region = Region::new(Config::new("cost", 1 << 30))?;
    let ring = sys::Ring::new().expect("io_uring is there");
    let (mut arena, mut fresh) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        arena.push(nanoseconds(ARENA_TURNS, || {
            drop(black_box(region.allocate(BLOCK_BYTES)));
        }));
        fresh.push(nanoseconds(FRESH_TURNS, || {
            sys::map_register_unmap(&ring, BLOCK_BYTES).expect("memory that may be locked");
        }));
    }
    let (arena, fresh) = (median(arena), median(fresh));
    println!(
        "{{\"bytes\": {BLOCK_BYTES}, \"arena_ns\": {arena:.1}, \"fresh_ns\": {fresh:.1}, \"ratio\": {:.0}}}",
        fresh / arena
    );
    Ok(())
}

/// What one turn takes, on average over all of them.
fn nanoseconds(turns: u32, mut turn: impl FnMut()) -> f64 {
    let begun = Instant::now();
    for _ in 0..turns {
        turn();
    }
    begun.elapsed().as_secs_f64() * 1e9 / f64::from(turns)
}

fn median(mut rounds: Vec<f64>) -> f64 {
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}
