//! Streams at the calling end, without a socket: items in order, returned credit, one end.
//!
//! A stream is open until its one end has arrived, a reply or a failure, which the server sends even to a caller that has
//! cancelled. So any frame for an id that is not open is a protocol violation, and nothing is delivered after the end.

use std::collections::{HashMap, VecDeque};

use crate::calls::call::{Outcome, Taker};
use crate::error::{Cause, Fault, Violation};
use crate::limit::STREAM_BYTES;
use crate::wire::frame::{Incoming, Kind, Reason};

/// The next part of a stream.
#[derive(Debug)]
pub enum Next {
    /// Items that have arrived: at least one, at most half of the credit.
    Items(Vec<Incoming>),
    /// It has ended, or its caller has cancelled it: then without an outcome.
    End(Option<Outcome>),
    /// Nothing has arrived yet.
    Nothing,
}

#[derive(Debug)]
struct Receiving {
    taker: Taker,
    /// Where the frame of its call ends in the outgoing stream.
    end: u64,
    /// Items that the server may send at once.
    granted: u32,
    /// Items that it may still send.
    credit: u32,
    ready: VecDeque<Incoming>,
    /// Of the items that are ready.
    bytes: usize,
    /// Items that were taken last, and their bytes; they count as consumed when more are asked for.
    taken_last: (u32, usize),
    /// Items that were consumed and not yet returned as credit, and their bytes.
    unreturned: (u32, usize),
    outcome: Option<Outcome>,
    ended: bool,
    cancelled: bool,
    /// It is in `to_notify`, or its taker has not taken anything since it was.
    notified: bool,
}

/// The streams of one connection whose end has not been taken.
#[derive(Debug, Default)]
pub struct Streams {
    open: HashMap<u64, Receiving>,
    to_notify: Vec<u64>,
    bytes: usize,
    cancelled: usize,
}

impl Receiving {
    /// Of items that were not returned as credit.
    fn unconsumed_bytes(&self) -> usize {
        self.bytes + self.taken_last.1 + self.unreturned.1
    }
}

impl Streams {
    /// Expect the items of `id`, whose first credit and call are sent.
    pub fn begin(&mut self, id: u64, taker: Taker, credit: u32) {
        let receiving = Receiving {
            taker,
            end: u64::MAX,
            granted: credit,
            credit,
            ready: VecDeque::new(),
            bytes: 0,
            taken_last: (0, 0),
            unreturned: (0, 0),
            outcome: None,
            ended: false,
            cancelled: false,
            notified: false,
        };
        self.open.insert(id, receiving);
    }

    /// Record where the frame of its call ends in the outgoing stream.
    pub fn sent_until(&mut self, id: u64, end: u64) {
        if let Some(receiving) = self.open.get_mut(&id) {
            receiving.end = end;
        }
    }

    /// Accept an item.
    ///
    /// # Errors
    /// `NoStream` if the stream is not open, `Overdrawn` if the item was not granted: without credit, or while
    /// `STREAM_BYTES` are unconsumed. A server that keeps the rules counts at least as much as this end.
    pub fn accept(&mut self, frame: Incoming) -> Result<(), Violation> {
        let id = frame.header.id;
        let receiving = match self.open.get_mut(&id) {
            Some(receiving) if !receiving.ended => receiving,
            _ => return Err(Violation::NoStream(id)),
        };
        if receiving.credit == 0 || receiving.unconsumed_bytes() >= STREAM_BYTES {
            return Err(Violation::Overdrawn(id));
        }
        receiving.credit -= 1;
        if receiving.cancelled {
            return Ok(());
        }
        let bytes = frame.bytes();
        receiving.bytes += bytes;
        self.bytes += bytes;
        receiving.ready.push_back(frame);
        self.notify(id);
        Ok(())
    }

    /// Accept the reply or failure that ends a stream; returns the frame if it belongs to no open one.
    pub fn finish(&mut self, frame: Incoming) -> Option<Incoming> {
        let id = frame.header.id;
        let Some(receiving) = self.open.get_mut(&id).filter(|receiving| !receiving.ended) else {
            return Some(frame);
        };
        if receiving.cancelled {
            self.open.remove(&id);
            self.cancelled -= 1;
            return None;
        }
        receiving.ended = true;
        receiving.outcome = Some(match frame.header.kind {
            Kind::Failure => Outcome::Failure(Reason::from_wire(frame.header.time), frame),
            _ => Outcome::Reply(frame),
        });
        self.notify(id);
        None
    }

