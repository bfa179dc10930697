//! Time as the machine has it: the wall's at the start, and what has passed since.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use crate::request::Millis;

/// The kernel's timers stand still while the machine sleeps: none of them is set for longer.
const SLEEP_MAX: Duration = Duration::from_secs(30);

/// A clock that neither steps nor goes back, and goes on while the machine sleeps. A wall clock that is set meanwhile
/// changes nothing here.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Duration,
    wall: Millis,
}

impl Clock {
    /// A clock that agrees with the wall's now.
    pub fn new() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            started: since_boot(),
            wall: whole_millis(wall.unwrap_or_default()),
        }
    }

    /// Milliseconds since 1970.
    pub fn now(&self) -> Millis {
        self.wall + whole_millis(self.elapsed())
    }

    /// How long to sleep for `at`: nothing where that has passed, and never more than [`SLEEP_MAX`].
    pub fn until(&self, at: Millis) -> Duration {
        let due = Duration::from_millis(at.saturating_sub(self.wall));
        due.saturating_sub(self.elapsed()).min(SLEEP_MAX)
    }

    fn elapsed(&self) -> Duration {
        since_boot().saturating_sub(self.started)
    }
}

/// Counts the time that the machine sleeps. Source: `clock_gettime(2)`, `CLOCK_BOOTTIME`.
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
}
