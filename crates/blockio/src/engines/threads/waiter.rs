//! What a blocking call of the fallback waits on.
use std::sync::atomic::Ordering;

use rustix::io::Errno;
use rustix::thread::futex::{Flags, Timespec};

use crate::engines::threads::sync::{AtomicU32, futex};

const WAITING: u32 = 0;
const ENDED: u32 = 1;

/// A wait with a time is ended by every signal, one without is resumed where the handler has `SA_RESTART`: signal(7).
/// A signal that came between the last check and the sleep does not end it, so the waiter checks again after this time.
const ROUND: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// One call's wait for the end of its batch; used again by the next call.
#[derive(Debug, Default)]
pub(crate) struct Waiter(AtomicU32);

/// Why a wait has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// The batch has.
    Ended,
    /// A signal came, or may have come before the wait.
    Interrupted,
}

impl Waiter {
    /// Begin anew; no thread is about to end the wait before.
    pub(crate) fn reset(&self) {
        self.0.store(WAITING, Ordering::Relaxed);
    }

    /// Wake the waiting thread. One system call.
    pub(crate) fn end(&self) {
        self.0.store(ENDED, Ordering::Release);
        let woken = futex::wake(&self.0, Flags::PRIVATE, 1);
        debug_assert!(woken.is_ok(), "futex wake: {woken:?}");
    }

    /// Wait for the end, or a signal.
    pub(crate) fn wait(&self) -> Waited {
        let mut signal = false;
        loop {
            if self.0.load(Ordering::Acquire) == ENDED {
                return Waited::Ended;
            }
            if signal {
                return Waited::Interrupted;
            }
            // A wake-up may be left over from an earlier call, so the word decides.
            let waited = futex::wait(&self.0, Flags::PRIVATE, WAITING, Some(&ROUND));
            signal = matches!(waited, Err(Errno::INTR | Errno::TIMEDOUT));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Waited, Waiter};
    use std::thread;

    #[test]
    fn a_wait_that_was_ended_before_it_began_returns_at_once() {
        let waiter = Waiter::default();
        waiter.end();
        assert_eq!(waiter.wait(), Waited::Ended);
    }

    #[test]
    fn a_wait_is_ended_from_another_thread_each_time() {
        let waiter = Waiter::default();
        for _ in 0..100 {
            waiter.reset();
            thread::scope(|scope| {
                scope.spawn(|| waiter.end());
                // A wait is given up once a second, to look for signals.
                while waiter.wait() != Waited::Ended {}
            });
        }
    }
}