    /// What was taken last is consumed; returns the credit that is due for it, to be sent.
    ///
    /// Credit is returned in halves of what was first granted, so that the server always has the other half to send by.
    pub fn consume(&mut self, id: u64) -> Option<u32> {
        let receiving = self.open.get_mut(&id)?;
        let (items, bytes) = std::mem::take(&mut receiving.taken_last);
        receiving.unreturned.0 += items;
        receiving.unreturned.1 += bytes;
        let (items, bytes) = receiving.unreturned;
        let is_due = items * 2 >= receiving.granted || bytes * 2 >= STREAM_BYTES;
        if items == 0 || !is_due || receiving.ended || receiving.cancelled {
            return None;
        }
        receiving.unreturned = (0, 0);
        receiving.credit += items;
        Some(items)
    }

    /// Take the next part: first items, then the end, after which the stream is forgotten.
    pub fn take(&mut self, id: u64) -> Next {
        let Some(receiving) = self
            .open
            .get_mut(&id)
            .filter(|receiving| !receiving.cancelled)
        else {
            return Next::End(None);
        };
        receiving.notified = false;
        if receiving.ready.is_empty() {
            if !receiving.ended {
                return Next::Nothing;
            }
            let receiving = self.open.remove(&id);
            return Next::End(receiving.and_then(|receiving| receiving.outcome));
        }
        let most = (receiving.granted / 2).max(1) as usize;
        let mut items = Vec::with_capacity(most.min(receiving.ready.len()));
        let mut bytes = 0;
        while items.len() < most
            && bytes * 2 < STREAM_BYTES
            && let Some(item) = receiving.ready.pop_front()
        {
            bytes += item.bytes();
            items.push(item);
        }
        let count = u32::try_from(items.len()).unwrap_or(u32::MAX);
        receiving.taken_last.0 += count;
        receiving.taken_last.1 += bytes;
        receiving.bytes -= bytes;
        self.bytes -= bytes;
        Next::Items(items)
    }

    /// Whether `take` would give something.
    pub fn has_next(&self, id: u64) -> bool {
        self.open.get(&id).is_none_or(|receiving| {
            receiving.cancelled || receiving.ended || !receiving.ready.is_empty()
        })
    }

    /// Cancel a stream; true if a cancel frame is due. Items that still arrive are dropped.
    pub fn cancel(&mut self, id: u64) -> bool {
        let Some(receiving) = self
            .open
            .get_mut(&id)
            .filter(|receiving| !receiving.cancelled)
        else {
            return false;
        };
        self.bytes -= std::mem::take(&mut receiving.bytes);
        receiving.ready.clear();
        if receiving.ended {
            self.open.remove(&id);
            return false;
        }
        receiving.cancelled = true;
        self.cancelled += 1;
        true
    }

    /// End every stream with `fault`, given how far the outgoing stream went. Items that have arrived stay.
    pub fn break_all(&mut self, fault: &Fault, sent: u64) {
        self.open.retain(|_, receiving| !receiving.cancelled);
        self.cancelled = 0;
        self.break_those(fault, sent, |_| true);
    }

    /// End the streams whose calls have not left completely, given how far the outgoing stream went; their ids.
    pub fn break_unsent(&mut self, fault: &Fault, sent: u64) -> Vec<u64> {
        self.break_those(fault, sent, |end| end > sent)
    }

    fn break_those(&mut self, fault: &Fault, sent: u64, ends: impl Fn(u64) -> bool) -> Vec<u64> {
        let is_ended = |receiving: &Receiving| !receiving.ended && ends(receiving.end);
        let mut ids: Vec<u64> = self
            .open
            .iter()
            .filter(|(_, receiving)| is_ended(receiving))
            .map(|(id, _)| *id)
            .collect();
        ids.sort_unstable();
        for &id in &ids {
            let Some(receiving) = self.open.get_mut(&id) else {
                continue;
            };
            receiving.ended = true;
            receiving.outcome = Some(Outcome::Broken {
                fault: fault.clone(),
                sent: receiving.end <= sent,
            });
            self.notify(id);
        }
        ids
    }

    /// The peer does not support streams: end all of them; returns their ids.
    pub fn refuse_all(&mut self) -> Vec<u64> {
        let ids = self.open.keys().copied().collect();
        self.break_all(&Fault::Broken(Cause::NoStreams), 0);
        ids
    }

