//! Credit at the serving end of streams, without a socket: how many items and bytes each may still send.
//!
//! A caller grants items by credit frames. The first precedes the call itself, so that both leave in one write; later
//! ones return what was consumed. Items are consumed in order, so a credit of n also says that the first n unconsumed
//! items no longer need memory at the caller: a stream sends nothing while [`STREAM_BYTES`] are unconsumed.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use crate::error::Violation;
use crate::limit::{STREAM_BYTES, STREAM_CREDIT_MAX};

#[derive(Debug)]
struct Granted {
    credit: u32,
    /// The bytes of each item that was sent and not consumed.
    unconsumed: VecDeque<usize>,
    bytes: usize,
    generation: u32,
    deadline: Option<Instant>,
}

/// The open streams of one connection, queued or running.
#[derive(Debug, Default)]
pub struct Credits {
    streams: HashMap<u64, Granted>,
    /// A credit for a stream that is not open: that of the next call, or a late one.
    first: Option<(u64, u32)>,
}

impl Credits {
    /// Accept a credit frame; true if it is for an open stream.
    ///
    /// # Errors
    /// `Credit` for 0, and above what a stream may have.
    pub fn grant(&mut self, id: u64, count: u32) -> Result<bool, Violation> {
        let violation = Violation::Credit {
            id,
            limit: STREAM_CREDIT_MAX,
            value: count,
        };
        if count == 0 || count > STREAM_CREDIT_MAX {
            return Err(violation);
        }
        let Some(granted) = self.streams.get_mut(&id) else {
            self.first = Some((id, count));
            return Ok(false);
        };
        if granted.credit + count > STREAM_CREDIT_MAX {
            return Err(violation);
        }
        granted.credit += count;
        for _ in 0..count {
            let Some(bytes) = granted.unconsumed.pop_front() else {
                break; // more than was consumed: the caller grants more items at once
            };
            granted.bytes -= bytes;
        }
        Ok(true)
    }

    /// A stream's call has arrived.
    ///
    /// # Errors
    /// `Uncredited` if its first credit has not arrived, or it is open already.
    pub fn open(&mut self, id: u64, generation: u32) -> Result<(), Violation> {
        match self.first.take() {
            Some((first, credit)) if first == id && !self.streams.contains_key(&id) => {
                let granted = Granted {
                    credit,
                    unconsumed: VecDeque::new(),
                    bytes: 0,
                    generation,
                    deadline: None,
                };
                self.streams.insert(id, granted);
                Ok(())
            }
            _ => Err(Violation::Uncredited(id)),
        }
    }

    /// It is running from now on, at most until its deadline.
    pub fn run(&mut self, id: u64, deadline: Option<Instant>) {
        if let Some(granted) = self.streams.get_mut(&id) {
            granted.deadline = deadline;
        }
    }

    /// Forget a stream; whether it was open.
    pub fn close(&mut self, id: u64) -> bool {
        !self.streams.is_empty() && self.streams.remove(&id).is_some()
    }

    /// Whether it is open.
    pub fn contains(&self, id: u64) -> bool {
        self.streams.contains_key(&id)
    }

    /// Whether it may send an item.
    pub fn may_send(&self, id: u64) -> bool {
        self.streams
            .get(&id)
            .is_some_and(|granted| granted.credit > 0 && granted.bytes < STREAM_BYTES)
    }

    /// Whether its deadline has passed.
    pub fn is_expired(&self, id: u64, now: Instant) -> bool {
        let deadline = self.streams.get(&id).and_then(|granted| granted.deadline);
        deadline.is_some_and(|at| at <= now)
    }

    /// Count an item that was sent.
    pub fn sent(&mut self, id: u64, bytes: usize) {
        if let Some(granted) = self.streams.get_mut(&id) {
            debug_assert!(granted.credit > 0, "asked before");
            granted.credit -= 1;
            granted.unconsumed.push_back(bytes);
            granted.bytes += bytes;
        }
    }

    /// The streams of other generations than this one, in order of their ids.
    pub fn of_others(&self, generation: u32) -> Vec<u64> {
        let others = self
            .streams
            .iter()
            .filter(|(_, granted)| granted.generation != generation);
        let mut ids: Vec<u64> = others.map(|(&id, _)| id).collect();
        ids.sort_unstable();
        ids
    }

