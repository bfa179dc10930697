//! Whether a connection with something in transit makes progress.

use std::time::{Duration, Instant};

use crate::limit::STALL_BYTES_MIN;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Messages received and sent so far; each new one is progress.
    pub messages: u64,
    /// Bytes moved so far, in both directions.
    pub bytes: u64,
}

/// The last sufficient progress.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    since: Instant,
    from: Position,
}

impl Progress {
    /// Begin to measure.
    pub fn new(now: Instant) -> Self {
        let from = Position {
            messages: 0,
            bytes: 0,
        };
        Self { since: now, from }
    }

    /// Whether it made no progress for `allowed`. `at` is `None` if nothing is in transit.
    pub fn has_stalled(&mut self, now: Instant, at: Option<Position>, allowed: Duration) -> bool {
        let Some(at) = at else {
            self.since = now;
            return false;
        };
        let moved = at.bytes.saturating_sub(self.from.bytes) >= STALL_BYTES_MIN;
        if moved || at.messages != self.from.messages {
            *self = Self {
                since: now,
                from: at,
            };
            return false;
        }
        now.saturating_duration_since(self.since) >= allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_now_and_then_is_no_progress() {
        let start = Instant::now();
        let allowed = Duration::from_secs(30);
        let mut progress = Progress::new(start);
        for second in 0..30 {
            let at = Position {
                messages: 0,
                bytes: second,
            };
            let now = start + Duration::from_secs(second);
            assert!(!progress.has_stalled(now, Some(at), allowed), "{second}");
        }
        let late = start + allowed;
        let drip = Position {
            messages: 0,
            bytes: 30,
        };
        assert!(progress.has_stalled(late, Some(drip), allowed));
    }

    #[test]
    fn idleness_bytes_and_messages_count() {
        let start = Instant::now();
        let allowed = Duration::from_secs(30);
        let mut progress = Progress::new(start);
        let enough = Position {
            messages: 0,
            bytes: STALL_BYTES_MIN,
        };
        let another = Position {
            messages: 1,
            bytes: STALL_BYTES_MIN,
        };
        for (at, second) in [(None, 40), (Some(enough), 60), (Some(another), 89)] {
            let now = start + Duration::from_secs(second);
            assert!(!progress.has_stalled(now, at, allowed));
        }
        let late = start + Duration::from_secs(119);
        assert!(progress.has_stalled(late, Some(another), allowed));
    }
}
