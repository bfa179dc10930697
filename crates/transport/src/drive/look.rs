//! Whether a reading thread spins for a while before it sleeps: if spinning has paid off lately.
//!
//! Spinning takes a core from other work. When calls follow each other at once, it is what makes
//! them fast; when each call is one of many that run on as many processes at the same time, the
//! next one has never arrived yet, and the spinning threads delay the working ones.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use forebay_base::signals;
use forebay_base::time::timespec;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::limit::{
    LONG_LOOK_SKIP_MAX, LONG_LOOK_SKIP_MIN, LOOK_AGAIN, LOOK_IDLE_MS, LOOK_MISSES_MAX, SPIN_US,
};

/// How spinning on one connection has gone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    /// Spins in a row that found nothing, after which the thread slept and was woken soon.
    misses: u32,
    /// Sleeps since then without a spin.
    passed_over: u32,
    /// Never spin.
    off: bool,
}

impl Look {
    /// Whether to spin this time.
    pub fn is_worth_it(self) -> bool {
        !self.off && (self.misses < LOOK_MISSES_MAX || self.passed_over >= LOOK_AGAIN)
    }

    /// Never spin again.
    pub fn turn_off(&mut self) {
        self.off = true;
    }

    pub fn is_off(self) -> bool {
        self.off
    }

    /// Spin for input on a descriptor if that is worth it; if none arrives, `sleep` waits for it.
    ///
    /// # Errors
    ///
    /// Those of `sleep`.
    pub fn or_sleep<E>(
        &mut self,
        descriptor: BorrowedFd<'_>,
        sleep: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let looks = self.is_worth_it();
        if looks {
            let mut watched = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
            if spin(&mut watched, SPIN_US) {
                self.hit();
                return Ok(());
            }
        }
        let begun = Instant::now();
        sleep()?;
        self.slept(looks, begun.elapsed());
        Ok(())
    }

    /// As [`Self::or_sleep`], if only the descriptor and the timeout end the sleep.
    ///
    /// # Errors
    ///
    /// [`Errno::INTR`], and the other errors of `poll`.
    pub fn await_input(
        &mut self,
        descriptor: BorrowedFd<'_>,
        timeout: Option<Duration>,
    ) -> Result<(), Errno> {
        let mut watched = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
        self.or_sleep(descriptor, || {
            signals::poll(&mut watched, timeout).map(drop)
        })
    }

    /// Record a spin that found something.
    pub fn hit(&mut self) {
        self.forget();
    }

    fn forget(&mut self) {
        *self = Self {
            off: self.off,
            ..Self::default()
        };
    }

    /// Record a sleep, and whether it came after a spin.
    pub fn slept(&mut self, looked: bool, time: Duration) {
        if time.as_millis() >= u128::from(LOOK_IDLE_MS) {
            // The connection was idle, which says nothing about calls that follow each other.
            self.forget();
        } else if looked {
            self.misses += 1;
            self.passed_over = 0;
        } else {
            self.passed_over += 1;
        }
    }
}

/// Whether a thread that waits for many calls spins for longer: if that has paid off lately.
///
/// It is of no use if the answers take longer, and if other programs compete for the cores, a yield
/// costs one of their time slices, some milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct LongLook {
    /// Sleeps still to come without a spin.
    skip: u32,
    /// How many there were after the last spin that found nothing.
    last: u32,
}

impl LongLook {
    /// Nothing is known yet.
    pub const fn new() -> Self {
        Self { skip: 0, last: 0 }
    }

    /// Whether to spin this time.
    pub fn is_worth_it(&mut self) -> bool {
        if self.skip == 0 {
            return true;
        }
        self.skip -= 1;
        false
    }

    /// Spin for input on any socket before its reader sleeps.
    pub fn look_for_input(&mut self, socket: BorrowedFd<'_>) {
        if self.is_worth_it() {
            let found = spin(
                &mut [PollFd::from_borrowed_fd(socket, PollFlags::IN)],
                SPIN_US,
            );
            self.ended(found);
        }
    }

    /// Record a spin: whether it found something within its time.
    pub fn ended(&mut self, found: bool) {
        self.last = if found {
            0
        } else {
            (self.last * 2).clamp(LONG_LOOK_SKIP_MIN, LONG_LOOK_SKIP_MAX)
        };
        self.skip = self.last;
    }
}

/// Poll for events for a short while, yielding the core in between; true if there are some.
#[inline]
pub(crate) fn spin(fds: &mut [PollFd<'_>], time_us: u64) -> bool {
    let now = timespec(Duration::ZERO);
    let time = Duration::from_micros(time_us);
    forebay_base::spin::spin(time, || poll(fds, Some(&now)).is_ok_and(|count| count > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_was_turned_off_stays_off() {
        let mut look = Look::default();
        look.turn_off();
        look.hit();
        look.slept(false, Duration::from_secs(9));
        assert!(look.is_off() && !look.is_worth_it());
    }

    #[test]
    fn long_looks_that_find_nothing_in_time_become_rare() {
        let mut look = LongLook::new();
        let mut skipped = Vec::new();
        for found in [true, false, false, false, true] {
            let mut count = 0;
            while !look.is_worth_it() {
                count += 1;
            }
            skipped.push(count);
            look.ended(found);
        }
        let least = LONG_LOOK_SKIP_MIN;
        assert_eq!(skipped, [0, 0, least, 2 * least, 4 * least]);
        assert!(look.is_worth_it());
    }

    const SOON: Duration = Duration::from_micros(200);

    fn disappointed() -> Look {
        let mut look = Look::default();
        for _ in 0..LOOK_MISSES_MAX {
            assert!(look.is_worth_it());
            look.slept(true, SOON);
        }
        look
    }

    #[test]
    fn looks_that_find_nothing_stop_and_are_tried_again() {
        let mut look = disappointed();
        for _ in 0..LOOK_AGAIN {
            assert!(!look.is_worth_it());
            look.slept(false, SOON);
        }
        assert!(look.is_worth_it());
        look.slept(true, SOON);
        assert!(!look.is_worth_it());
    }

    #[test]
    fn a_look_that_finds_something_brings_them_back() {
        let mut look = disappointed();
        look.hit();
        assert!(look.is_worth_it());
    }

    #[test]
    fn a_long_sleep_says_nothing() {
        let mut look = disappointed();
        look.slept(false, Duration::from_millis(LOOK_IDLE_MS));
        assert!(look.is_worth_it());
    }
}
