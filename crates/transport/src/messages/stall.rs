//! Whether the peer makes progress with half a message, or with output that waits for it.

use std::time::{Duration, Instant};

use crate::link::stall::{FlowPosition, StallTimer};

/// Both directions of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Stall {
    receiving: StallTimer,
    sending: StallTimer,
    /// The end of what was queued when the kernel last took all of an earlier goal. Fixed until it is reached: a peer that
    /// takes nothing has stalled, however much more is queued meanwhile.
    goal: u64,
}

impl Stall {
    /// Begin to measure.
    pub fn new(now: Instant) -> Self {
        Self {
            receiving: StallTimer::new(now),
            sending: StallTimer::new(now),
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

    /// The second of a hundred whose check finds a stall, with one check in each.
    fn stalls_at(mut sending: impl FnMut(u64) -> (u64, u64)) -> Option<u64> {
        let start = Instant::now();
        let mut stall = Stall::new(start);
        (0..100).find(|&second| {
            let now = start + Duration::from_secs(second);
            stall.has_stalled(now, None, Some(sending(second)), ALLOWED)
        })
    }

    #[test]
    fn output_that_is_not_taken_is_a_stall_though_more_is_queued() {
        assert_eq!(stalls_at(|second| (7, 100 + second)), Some(30));
    }

    #[test]
    fn output_that_was_taken_is_none_though_more_is_queued() {
        // At each look a few bytes wait, never the same.
        assert_eq!(stalls_at(|second| (second * 10, second * 10 + 5)), None);
    }

    #[test]
    fn half_a_message_is_a_stall_whatever_is_sent_meanwhile() {
        let start = Instant::now();
        let mut stall = Stall::new(start);
        let half = Some(FlowPosition {
            moved: 9,
            target: 0,
        });
        let found = (0..100).find(|&second| {
            let now = start + Duration::from_secs(second);
            let sent = second << 20;
            stall.has_stalled(now, half, Some((sent, sent + 1)), ALLOWED)
        });
        assert_eq!(found, Some(30));
    }
}
