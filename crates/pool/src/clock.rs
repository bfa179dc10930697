//! Monotonic milliseconds, the same in every process of the machine: client and keeper compare them over the shared page.

use rustix::time::{ClockId, clock_gettime};

/// Now.
pub fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}
