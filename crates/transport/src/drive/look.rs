//! Whether a reading thread looks for a while before it sleeps: where looking has paid lately.
//!
//! Looking takes a core from whoever else could run. Where calls follow each other at once it is
//! what makes them fast; where each call is one of many that are made at the same time on as many
//! processes, the next one is never there yet, and what looks is in the way of what works.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::drive::blocking::spin;
use crate::limit::{
    LONG_LOOK_SKIP_MAX, LONG_LOOK_SKIP_MIN, LOOK_AGAIN, LOOK_IDLE_MS, LOOK_MISSES_MAX, SPIN_US,
};

/// What became of the looks at one connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    /// Looks in a row after which the thread slept, and was woken soon.
    misses: u32,
    /// Sleeps since then without a look.
    passed_over: u32,
    /// Never, whatever became of them.
    off: bool,
}

impl Look {
    /// Whether to look this time.
    pub fn is_worth_it(self) -> bool {
        !self.off && (self.misses < LOOK_MISSES_MAX || self.passed_over >= LOOK_AGAIN)
    }

    /// Look no more.
    pub fn turn_off(&mut self) {
        self.off = true;
    }

    pub fn is_off(self) -> bool {
        self.off
    }

    /// Look for input on a descriptor, where that is worth it, and otherwise have `sleep` wait for it.
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

    /// The same, where nothing but the descriptor and the time ends the sleep.
    ///
    /// # Errors
    ///
    /// [`Errno::INTR`], and what `poll` has besides.
    pub fn await_input(
        &mut self,
        descriptor: BorrowedFd<'_>,
        timeout: Option<&Timespec>,
    ) -> Result<(), Errno> {
        let mut watched = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
        self.or_sleep(descriptor, || poll(&mut watched, timeout).map(drop))
    }

    /// Note a look that found something.
    pub fn hit(&mut self) {
        self.forget();
    }

    fn forget(&mut self) {
        *self = Self {
            off: self.off,
            ..Self::default()
        };
    }

    /// Note a sleep, and whether it came after a look.
    pub fn slept(&mut self, looked: bool, time: Duration) {
        if time.as_millis() >= u128::from(LOOK_IDLE_MS) {
            // Nobody wanted anything: that says nothing about calls that follow each other.
            self.forget();
        } else if looked {
            self.misses += 1;
            self.passed_over = 0;
        } else {
            self.passed_over += 1;
        }
    }
}

/// Whether a thread that waits for many looks for longer: where that has paid lately.
///
/// Where the answers take longer it is of no use, and where programs of others compete for the
/// cores, a yield costs a whole slice of theirs, some milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct LongLook {
    /// Sleeps without a look still to come.
    skip: u32,
    /// How many there were the last time.
    last: u32,
}

impl LongLook {
    /// Nothing is known yet.
    pub const fn new() -> Self {
        Self { skip: 0, last: 0 }
    }

    /// Whether to look this time.
    pub fn is_worth_it(&mut self) -> bool {
        if self.skip == 0 {
            return true;
        }
        self.skip -= 1;
        false
    }

    /// Look for input on a socket that is no connection of ours, before its reader sleeps.
    pub fn look_for_input(&mut self, socket: BorrowedFd<'_>) {
        if self.is_worth_it() {
            let found = spin(
                &mut [PollFd::from_borrowed_fd(socket, PollFlags::IN)],
                SPIN_US,
            );
            self.ended(found);
        }
    }

    /// Note a look: whether it found something within the time that it was allowed.
    pub fn ended(&mut self, found: bool) {
        self.last = if found {
            0
        } else {
            (self.last * 2).clamp(LONG_LOOK_SKIP_MIN, LONG_LOOK_SKIP_MAX)
        };
        self.skip = self.last;
    }
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
