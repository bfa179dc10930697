//! The machine's time: the wall clock's at the start, plus the time that has passed since.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use crate::request::Millis;

/// The kernel's timers stop while the machine sleeps, so no timer is set for longer.
const SLEEP_MAX: Duration = Duration::from_secs(30);

/// A clock that neither steps nor goes back, and continues while the machine sleeps. It ignores changes of the wall
/// clock, which is read beside it for what follows the calendar.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Duration,
    start: Millis,
    wall: fn() -> Millis,
}

impl Clock {
    /// A clock that agrees with the wall clock now.
    pub fn new() -> Self {
        Self::beside(system_wall)
    }

    /// The same beside another wall clock than the machine's.
    pub fn beside(wall: fn() -> Millis) -> Self {
        Self {
            started: since_boot(),
            start: wall(),
            wall,
        }
    }

    /// Milliseconds since 1970.
    pub fn now(&self) -> Millis {
        self.start + whole_millis(self.elapsed())
    }

    /// When it began.
    pub fn start(&self) -> Millis {
        self.start
    }

    /// Milliseconds since 1970 by the wall clock.
    pub fn wall(&self) -> Millis {
        (self.wall)()
    }

    /// How far the wall clock was set forward since the start; negative: back.
    pub fn ahead(&self) -> i64 {
        self.wall().cast_signed() - self.now().cast_signed()
    }

    /// The time of the boot by this clock: two clocks of one boot differ by as much as their times do.
    pub fn boot(&self) -> i64 {
        self.start.cast_signed() - whole_millis(self.started).cast_signed()
    }

    /// How long to sleep until `at`: zero if that has passed, and never more than [`SLEEP_MAX`].
    pub fn until(&self, at: Millis) -> Duration {
        let due = Duration::from_millis(at.saturating_sub(self.start));
        due.saturating_sub(self.elapsed()).min(SLEEP_MAX)
    }

    fn elapsed(&self) -> Duration {
        since_boot().saturating_sub(self.started)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

fn system_wall() -> Millis {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH);
    whole_millis(wall.unwrap_or_default())
}

/// The time since the boot, including the machine's sleep. Source: `clock_gettime(2)`, `CLOCK_BOOTTIME`.
fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let whole = Duration::from_secs(now.tv_sec.unsigned_abs());
    whole + Duration::from_nanos(now.tv_nsec.unsigned_abs())
}

fn whole_millis(time: Duration) -> Millis {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn a_wait_for_a_time_ends_when_it_has_come() {
        let clock = Clock::new();
        let now = clock.now();
        assert_eq!(clock.until(now), Duration::ZERO);
        let ahead = clock.until(now + 20_000);
        assert!(ahead <= Duration::from_secs(20) && ahead > Duration::from_secs(19));
        assert_eq!(clock.until(now + 3_600_000), SLEEP_MAX);
    }

    #[test]
    fn a_step_of_the_wall_is_seen_beside_it_and_moves_nothing() {
        static WALL: AtomicU64 = AtomicU64::new(1_000_000_000);
        let clock = Clock::beside(|| WALL.load(Ordering::Relaxed));
        WALL.store(500_000_000, Ordering::Relaxed);
        assert!(clock.now() >= 1_000_000_000);
        assert!(clock.ahead() <= -500_000_000);
        assert_eq!(clock.boot(), Clock { ..clock }.boot());
    }
}
