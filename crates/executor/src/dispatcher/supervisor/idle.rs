//! Detects that the server has been idle for a while.

use std::time::{Duration, Instant};

/// What was seen so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idleness {
    /// Requests wait or run.
    Busy,
    /// Nothing does, and idleness is reported at this time.
    Since(Instant),
    ReplyTo,
}

impl Idleness {
    /// Record whether the server is idle at `now`; true once, when it has been for `after`.
    pub fn look(&mut self, idle: bool, now: Instant, after: Duration) -> bool {
        match *self {
            _ if !idle => *self = Self::Busy,
            Self::Busy => *self = Self::Since(now + after),
            Self::Since(due) if due <= now => {
                *self = Self::ReplyTo;
                return true;
            }
            Self::Since(_) | Self::ReplyTo => {}
        }
        false
    }

    /// When idleness is to be reported.
    pub fn due(&self) -> Option<Instant> {
        match self {
            Self::Since(due) => Some(*due),
            Self::Busy | Self::ReplyTo => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idleness_is_reported_once_and_only_if_it_lasts() {
        const IDLE_MS: u64 = 1_000;
        let (start, after) = (Instant::now(), Duration::from_millis(IDLE_MS));
        let at = |ms| start + Duration::from_millis(ms);
        let mut idleness = Idleness::Busy;
        assert!(!idleness.look(true, at(0), after));
        assert!(
            !idleness.look(false, at(IDLE_MS), after),
            "it has begun to work"
        );
        assert!(!idleness.look(true, at(IDLE_MS), after));
        assert_eq!(idleness.due(), Some(at(2 * IDLE_MS)));
        assert!(idleness.look(true, at(2 * IDLE_MS), after));
        assert!(
            !idleness.look(true, at(9 * IDLE_MS), after),
            "it was reported"
        );
    }
}
