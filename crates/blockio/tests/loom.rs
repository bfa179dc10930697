//! Every interleaving of callers that bring lanes, of the threads that carry them out, and of a close.
//!
//! The pool and the waiter are those that ship; what a lane holds is a count of operations, since lanes are only touched
//! under the pool's lock. What is handed to the I/O thread goes through the queue of `forebay-base`, which has its own model.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p forebay-blockio --test loom --release`
#![cfg(loom)]
#![allow(dead_code)] // a part of each module is used here

#[path = "../src/engines/threads/pool.rs"]
mod pool;
#[path = "../src/engines/threads/waiter.rs"]
mod waiter;

// Where these two look for what they name.
mod engines {
    pub(crate) mod ring {
        pub(crate) use crate::driver;
    }
    pub(crate) mod threads {
        pub(crate) use crate::{lane, sync};
    }
}

mod sync {
    pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use loom::thread;

    use std::sync::atomic::Ordering;

    /// A word with what the kernel has for those that sleep on it.
    #[derive(Debug, Default)]
    pub(crate) struct AtomicU32 {
        word: loom::sync::atomic::AtomicU32,
        lock: Mutex<()>,
        wakeup: Condvar,
    }

    impl AtomicU32 {
        pub(crate) fn load(&self, order: Ordering) -> u32 {
            self.word.load(order)
        }

        pub(crate) fn store(&self, value: u32, order: Ordering) {
            self.word.store(value, order);
        }
    }

    pub(crate) mod futex {
        use rustix::io::Errno;
        use rustix::thread::futex::{Flags, Timespec};

        use super::{AtomicU32, Ordering};

        /// Sleep where the word is as expected; looked at under the lock that `wake` takes, as the kernel does.
        pub(crate) fn wait(
            word: &AtomicU32,
            _: Flags,
            expected: u32,
            _: Option<&Timespec>,
        ) -> Result<(), Errno> {
            let guard = word.lock.lock().expect("no panic");
            if word.load(Ordering::Relaxed) != expected {
                return Err(Errno::AGAIN);
            }
            drop(word.wakeup.wait(guard));
            Ok(())
        }

        pub(crate) fn wake(word: &AtomicU32, _: Flags, _: u32) -> Result<usize, Errno> {
            drop(word.lock.lock());
            word.wakeup.notify_all();
            Ok(0)
        }
    }
}

mod error {
    #[derive(Debug)]
    pub(crate) struct Error;
}

mod service {
    use crate::error::Error;
    use crate::sync::thread::{self, JoinHandle};

    pub(crate) fn start<T: Send + 'static>(
        _: String,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<T>, Error> {
        Ok(thread::spawn(body))
    }
}

mod driver {
    pub(crate) struct Counts;

    impl Counts {
        pub(crate) fn of(_: u64) -> Self {
            Self
        }
    }
}

mod shared {
    use std::sync::Arc;

    pub(crate) struct Config {
        pub(crate) threads: u32,
    }

    pub(crate) struct Shared {
        pub(crate) config: Config,
        pub(crate) quarantine: Arc<()>,
    }

    impl Shared {
        pub(crate) fn count(&self, _: crate::driver::Counts) {}

        pub(crate) fn note_leak(&self, left: u32) {
            assert_eq!(left, 0, "nothing hangs here");
        }
    }
}

/// Lanes that count: `writes` operations, and a sync behind them that may only begin when they are over.
mod lane {
    use std::sync::Arc;

    use crate::waiter::Waiter;

    pub(crate) struct Notice {
        pub(crate) operations: u64,
    }

    impl Notice {
        pub(crate) fn send(self) {}
    }

    pub(crate) enum Ended {
        Notify(Notice),
        Wake(Arc<Waiter>),
        Drop(Box<()>),
    }

    pub(crate) struct Transfer;

    impl Transfer {
        pub(crate) fn carry_out(&self) -> i32 {
            0
        }
    }

    pub(crate) struct Job {
        lane: usize,
        pub(crate) transfer: Transfer,
    }

    pub(crate) struct Lane {
        pub(crate) writes: u32,
        pub(crate) has_sync: bool,
        pub(crate) waiter: Arc<Waiter>,
        pub(crate) flying: u32,
        /// Operations that were carried out.
        pub(crate) over: u32,
        /// `next` has not found yet that the sync has to wait.
        pub(crate) queued: bool,
        pub(crate) ended: bool,
    }

    impl Lane {
        pub(crate) fn new(writes: u32, has_sync: bool) -> Self {
            Self {
                writes,
                has_sync,
                waiter: Arc::default(),
                flying: 0,
                over: 0,
                queued: true,
                ended: false,
            }
        }

        fn has_more(&self) -> bool {
            self.writes > 0 || self.has_sync
        }

