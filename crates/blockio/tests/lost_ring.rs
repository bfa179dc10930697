//! An I/O thread whose ring is gone.
//!
//! The one test of this file, because it looks for the ring among all descriptors of the process.
mod engine;
mod sys;

use std::collections::HashSet;
use std::fs::{self, DirEntry};
use std::thread::yield_now;
use std::time::{Duration, Instant};

use engine::{Engine, Folder, await_into, pattern, read, special};
use forebay_blockio::{Error, Files, Mode};
use rustix::io::Errno;
use sys::{Loan, put_over};

/// Descriptors that are rings.
fn rings() -> HashSet<i32> {
    let all = fs::read_dir("/proc/self/fd").expect("every Linux has it");
    let rings = all.filter_map(|entry| {
        let entry = entry.ok()?;
        let target = fs::read_link(entry.path()).ok()?;
        let is_ring = target.to_str()?.contains("[io_uring]");
        is_ring.then(|| entry.file_name().to_str()?.parse().ok())?
    });
    rings.collect()
}

/// Wait until the I/O thread sleeps in `io_uring_enter(2)`, whose number is 426 everywhere.
fn await_sleep() {
    let until = Instant::now() + Duration::from_secs(20);
    let sleeps = |task: DirEntry| {
        let call = fs::read_to_string(task.path().join("syscall"));
        call.is_ok_and(|call| call.starts_with("426 "))
    };
    let tasks = || fs::read_dir("/proc/self/task").expect("every Linux has it");
    while !tasks().flatten().any(sleeps) {
        assert!(Instant::now() < until, "the I/O thread does not sleep");
        yield_now(); // nobody is told when a thread falls asleep
    }
}

/// Whoever waits for a read is told, what the kernel may still write is never used again, and further batches are refused.
#[test]
fn what_was_in_flight_fails_and_keeps_its_memory() {
    let folder = Folder::new();
    let pipe = folder.pipe();
    let file = folder.file(&pattern(4096), false);
    let null = special("/dev/null", Mode::Read);
    let engine = Engine::io_thread();
    let before = rings();
    let [waiting, after] = [(); 2].map(|()| Loan::new(&[read(0, 0, 4)], 4));
    let first = engine.submit(
        waiting.batch(Files::One(pipe.file.clone()), false),
        waiting.keeper(),
    );
    // What was handed over later has ended, so the kernel has it.
    engine.run(after.batch(Files::One(file.clone()), false));
    await_sleep();
    for ring in rings().difference(&before) {
        put_over(*ring, &null);
    }
    // The thread sleeps with the ring that it had; what comes now wakes it.
    let second = engine.submit(after.batch(Files::One(file.clone()), false), after.keeper());
    let mut finished = Vec::new();
    await_into(&engine.done, 2, &mut finished);
    let mut tickets: Vec<_> = finished.iter().map(|one| one.ticket).collect();
    tickets.sort_unstable();
    assert_eq!(tickets, [first, second]);
    let lost = i64::from(-Errno::OPNOTSUPP.raw_os_error());
    assert_eq!(waiting.results(), [lost]);
    assert_eq!(after.results(), [lost]);
    drop(finished);
    assert_eq!(waiting.owners(), 2, "the kernel may still write it");
    assert_eq!(after.owners(), 1, "the kernel has never had it");
    assert_eq!(engine.queue.stats().leaked_operations, 1);

    let refused = engine.queue.submit(
        after.batch(Files::One(file), false),
        after.keeper(),
        3,
        &engine.done,
    );
    let refused = refused.expect_err("the thread has ended");
    assert!(matches!(refused, Error::System { .. }), "{refused:?}");
    assert!(
        refused.to_string().contains("make another queue"),
        "{refused}"
    );
    assert_eq!(after.owners(), 1);
    assert_eq!(engine.queue.close(), 1, "it is still lost");
}
