//! A process that may have no more threads.
//!
//! The one test of this file, because the limit is the process's.
mod engine;
mod sys;

use std::fs;

use engine::{Engine, Folder, pattern, read};
use forebay_blockio::{Error, Files};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sys::Loan;

/// Room for small things, and not for the stack of a thread.
const ROOM_BYTES: u64 = 1 << 20;

/// Do something while the process can have no more memory than it has.
fn confined<T>(act: impl FnOnce() -> T) -> T {
    let before = getrlimit(Resource::As);
    let status = fs::read_to_string("/proc/self/status").expect("every Linux has it");
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let kibibytes = size.and_then(|size| size.trim().trim_end_matches(" kB").parse::<u64>().ok());
    let bytes = kibibytes.expect("a number") << 10;
    let current = Some(bytes + ROOM_BYTES);
    setrlimit(Resource::As, Rlimit { current, ..before }).expect("lower is allowed");
    let outcome = act();
    setrlimit(Resource::As, before).expect("it was so before");
    outcome
}

/// The caller gets an error that names the limit, its memory, and a queue that works once there is room again.
#[test]
fn where_no_thread_can_be_started_a_batch_is_refused() {
    let folder = Folder::new();
    let cached = folder.file(&pattern(4096), false);
    let direct = folder.open(true);
    let loan = Loan::new(&[read(0, 0, 4096); 64], 4096);
    let engines = [
        Engine::threads(),
        Engine::handed_threads(),
        Engine::io_thread(),
    ];
    for engine in &engines {
        let batch = loan.batch(Files::One(direct.clone()), false);
        let refused = confined(|| engine.carry_out(batch));
        let refused = refused.expect_err("there is no thread");
        assert!(matches!(refused, Error::System { .. }), "{refused:?}");
        assert!(refused.to_string().contains("ulimit -u"), "{refused}");
    }
    let batch = loan.batch(Files::One(cached), false);
    confined(|| engines[0].run(batch)); // what is cached needs none
    // Only now, because the stacks of threads that have ended are used again.
    for engine in &engines {
        engine.run(loan.batch(Files::One(direct.clone()), false));
        assert_eq!(loan.results(), [4096; 64]);
        assert_eq!(engine.queue.close(), 0);
    }
}
