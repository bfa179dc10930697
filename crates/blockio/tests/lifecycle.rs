//! When threads are there: from the first need to the close.
//!
//! The one test of this file, because it looks at all threads of the process.
mod engine;
mod sys;

use std::fs;

use engine::{Engine, Folder, await_one, await_until, pattern, read};
use forebay_blockio::Files;
use sys::Loan;

/// Names of the threads of block I/O.
fn threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").expect("every Linux has it");
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names
        .filter(|name| name.starts_with("forebay-block"))
        .collect()
}

/// A thread gives itself its name, and is seen a moment longer than it can be joined.
fn await_threads(count: usize, what: &str) {
    await_until(what, || threads().len() == count);
}

/// Signals that a thread does not take, as the kernel counts them.
fn blocked() -> Vec<u64> {
    let tasks = fs::read_dir("/proc/self/task").expect("every Linux has it");
    let statuses =
        tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("status")).ok());
    let ours = statuses.filter(|status| status.starts_with("Name:\tforebay-block"));
    ours.map(|status| {
        let mask = status
            .lines()
            .find_map(|line| line.strip_prefix("SigBlk:\t"));
        u64::from_str_radix(mask.expect("every status has it"), 16).expect("a number")
    })
    .collect()
}

/// A program that never waits for a disk has no thread for it, and one that has closed the queue neither.
#[test]
fn threads_come_when_they_are_needed_and_go_with_a_close() {
    let folder = Folder::new();
    let cached = folder.file(&pattern(64 * 4096), false);
    let reads: Vec<_> = (0..64).map(|at| read(at * 4096, at * 4096, 4096)).collect();
    let loan = Loan::new(&reads, 64 * 4096);
    let engine = Engine::threads();
    engine.run(loan.batch(Files::One(cached.clone()), false));
    await_threads(0, "what is cached is read by the caller");

    let single = Loan::new(&reads[..1], 64 * 4096);
    engine.run(single.batch(Files::One(folder.open(true)), false));
    await_threads(1, "one operation needs one thread");
    engine.run(loan.batch(Files::One(folder.open(true)), false));
    await_threads(32, "more operations than threads");
    let interrupt_and_terminate = 1 << (libc::SIGINT - 1) | 1 << (libc::SIGTERM - 1);
    await_until("a thread takes signals", || {
        blocked()
            .iter()
            .all(|mask| mask & interrupt_and_terminate == interrupt_and_terminate)
    });
    assert_eq!(engine.queue.close(), 0);
    await_threads(0, "a close ends them");

    // Dropped without a close, with a read in flight that ends when it is waited for.
    let engine = Engine::io_thread();
    engine.run(loan.batch(Files::One(cached.clone()), false));
    await_threads(1, "the I/O thread");
    let pipe = folder.pipe();
    engine.submit(
        single.batch(Files::One(pipe.file.clone()), false),
        single.keeper(),
    );
    let done = engine.done.clone();
    drop(engine);
    await_threads(0, "dropping the queue ends its threads");
    let finished = await_one(&done);
    assert_eq!(
        single.results(),
        [i64::from(-libc::ECANCELED)],
        "a pipe is cancelled"
    );
    drop(finished);
    assert_eq!(single.owners(), 1);
}
