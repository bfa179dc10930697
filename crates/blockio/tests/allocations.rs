//! What a batch costs of the heap, once everything has its size: nothing.
//!
//! The one test of this file, because it counts what all threads of the process ask for.
mod engine;
mod sys;

use std::sync::Arc;

use engine::{Engine, Folder, await_into, pattern, read};
use forebay_blockio::{BlockFile, Completions, Files, Patient};
use sys::Loan;
use sys::counting::{Counting, own_allocations};

#[global_allocator]
static HEAP: Counting = Counting;

const OPERATIONS: usize = 500;
/// A hundred thousand operations from the page cache, and a tenth from the disk.
const BATCHES_CACHED: usize = 200;
const BATCHES_DIRECT: usize = 20;

/// Rounds until everything has its size: a thread may come late on a busy machine.
const ROUNDS_MAX: usize = 5;

/// Allocations of many batches, in the first round that had none after a warm-up, or in the last.
fn count(file: &BlockFile, mut batch: impl FnMut()) -> u64 {
    let batches = if file.is_direct() {
        BATCHES_DIRECT
    } else {
        BATCHES_CACHED
    };
    let mut round = || {
        let before = own_allocations();
        (0..batches).for_each(|_| batch());
        own_allocations() - before
    };
    round();
    let mut last = round();
    for _ in 1..ROUNDS_MAX {
        if last > 0 {
            last = round();
        }
    }
    last
}

fn of_calls(engine: &Engine, loan: &Loan, file: &BlockFile) -> u64 {
    count(file, || {
        let batch = loan.batch(Files::One(file.clone()), false);
        engine.queue.run(batch, &mut Patient).expect("it is open");
    })
}

/// Two batches in flight, each with an owner of its memory, which is the one allocation that a client makes.
fn of_batches_handed_over(engine: &Engine, loan: &Loan, file: &BlockFile) -> u64 {
    let done = Arc::new(Completions::new(16).expect("there is a descriptor"));
    let mut finished = Vec::new();
    let submit = |ticket| {
        // Nothing is allocated for an owner without a size.
        let batch = loan.batch(Files::One(file.clone()), false);
        let submitted = engine.queue.submit(batch, Box::new(()), ticket, &done);
        submitted.expect("it is open");
    };
    count(file, || {
        submit(1);
        submit(2);
        await_into(&done, 2, &mut finished);
        finished.clear();
    })
}

/// A program that reads for days has the heap that it began with, and no thread waits for its lock.
#[test]
fn nothing_is_allocated_for_a_batch() {
    let folder = Folder::new();
    let cached = folder.file(&pattern(64 * 4096), false);
    let direct = folder.open(true);
    let at = |index: usize| (index * 37 % 64 * 4096) as u64;
    let reads: Vec<_> = (0..OPERATIONS)
        .map(|index| read(at(index), at(index), 4096))
        .collect();
    let loan = Loan::new(&reads, 64 * 4096);
    for file in [&cached, &direct] {
        let engine = Engine::threads();
        assert_eq!(of_calls(&engine, &loan, file), 0, "the fallback");
        assert_eq!(
            of_batches_handed_over(&engine, &loan, file),
            0,
            "its threads"
        );
        let engine = Engine::ring();
        assert_eq!(of_calls(&engine, &loan, file), 0, "a ring");
        assert_eq!(
            of_batches_handed_over(&engine, &loan, file),
            0,
            "the I/O thread"
        );
    }
    assert_eq!(loan.results(), [4096; OPERATIONS]);
}
