//! Monotonic milliseconds, the same in every process of the machine.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Now.
pub fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}

/// A wait of so many milliseconds, for poll and epoll.
pub fn wait_of(milliseconds: u64) -> Timespec {
    let seconds = i64::try_from(milliseconds / 1000).unwrap_or(i64::MAX);
    let rest = i64::try_from(milliseconds % 1000).unwrap_or(0);
    Timespec {
        tv_sec: seconds,
        tv_nsec: rest * 1_000_000,
    }
}
