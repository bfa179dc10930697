//! Time as the machine has it: the wall's at the start, and what has passed since.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::request::Millis;

/// A clock that neither steps nor goes back. A wall clock that is set meanwhile changes nothing here.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    wall: Millis,
}

impl Clock {
    /// A clock that agrees with the wall's now.
    pub fn new() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            started: Instant::now(),
            wall: whole_millis(wall.unwrap_or_default()),
        }
    }

    /// Milliseconds since 1970.
    pub fn now(&self) -> Millis {
        self.wall + whole_millis(self.started.elapsed())
    }

    /// How long it is until `at`: nothing where that has passed.
    pub fn until(&self, at: Millis) -> Duration {
        let due = Duration::from_millis(at.saturating_sub(self.wall));
        due.saturating_sub(self.started.elapsed())
    }
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
        let ahead = clock.until(now + 60_000);
        assert!(ahead <= Duration::from_secs(60) && ahead > Duration::from_secs(59));
    }
}