        fn take_one(&mut self) -> bool {
            if self.writes > 0 {
                self.writes -= 1;
            } else if self.has_sync && self.flying == 0 {
                self.has_sync = false;
            } else {
                self.queued = false;
                return false;
            }
            self.flying += 1;
            true
        }

        fn settle(&mut self, ended: &mut Vec<Ended>) {
            if !self.has_more() && self.flying == 0 && !self.ended {
                self.ended = true;
                ended.push(Ended::Wake(Arc::clone(&self.waiter)));
            }
        }
    }

    pub(crate) struct Lanes(pub(crate) Vec<Lane>);

    impl Lanes {
        pub(crate) fn new(_: u32, _: Arc<()>) -> Self {
            Self(Vec::new())
        }

        pub(crate) fn insert(&mut self, lane: Lane) -> usize {
            self.0.push(lane);
            self.0.len() - 1
        }

        pub(crate) fn can_issue(&self) -> bool {
            self.0.iter().any(|lane| lane.queued && lane.has_more())
        }

        pub(crate) fn next(&mut self, _: &mut Vec<Ended>) -> Option<Job> {
            let lane = self.0.iter_mut().position(Lane::take_one)?;
            Some(Job {
                lane,
                transfer: Transfer,
            })
        }

        pub(crate) fn complete(&mut self, job: &Job, _: i32, ended: &mut Vec<Ended>) {
            let lane = &mut self.0[job.lane];
            lane.flying -= 1;
            lane.over += 1;
            lane.queued = true;
            lane.settle(ended);
        }

        pub(crate) fn detach_all(&mut self, ended: &mut Vec<Ended>) {
            for lane in &mut self.0 {
                (lane.writes, lane.has_sync) = (0, false);
                lane.settle(ended);
            }
        }

        pub(crate) fn leak(&mut self) -> (u32, bool) {
            (self.0.iter().map(|lane| lane.flying).sum(), true)
        }

        pub(crate) fn refuse(&mut self, _: usize, _: u64) -> Option<Box<()>> {
            None
        }
    }
}

use std::sync::Arc;
use std::time::{Duration, Instant};

use lane::Lane;
use loom::thread;
use pool::Pool;
use shared::{Config, Shared};
use waiter::Waited;

/// Interleavings with so many forced switches are all tried.
const PREEMPTIONS: usize = 3;

fn model(check: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(check);
}

fn pool(threads: u32) -> Arc<Pool> {
    Arc::new(Pool::new(&Arc::new(Shared {
        config: Config { threads },
        quarantine: Arc::default(),
    })))
}

/// Bring a lane and wait for its end, as `Threads::hand_over` does; the operations that were carried out of it.
fn run(pool: &Arc<Pool>, writes: u32, has_sync: bool) -> Option<u32> {
    let lane = Lane::new(writes, has_sync);
    let waiter = Arc::clone(&lane.waiter);
    waiter.reset();
    let mut state = pool.lock();
    if state.stopping {
        return None;
    }
    let index = state.lanes.insert(lane);
    let ready = usize::try_from(writes.max(1)).expect("few");
    assert!(pool.call(state, ready).is_ok(), "threads can be had");
    while waiter.wait() == Waited::Interrupted {}
    let state = pool.lock();
    let lane = &state.lanes.0[index];
    assert!(lane.ended && lane.flying == 0, "told before its end");
    Some(lane.over)
}

/// loom reports a deadlock where a caller waits for a thread that was not woken.
fn close(pool: &Arc<Pool>) {
    assert_eq!(pool.close(Instant::now() + Duration::from_secs(3600)), 0);
    assert!(pool.lock().stopping);
}

#[test]
fn a_sync_behind_two_writes_is_carried_out_whichever_thread_ends_last() {
    model(|| {
        let pool = pool(2);
        assert_eq!(run(&pool, 2, true), Some(3));
        close(&pool);
    });
}

#[test]
fn a_thread_that_sleeps_is_woken_for_the_next_batch() {
    model(|| {
        let pool = pool(1);
        assert_eq!(run(&pool, 1, false), Some(1));
        assert_eq!(run(&pool, 1, true), Some(2));
        close(&pool);
    });
}

#[test]
fn two_callers_of_one_thread_both_get_their_end() {
    model(|| {
        let pool = pool(1);
        let other = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || run(&pool, 1, false))
        };
        assert_eq!(run(&pool, 1, true), Some(2));
        assert_eq!(other.join().expect("no panic"), Some(1));
        close(&pool);
    });
}

#[test]
fn a_caller_beside_a_close_is_refused_or_told() {
    model(|| {
        let pool = pool(1);
        let caller = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || run(&pool, 2, false))
        };
        close(&pool);
        assert!(
            caller
                .join()
                .expect("no panic")
                .is_none_or(|over| over <= 2)
        );
        close(&pool);
    });
}
