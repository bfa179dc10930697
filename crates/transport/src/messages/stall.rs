//! Whether the peer moves on with what it is in the middle of: half a message, or output that it does not take.
//!
//! Looked at now and then, by whoever has many connections; nothing is counted in between.

use std::time::{Duration, Instant};

use crate::limit::STALL_BYTES_MIN;

/// Where one direction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Bytes that it has moved.
    pub moved: u64,
    /// What it is in the middle of begins, or ends, here; another number is something else.
    pub what: u64,
}

/// One direction, as it was when it had last moved on.
#[derive(Clone, Copy, Debug)]
struct Direction {
    since: Instant,
    place: Option<Place>,
}

impl Direction {
    fn has_stalled(&mut self, now: Instant, at: Option<Place>, allowed: Duration) -> bool {
        let stands = match (self.place, at) {
            (Some(before), Some(at)) => {
                before.what == at.what && at.moved - before.moved < STALL_BYTES_MIN
            }
            _ => false,
        };
        if stands {
            return now.saturating_duration_since(self.since) >= allowed;
        }
        *self = Self {
            since: now,
            place: at,
        };
        false
    }
}

/// Both directions of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Stall {
    receiving: Direction,
    sending: Direction,
    /// The end of what was queued when sending last moved on.
    goal: u64,
}

impl Stall {
    /// From here on.
    pub fn new(now: Instant) -> Self {
        let direction = Direction {
            since: now,
            place: None,
        };
        Self {
            receiving: direction,
            sending: direction,
            goal: 0,
        }
    }

    /// Whether the peer has not moved on for `allowed`.
    ///
    /// `receiving` is `None` between two messages, and where this side does not read. `sending` is what the kernel has
    /// and the end of what is queued, `None` where nothing waits.
    pub fn has_stalled(
        &mut self,
        now: Instant,
        receiving: Option<Place>,
        sending: Option<(u64, u64)>,
        allowed: Duration,
    ) -> bool {
        let place = sending.map(|(sent, queued)| {
            if sent >= self.goal {
                self.goal = queued;
            }
            Place {
                moved: sent,
                what: self.goal,
            }
        });
        let receiving = self.receiving.has_stalled(now, receiving, allowed);
        self.sending.has_stalled(now, place, allowed) || receiving
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: Duration = Duration::from_secs(30);

    fn looks(
        mut at: impl FnMut(u64) -> (Option<Place>, Option<(u64, u64)>),
        until: u64,
    ) -> Option<u64> {
        let start = Instant::now();
        let mut stall = Stall::new(start);
        (0..until).find(|&second| {
            let (receiving, sending) = at(second);
            let now = start + Duration::from_secs(second);
            stall.has_stalled(now, receiving, sending, ALLOWED)
        })
    }

    #[test]
    fn a_byte_now_and_then_is_no_progress() {
        let drip = |second| {
            (
                Some(Place {
                    moved: second,
                    what: 0,
                }),
                None,
            )
        };
        assert_eq!(looks(drip, 100), Some(30));
    }

    #[test]
    fn short_messages_and_idleness_are_progress() {
        let chat = |second| {
            (
                Some(Place {
                    moved: second,
                    what: second,
                }),
                None,
            )
        };
        assert_eq!(looks(chat, 100), None);
        let idle = |second: u64| {
            (
                second
                    .is_multiple_of(20)
                    .then_some(Place { moved: 9, what: 9 }),
                None,
            )
        };
        assert_eq!(looks(idle, 100), None);
    }

    #[test]
    fn a_slow_stream_of_much_is_progress() {
        let slow = |second| {
            (
                Some(Place {
                    moved: second * 2_000,
                    what: 0,
                }),
                None,
            )
        };
        assert_eq!(looks(slow, 100), None);
    }

    #[test]
    fn output_that_is_not_taken_is_a_stall_though_more_is_queued() {
        assert_eq!(
            looks(|second| (None, Some((7, 100 + second))), 100),
            Some(30)
        );
    }

    #[test]
    fn output_that_was_taken_is_none_though_more_is_queued() {
        // At each look a few bytes wait, never the same.
        assert_eq!(
            looks(|second| (None, Some((second * 10, second * 10 + 5))), 100),
            None
        );
    }
}
