//! Sleeping so that no signal stays unheard.
//!
//! Python runs signal handlers in the thread that waits, once its sleep has ended with `EINTR`. A signal that comes
//! between the thread's last look for signals and its sleep ends no sleep: it would be heard once the sleep ends by
//! itself, which may be never. Sending a call, spinning, and a busy machine make that gap milliseconds long.
//!
//! So a thread that looks for signals says so, [`watch`], and its sleeps are short at first, then as long as all before
//! together: a signal is late by the time that was waited already, at most, and a wait of an hour is interrupted 17 times.

use std::cell::Cell;
use std::time::Duration;

use rustix::event::PollFd;
use rustix::io::Errno;

use crate::time::timespec;

/// The first sleep: no person notices it, and few answers take longer.
const FIRST: Duration = Duration::from_millis(50);

thread_local! {
    static LONGEST: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// This thread begins a wait, and looks for signals whenever [`poll`] says `INTR`.
#[inline]
pub fn watch() {
    LONGEST.set(Some(FIRST));
}

/// Sleep as poll(2) does, `None` without an end.
///
/// # Errors
/// `INTR` if a signal came, or may have come unheard, in a thread that [watches](watch); the others of poll(2).
pub fn poll(watched: &mut [PollFd<'_>], timeout: Option<Duration>) -> Result<usize, Errno> {
    let longest = LONGEST
        .get()
        .filter(|longest| timeout.is_none_or(|timeout| timeout > *longest));
    let limit = longest.or(timeout).map(timespec);
    let ready = rustix::event::poll(watched, limit.as_ref())?;
    match longest {
        Some(longest) if ready == 0 => {
            LONGEST.set(Some(longest.saturating_mul(2)));
            Err(Errno::INTR)
        }
        _ => Ok(ready),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_thread_that_watches_sleeps_twice_as_long_each_time() {
        watch();
        for times in [1, 2, 4] {
            let begun = Instant::now();
            assert_eq!(poll(&mut [], None), Err(Errno::INTR));
            assert!(begun.elapsed() >= FIRST * times);
        }
        watch();
        let begun = Instant::now();
        assert_eq!(poll(&mut [], Some(FIRST * 20)), Err(Errno::INTR));
        assert!(begun.elapsed() < FIRST * 20);
    }

    #[test]
    fn a_shorter_timeout_and_a_thread_that_does_not_watch_are_as_poll() {
        let timeout = Some(FIRST * 2);
        assert_eq!(poll(&mut [], timeout), Ok(0));
        watch();
        assert_eq!(poll(&mut [], Some(FIRST)), Ok(0));
        assert_eq!(poll(&mut [], Some(Duration::ZERO)), Ok(0));
    }
}
