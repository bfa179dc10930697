//! Whether the peer makes progress with half a message, or with output that waits for it.
//!
//! The owner of many connections checks them now and then; nothing is counted in between. A loop that was held up checks
//! late, perhaps before it has read its sockets. So time alone is no stall: it takes several checks, between which the
//! loop reads.

use std::time::{Duration, Instant};

use crate::limit::{STALL_BYTES_MIN, STALL_LOOKS_MIN};

/// The progress of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowPosition {
    /// Bytes moved so far.
    pub moved: u64,
    /// Where the current message begins, or the queued output ends: another number means another message.
    pub target: u64,
}

/// One direction, at its last progress.
#[derive(Clone, Copy, Debug)]
struct Direction {
    since: Instant,
    position: Option<FlowPosition>,
    /// How many checks have found it there again.
    looks: u32,
}

impl Direction {
    fn has_stalled(&mut self, now: Instant, at: Option<FlowPosition>, allowed: Duration) -> bool {
        let stands = match (self.position, at) {
            (Some(before), Some(at)) => {
                before.target == at.target && at.moved - before.moved < STALL_BYTES_MIN
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

/// Both directions of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Stall {
    receiving: Direction,
    sending: Direction,
    /// The end of what was queued when the kernel last took all of an earlier goal. Fixed until it is reached: a peer that
    /// takes nothing has stalled, however much more is queued meanwhile.
    goal: u64,
}

impl Stall {
    /// Begin to measure.
    pub fn new(now: Instant) -> Self {
        let direction = Direction {
            since: now,
            position: None,
            looks: 0,
        };
        Self {
            receiving: direction,
            sending: direction,
            goal: 0,
        }
    }

    /// Whether the peer has made no progress for `allowed`.
    ///
    /// `receiving` is `None` between two messages and while this side does not read. `sending` is how far the kernel has
    /// the stream and the end of what is queued, `None` if nothing waits.
    pub fn has_stalled(
        &mut self,
        now: Instant,
        receiving: Option<FlowPosition>,
        sending: Option<(u64, u64)>,
        allowed: Duration,
    ) -> bool {
        let position = sending.map(|(sent, queued)| {
            if sent >= self.goal {
                self.goal = queued;
            }
            FlowPosition {
                moved: sent,
                target: self.goal,
            }
        });
        let receiving = self.receiving.has_stalled(now, receiving, allowed);
        self.sending.has_stalled(now, position, allowed) || receiving
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: Duration = Duration::from_secs(30);

    fn looks(
        mut at: impl FnMut(u64) -> (Option<FlowPosition>, Option<(u64, u64)>),
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
                Some(FlowPosition {
                    moved: second,
                    target: 0,
                }),
                None,
            )
        };
        assert_eq!(looks(drip, 100), Some(30));
    }

    #[test]
    fn a_look_that_comes_late_is_no_stall() {
        let start = Instant::now();
        let mut stall = Stall::new(start);
        let half = Some(FlowPosition {
            moved: 9,
            target: 0,
        });
        for second in [0, 5, 300] {
            let now = start + Duration::from_secs(second);
            assert!(
                !stall.has_stalled(now, half, Some((1, 2)), ALLOWED),
                "{second}"
            );
        }
        let read_on = Some(FlowPosition {
            moved: 1 << 20,
            target: 0,
        });
        let now = start + Duration::from_secs(301);
        assert!(!stall.has_stalled(now, read_on, None, ALLOWED));
    }

    #[test]
    fn short_messages_and_idleness_are_progress() {
        let chat = |second| {
            (
                Some(FlowPosition {
                    moved: second,
                    target: second,
                }),
                None,
            )
        };
        assert_eq!(looks(chat, 100), None);
        let idle = |second: u64| {
            (
                second.is_multiple_of(20).then_some(FlowPosition {
                    moved: 9,
                    target: 9,
                }),
                None,
            )
        };
        assert_eq!(looks(idle, 100), None);
    }

    #[test]
    fn a_slow_stream_of_much_is_progress() {
        let slow = |second| {
            (
                Some(FlowPosition {
                    moved: second * 2_000,
                    target: 0,
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
