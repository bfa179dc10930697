//! Connections that are accepted and not open yet: how many there may be, and until when each has to be open.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use forebay_base::slots::Key;

/// The handshakes under way.
///
/// Each holds a descriptor, even if its peer sends nothing; so their number and their time are bounded. All have the
/// same time, so they are late in the order in which they began. A deadline stays in the queue when its handshake ends,
/// since its removal would cost a search, and is dropped once it is the first.
#[derive(Debug)]
pub struct PendingHandshakes {
    max: usize,
    timeout: Duration,
    under_way: usize,
    deadlines: VecDeque<(Instant, Key)>,
}

impl PendingHandshakes {
    /// None yet; at most `max` at once, and `timeout` for each.
    pub fn new(max: usize, timeout: Duration) -> Self {
        Self {
            max,
            timeout,
            under_way: 0,
            deadlines: VecDeque::new(),
        }
    }

    /// Whether another one may begin.
    pub fn has_room(&self) -> bool {
        self.under_way < self.max
    }

    /// The handshake of a connection begins.
    pub fn begin(&mut self, key: Key, now: Instant) {
        self.under_way += 1;
        self.deadlines.push_back((now + self.timeout, key));
    }

    /// One has ended: its connection is open, or closed.
    pub fn end(&mut self) {
        debug_assert!(self.under_way > 0, "none is under way");
        self.under_way = self.under_way.saturating_sub(1);
    }

    /// When to look for late ones.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadlines.front().map(|(due, _)| *due)
    }

    /// Take one whose time has passed; those that `is_under_way` denies have ended.
    pub fn take_late(&mut self, now: Instant, is_under_way: impl Fn(Key) -> bool) -> Option<Key> {
        while let Some((due, key)) = self.deadlines.front().copied() {
            let under_way = is_under_way(key);
            if under_way && due > now {
                break;
            }
            self.deadlines.pop_front();
            if under_way {
                return Some(key);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(5);

    fn key(index: u32) -> Key {
        Key {
            index,
            generation: 0,
        }
    }

    #[test]
    fn there_is_room_below_the_maximum() {
        let mut handshakes = PendingHandshakes::new(2, TIMEOUT);
        let now = Instant::now();
        handshakes.begin(key(0), now);
        assert!(handshakes.has_room());
        handshakes.begin(key(1), now);
        assert!(!handshakes.has_room());
        handshakes.end();
        assert!(handshakes.has_room());
    }

    #[test]
    fn late_ones_come_in_their_order_without_those_that_have_ended() {
        let mut handshakes = PendingHandshakes::new(4, TIMEOUT);
        let now = Instant::now();
        assert_eq!(handshakes.deadline(), None);
        (0..4).for_each(|index| handshakes.begin(key(index), now + TIMEOUT * index));
        assert_eq!(handshakes.deadline(), Some(now + TIMEOUT));
        let except = |ended| move |one| one != key(ended);
        assert_eq!(handshakes.take_late(now, except(0)), None); // drops the deadline of the ended one
        assert_eq!(handshakes.deadline(), Some(now + TIMEOUT * 2));
        let at = now + TIMEOUT * 4;
        assert_eq!(handshakes.take_late(at, except(2)), Some(key(1)));
        assert_eq!(handshakes.take_late(at, except(2)), Some(key(3)));
        assert_eq!(handshakes.take_late(at, except(2)), None);
        assert_eq!(handshakes.deadline(), None);
    }
}