    /// The streams with `Taker::Queue` that something has arrived for since they were taken last.
    pub fn take_ready(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.to_notify)
    }

    /// Streams that were not cancelled and whose end was not taken.
    pub fn in_flight(&self) -> usize {
        self.open.len() - self.cancelled
    }

    /// Streams that were cancelled and whose end has not arrived.
    pub fn cancelled(&self) -> usize {
        self.cancelled
    }

    /// Bytes of items that were not taken.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn notify(&mut self, id: u64) {
        if let Some(receiving) = self.open.get_mut(&id)
            && receiving.taker == Taker::Queue
            && !std::mem::replace(&mut receiving.notified, true)
        {
            self.to_notify.push(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::buffer::Buffer;
    use crate::wire::frame::Header;

    fn frame(kind: Kind, id: u64) -> Incoming {
        Incoming {
            header: Header::control(kind, id),
            head: Buffer::with_capacity(0, 16).expect("nothing"),
            segments: Vec::new(),
        }
    }

    fn begun(credit: u32) -> Streams {
        let mut streams = Streams::default();
        streams.begin(1, Taker::Queue, credit);
        streams
    }

    fn taken(streams: &mut Streams) -> usize {
        match streams.take(1) {
            Next::Items(items) => items.len(),
            Next::End(_) | Next::Nothing => 0,
        }
    }

    #[test]
    fn credit_comes_back_in_halves_when_more_is_asked_for() {
        let mut streams = begun(5);
        for _ in 0..5 {
            assert!(streams.accept(frame(Kind::Item, 1)).is_ok());
        }
        assert_eq!(
            streams.accept(frame(Kind::Item, 1)),
            Err(Violation::Overdrawn(1))
        );
        assert_eq!(streams.consume(1), None);
        assert_eq!(taken(&mut streams), 2);
        assert_eq!(streams.consume(1), None, "two of five are no half");
        assert_eq!(taken(&mut streams), 2);
        assert_eq!(streams.consume(1), Some(4));
        assert_eq!((taken(&mut streams), taken(&mut streams)), (1, 0));
    }

    #[test]
    fn credit_comes_back_once_half_of_it_was_consumed() {
        for (granted, items) in [(1, 1), (3, 2), (8, 4), (20, 10)] {
            let mut streams = begun(granted);
            for _ in 0..items {
                assert_eq!(streams.consume(1), None);
                assert!(streams.accept(frame(Kind::Item, 1)).is_ok());
                assert_eq!(taken(&mut streams), 1);
            }
            assert_eq!(streams.consume(1), Some(items));
        }
    }

    #[test]
    fn items_beyond_the_bytes_of_a_stream_break_the_protocol_wherever_they_lie() {
        let long = || {
            let mut segment = Buffer::with_capacity(STREAM_BYTES / 4, 16).expect("memory");
            segment.append(&vec![0; STREAM_BYTES / 4]);
            Incoming {
                segments: vec![segment],
                ..frame(Kind::Item, 1)
            }
        };
        let mut streams = begun(100);
        for _ in 0..4 {
            assert!(streams.accept(long()).is_ok());
        }
        let overdrawn = Err(Violation::Overdrawn(1));
        assert_eq!(streams.accept(frame(Kind::Item, 1)), overdrawn, "ready");
        assert_eq!(taken(&mut streams), 2);
        assert_eq!(streams.accept(frame(Kind::Item, 1)), overdrawn, "in hand");
        assert_eq!(streams.consume(1), Some(2));
        assert!(streams.accept(long()).is_ok(), "room was given back");
        assert_eq!(taken(&mut streams), 2);
        assert!(
            streams.cancel(1) && streams.accept(long()).is_ok(),
            "dropped"
        );
    }

    #[test]
    fn a_stream_of_one_item_at_a_time_moves_on() {
        let mut streams = begun(1);
        for _ in 0..3 {
            assert!(streams.accept(frame(Kind::Item, 1)).is_ok());
            assert_eq!(taken(&mut streams), 1);
            assert_eq!(streams.consume(1), Some(1));
        }
    }

    #[test]
    fn whoever_looks_is_told_whether_there_is_something() {
        let mut streams = begun(4);
        assert!(
            !streams.has_next(1) && streams.has_next(2),
            "one is unknown"
        );
        assert!(streams.accept(frame(Kind::Item, 1)).is_ok());
        assert!(streams.accept(frame(Kind::Item, 1)).is_ok());
        assert!(streams.has_next(1));
        assert_eq!(streams.take_ready(), [1]);
        assert_eq!(taken(&mut streams), 2);
        assert!(!streams.has_next(1) && streams.take_ready().is_empty());
        assert!(streams.finish(frame(Kind::Failure, 1)).is_none());
        assert!(streams.has_next(1), "its end");
        assert_eq!(streams.take_ready(), [1]);
        let end = streams.take(1);
        assert!(
            matches!(end, Next::End(Some(Outcome::Failure(..)))),
            "{end:?}"
        );
        assert!(streams.has_next(1), "its end was taken");
        streams.begin(1, Taker::Thread, 1);
        assert!(streams.accept(frame(Kind::Item, 1)).is_ok());
        assert!(streams.take_ready().is_empty(), "a thread looks by itself");
        assert!(streams.cancel(1) && streams.has_next(1));
        streams.break_all(&Fault::Closed, 0);
        assert_eq!((streams.cancelled(), streams.in_flight()), (0, 0));
    }

    #[test]
    fn what_is_left_early_is_known_until_its_end_has_come() {
        let mut streams = begun(4);
        assert!(streams.accept(frame(Kind::Item, 1)).is_ok());
        assert!(streams.cancel(1) && !streams.cancel(1));
        assert_eq!((streams.in_flight(), streams.cancelled()), (0, 1));
        assert!(matches!(streams.take(1), Next::End(None)));
        assert!(streams.accept(frame(Kind::Item, 1)).is_ok(), "on its way");
        assert!(streams.finish(frame(Kind::Failure, 1)).is_none());
        assert_eq!(streams.cancelled(), 0);
        assert_eq!(
            streams.accept(frame(Kind::Item, 1)),
            Err(Violation::NoStream(1))
        );
        assert!(streams.finish(frame(Kind::Reply, 1)).is_some());
    }

    #[test]
    fn items_that_came_before_a_break_are_delivered_first() {
        let mut streams = begun(4);
        streams.sent_until(1, 10);
        assert!(streams.accept(frame(Kind::Item, 1)).is_ok());
        streams.break_all(&Fault::Closed, 10);
        assert_eq!(streams.take_ready(), [1]);
        assert_eq!(taken(&mut streams), 1);
        assert!(matches!(
            streams.take(1),
            Next::End(Some(Outcome::Broken { sent: true, .. }))
        ));
        assert_eq!(streams.in_flight(), 0);
    }

    fn with_head(id: u64) -> Incoming {
        let mut head = Buffer::with_capacity(8, 16).expect("memory");
        head.append(&[0; 8]);
        Incoming {
            head,
            ..frame(Kind::Item, id)
        }
    }

    #[test]
    fn a_stream_that_ended_or_was_left_holds_no_bytes_and_gets_no_credit() {
        for leaves in [false, true] {
            let mut streams = begun(2);
            for _ in 0..2 {
                assert!(streams.accept(with_head(1)).is_ok());
            }
            assert_eq!((taken(&mut streams), streams.bytes()), (1, 8));
            if leaves {
                assert!(streams.cancel(1));
            } else {
                assert!(streams.finish(frame(Kind::Reply, 1)).is_none());
            }
            assert_eq!(streams.bytes(), if leaves { 0 } else { 8 });
            assert_eq!(streams.consume(1), None);
        }
    }

    #[test]
    fn a_peer_that_reads_nothing_more_ends_what_has_not_left_and_has_no_end_yet() {
        let mut streams = Streams::default();
        for (id, end) in [(1, 10), (2, 11), (3, 30), (4, 20)] {
            streams.begin(id, Taker::Queue, 1);
            streams.sent_until(id, end);
        }
        assert!(streams.finish(frame(Kind::Reply, 3)).is_none());
        assert_eq!(streams.break_unsent(&Fault::Closed, 10), [2, 4]);
        assert_eq!(streams.break_unsent(&Fault::Closed, 10), [], "once");
        assert!(matches!(streams.take(1), Next::Nothing));
        assert!(matches!(
            streams.take(2),
            Next::End(Some(Outcome::Broken { sent: false, .. }))
        ));
        assert!(matches!(
            streams.take(3),
            Next::End(Some(Outcome::Reply(_)))
        ));
    }
}
