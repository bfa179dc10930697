//! Times as the kernel takes them.

use std::time::{Duration, Instant};

use rustix::event::Timespec;

/// A duration for poll(2), `epoll_wait(2)` and timers. One that the kernel's clock cannot hold never ends.
pub fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

/// The moment `timeout` from now; `None` where there is no timeout, or the clock cannot hold it.
pub fn deadline(timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|timeout| Instant::now().checked_add(timeout))
}

/// What is left until a deadline, at least nothing; `None` where there is none.
pub fn left(deadline: Option<Instant>) -> Option<Duration> {
    deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_keep_their_nanoseconds() {
        let half = timespec(Duration::new(7, 500_000_001));
        assert_eq!((half.tv_sec, half.tv_nsec), (7, 500_000_001));
        assert_eq!(timespec(Duration::MAX).tv_sec, i64::MAX);
    }

    #[test]
    fn a_deadline_beyond_the_clock_is_none() {
        assert_eq!(deadline(Some(Duration::MAX)), None);
        assert_eq!(left(None), None);
        let passed = deadline(Some(Duration::ZERO));
        assert_eq!(left(passed), Some(Duration::ZERO));
    }
}
