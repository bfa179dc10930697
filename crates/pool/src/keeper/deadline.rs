//! Which deadline comes next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::wire::Handle;

/// What a deadline is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeadlineKind {
    /// Ready after start.
    Start,
    /// Clean after release.
    Reset,
    /// Used again after going idle.
    Idle,
    /// Replaced for its age.
    Lifetime,
    /// Done with what it does before it ends.
    ExitHooks,
    /// Another look whether the last processes of such a service have ended.
    GroupExit,
    /// A template forks a spare; the handle is its number and its serial.
    Spare,
}

/// A queue of deadlines; those that no longer matter are recognised when they come, by the service's word.
#[derive(Debug, Default)]
pub struct DeadlineQueue(BinaryHeap<Reverse<(u64, DeadlineKind, Handle)>>);

impl DeadlineQueue {
    /// Add one.
    pub fn push(&mut self, at_ms: u64, kind: DeadlineKind, handle: Handle) {
        self.0.push(Reverse((at_ms, kind, handle)));
    }

    /// Take one that has come.
    pub fn pop_due(&mut self, now_ms: u64) -> Option<(DeadlineKind, Handle)> {
        let Reverse((at_ms, kind, handle)) = *self.0.peek()?;
        if at_ms > now_ms {
            return None;
        }
        self.0.pop();
        Some((kind, handle))
    }

    /// Milliseconds until the next one.
    pub fn wait_ms(&self, now_ms: u64) -> Option<u64> {
        self.0
            .peek()
            .map(|Reverse((at_ms, _, _))| at_ms.saturating_sub(now_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_come_in_order_and_never_early() {
        let mut deadlines = DeadlineQueue::default();
        let handle = |slot| Handle {
            slot,
            generation: 1,
        };
        deadlines.push(30, DeadlineKind::Idle, handle(1));
        deadlines.push(10, DeadlineKind::Reset, handle(2));
        assert_eq!(deadlines.wait_ms(4), Some(6));
        assert_eq!(deadlines.pop_due(9), None);
        assert_eq!(
            deadlines.pop_due(10),
            Some((DeadlineKind::Reset, handle(2)))
        );
        assert_eq!(deadlines.pop_due(29), None);
        assert_eq!(deadlines.pop_due(99), Some((DeadlineKind::Idle, handle(1))));
        assert_eq!(deadlines.wait_ms(99), None);
    }
}