    /// The earliest deadline of all.
    pub fn deadline(&self) -> Option<Instant> {
        let deadlines = self.streams.values().filter_map(|granted| granted.deadline);
        deadlines.min()
    }

    /// The open streams, in no order.
    pub fn ids(&self) -> impl Iterator<Item = u64> {
        self.streams.keys().copied()
    }

    /// Whether no stream is open.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn opened(credit: u32) -> Credits {
        let mut credits = Credits::default();
        assert_eq!(credits.grant(1, credit), Ok(false));
        assert_eq!(credits.open(1, 0), Ok(()));
        credits
    }

    #[test]
    fn a_stream_sends_what_it_was_allowed() {
        let mut credits = opened(2);
        for _ in 0..2 {
            assert!(credits.may_send(1));
            credits.sent(1, 10);
        }
        assert!(!credits.may_send(1));
        assert_eq!(credits.grant(1, 1), Ok(true));
        assert!(credits.may_send(1));
        assert!(credits.close(1) && !credits.close(1));
        assert!(!credits.may_send(1));
    }

    #[test]
    fn bytes_that_are_not_consumed_hold_a_stream_that_has_credit() {
        let mut credits = opened(100);
        credits.sent(1, STREAM_BYTES - 1);
        assert!(credits.may_send(1));
        credits.sent(1, 1);
        assert!(!credits.may_send(1));
        assert_eq!(credits.grant(1, 1), Ok(true));
        assert!(credits.may_send(1));
    }

    #[test]
    fn a_call_without_its_credit_and_a_second_call_of_one_id_are_refused() {
        let mut credits = Credits::default();
        assert_eq!(credits.open(1, 0), Err(Violation::Uncredited(1)));
        assert_eq!(credits.grant(2, 1), Ok(false));
        assert_eq!(credits.open(1, 0), Err(Violation::Uncredited(1)));
        let mut credits = opened(1);
        assert_eq!(credits.grant(1, 1), Ok(true));
        assert_eq!(credits.open(1, 0), Err(Violation::Uncredited(1)));
    }

    #[test]
    fn credit_is_some_and_has_a_limit() {
        let mut credits = opened(STREAM_CREDIT_MAX);
        for value in [0, 1, STREAM_CREDIT_MAX + 1, u32::MAX] {
            let expected = Violation::Credit {
                id: 1,
                limit: STREAM_CREDIT_MAX,
                value,
            };
            assert_eq!(credits.grant(1, value), Err(expected));
        }
        credits.sent(1, 0);
        assert_eq!(credits.grant(1, 1), Ok(true));
    }

    #[test]
    fn a_stream_runs_until_its_deadline() {
        let mut credits = opened(1);
        assert_eq!(credits.grant(2, 1), Ok(false));
        assert_eq!(credits.open(2, 0), Ok(()));
        let now = Instant::now();
        let (soon, later) = (now + Duration::from_millis(5), now + Duration::from_secs(5));
        assert_eq!(
            (credits.deadline(), credits.is_expired(1, now)),
            (None, false)
        );
        credits.run(1, Some(soon));
        credits.run(2, Some(later));
        credits.run(3, Some(now));
        assert_eq!(credits.deadline(), Some(soon));
        assert!(!credits.is_expired(1, now) && credits.is_expired(1, soon));
        assert!(!credits.is_expired(2, soon) && !credits.is_expired(3, soon));
        let mut ids: Vec<u64> = credits.ids().collect();
        ids.sort_unstable();
        assert_eq!(ids, [1, 2]);
        assert!(credits.contains(1) && !credits.contains(3));
        assert!(credits.close(1) && !credits.is_expired(1, soon));
        assert_eq!(credits.deadline(), Some(later));
        assert!(credits.close(2) && credits.is_empty());
    }

    #[test]
    fn streams_of_another_lease_are_named() {
        let mut credits = Credits::default();
        for (id, generation) in [(5, 1), (3, 1), (4, 2)] {
            assert_eq!(credits.grant(id, 1), Ok(false));
            assert_eq!(credits.open(id, generation), Ok(()));
        }
        assert_eq!(credits.of_others(2), [3, 5]);
    }
}
