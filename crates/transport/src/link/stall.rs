//! Whether a peer makes progress with what is in transit.
//!
//! The owner of many connections checks them now and then; nothing is counted in between. A loop that was held up checks
//! late, perhaps before it has read its sockets. So time alone is no stall: it takes several checks, between which the
//! loop reads.

use std::time::{Duration, Instant};

use crate::limit::{STALL_BYTES_MIN, STALL_LOOKS_MIN};

/// How far a flow of bytes is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowPosition {
    /// Bytes moved so far.
    pub moved: u64,
    /// Which message is in transit, or which goal; another number is progress.
    pub target: u64,
}

/// How long one flow has made no progress.
#[derive(Clone, Copy, Debug)]
pub struct StallTimer {
    /// When the last progress was found, or that nothing was in transit.
    since: Instant,
    position: Option<FlowPosition>,
    /// How many checks have found it there again.
    looks: u32,
}

impl StallTimer {
    /// Begin to measure.
    pub fn new(now: Instant) -> Self {
        Self {
            since: now,
            position: None,
            looks: 0,
        }
    }

    /// Whether it made no progress for `allowed`. `at` is `None` if nothing is in transit.
    pub fn has_stalled(
        &mut self,
        now: Instant,
        at: Option<FlowPosition>,
        allowed: Duration,
    ) -> bool {
        let stands = match (self.position, at) {
            (Some(before), Some(at)) => {
                let moved = at.moved.saturating_sub(before.moved);
                before.target == at.target && moved < STALL_BYTES_MIN
            }
            _ => false,
        };
        if stands {
            self.looks += 1;
            let elapsed = now.saturating_duration_since(self.since);
            return elapsed >= allowed && self.looks >= STALL_LOOKS_MIN;
        }
        *self = Self {
            since: now,
            position: at,
            looks: 0,
        };
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: Duration = Duration::from_secs(30);

    /// The second of `until` whose check finds a stall, with one check in each.
    fn stalls_at(mut at: impl FnMut(u64) -> FlowPosition, until: u64) -> Option<u64> {
        let start = Instant::now();
        let mut timer = StallTimer::new(start);
        (0..until).find(|&second| {
            let now = start + Duration::from_secs(second);
            timer.has_stalled(now, Some(at(second)), ALLOWED)
        })
    }

    fn position(moved: u64, target: u64) -> FlowPosition {
        FlowPosition { moved, target }
    }

    #[test]
    fn a_byte_now_and_then_is_no_progress() {
        assert_eq!(stalls_at(|second| position(second, 0), 100), Some(30));
    }

    #[test]
    fn a_look_that_comes_late_is_no_stall() {
        let start = Instant::now();
        let mut timer = StallTimer::new(start);
        for second in [0, 5, 300] {
            let now = start + Duration::from_secs(second);
            assert!(
                !timer.has_stalled(now, Some(position(9, 0)), ALLOWED),
                "{second}"
            );
        }
        let now = start + Duration::from_secs(301);
        assert!(!timer.has_stalled(now, Some(position(1 << 20, 0)), ALLOWED));
    }

    #[test]
    fn short_messages_and_idleness_are_progress() {
        assert_eq!(stalls_at(|second| position(second, second), 100), None);
        let start = Instant::now();
        let mut timer = StallTimer::new(start);
        for second in 0..100 {
            let half = position(9, 9);
            let now = start + Duration::from_secs(second);
            let at = second.is_multiple_of(20).then_some(half);
            assert!(!timer.has_stalled(now, at, ALLOWED), "{second}");
        }
    }

    #[test]
    fn a_slow_stream_of_much_is_progress() {
        assert_eq!(stalls_at(|second| position(second * 2_000, 0), 100), None);
    }

    #[test]
    fn what_stalls_after_progress_has_the_whole_time_from_then_on() {
        let once = |second| match second {
            0..10 => position(0, 0),
            10..20 => position(STALL_BYTES_MIN, 0),
            _ => position(STALL_BYTES_MIN, 1),
        };
        assert_eq!(stalls_at(once, 100), Some(50));
    }
}
