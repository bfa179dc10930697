//! Calls at the caller's end, without a socket: ids, replies, cancellation.

use std::collections::{HashMap, VecDeque};

use crate::error::{Cause, Delivered, Error, Fault};
use crate::limit::CALL_BYTES_MIN;
use crate::wire::frame::{Incoming, Kind, Reason};

/// How a call ended.
#[derive(Debug)]
pub enum Outcome {
    Reply(Incoming),
    Failure(Reason, Incoming),
    /// The connection broke; whether the frame had left completely.
    Broken {
        fault: Fault,
        sent: bool,
    },
}

impl Outcome {
    /// What it weighs while it waits in the queue.
    fn queued_bytes(&self) -> usize {
        match self {
            Self::Reply(frame) | Self::Failure(_, frame) => frame.bytes() + CALL_BYTES_MIN,
            Self::Broken { .. } => 0,
        }
    }

    /// The frame that answers the call, and whether it describes what the call raised.
    ///
    /// # Errors
    ///
    /// Why there is no such frame.
    pub fn into_frame(self, peer: &str) -> Result<(Incoming, bool), Error> {
        match self {
            Self::Reply(frame) => Ok((frame, false)),
            Self::Failure(Reason::Raised, frame) => Ok((frame, true)),
            Self::Failure(reason, _) => Err(unanswered(reason, peer.to_owned())),
            Self::Broken { fault, sent: true } => Err(fault.to_error(peer, Delivered::Maybe)),
            Self::Broken { fault, sent: false } => Err(fault.to_error(peer, Delivered::No)),
        }
    }
}

/// The error for a call that `peer` ended without a head.
fn unanswered(reason: Reason, peer: String) -> Error {
    let (cause, delivered) = match reason {
        Reason::Expired => return Error::Deadline { peer },
        Reason::Stale => return Error::Stale { peer },
        Reason::Cancelled => (Cause::Cancelled, Delivered::Maybe),
        Reason::Undescribed => (Cause::Undescribed, Delivered::Maybe),
        // The call was refused before it began.
        Reason::Closing | Reason::Raised => (Cause::Goodbye, Delivered::No),
    };
    Error::Broken {
        peer,
        cause,
        delivered,
    }
}

/// Who takes the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taker {
    /// A thread that waits for this id.
    Thread,
    /// The consumer of the queue of finished calls, such as an event loop.
    Queue,
}

#[derive(Debug)]
enum Entry {
    Waiting { taker: Taker, end: u64 },
    Done(Outcome),
}

/// The calls of one connection. Ids count from 1 and are never used again.
#[derive(Debug, Default)]
pub struct Calls {
    last: u64,
    entries: HashMap<u64, Entry>,
    finished: VecDeque<(u64, Outcome)>,
    finished_bytes: usize,
    /// Replies to unknown or cancelled calls.
    pub late: u64,
}

impl Calls {
    /// Take the next id.
    pub fn next_id(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Continue with ids above this one: ids of other processes are below it.
    pub fn skip_ids_to(&mut self, id: u64) {
        self.last = self.last.max(id);
    }

    /// Wait for the reply to `id`, whose frame ends at offset `end` of the outgoing stream.
    pub fn begin(&mut self, id: u64, taker: Taker, end: u64) {
        self.entries.insert(id, Entry::Waiting { taker, end });
    }

    /// Take in a reply or failure frame.
    pub fn finish(&mut self, frame: Incoming) {
        let id = frame.header.id;
        let Some(entry) = self.entries.get_mut(&id) else {
            self.late += 1;
            return;
        };
        let Entry::Waiting { taker, .. } = *entry else {
            self.late += 1;
            return;
        };
        let outcome = match frame.header.kind {
            Kind::Failure => Outcome::Failure(Reason::from_wire(frame.header.time), frame),
            _ => Outcome::Reply(frame),
        };
        match taker {
            Taker::Thread => *entry = Entry::Done(outcome),
            Taker::Queue => {
                self.entries.remove(&id);
                self.finished_bytes += outcome.queued_bytes();
                self.finished.push_back((id, outcome));
            }
        }
    }

    /// The outcome of a thread's call, if it has one.
    pub fn take(&mut self, id: u64) -> Option<Outcome> {
        match self.entries.get(&id) {
            Some(Entry::Done(_)) => match self.entries.remove(&id) {
                Some(Entry::Done(outcome)) => Some(outcome),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether the call still waits for its reply.
    pub fn is_waiting(&self, id: u64) -> bool {
        matches!(self.entries.get(&id), Some(Entry::Waiting { .. }))
    }

    /// Change who takes the outcome of a call, even if it has arrived.
    pub fn hand_over(&mut self, id: u64, to: Taker) {
        if let Some(Entry::Waiting { taker, .. }) = self.entries.get_mut(&id) {
            *taker = to;
        } else if to == Taker::Queue {
            let Some(outcome) = self.take(id) else {
                return;
            };
            self.finished_bytes += outcome.queued_bytes();
            self.finished.push_back((id, outcome));
        } else if let Some(at) = self.finished.iter().position(|(done, _)| *done == id)
            && let Some((id, outcome)) = self.finished.remove(at)
        {
            self.finished_bytes -= outcome.queued_bytes();
            self.entries.insert(id, Entry::Done(outcome));
        }
    }

    /// Everything finished for the queue.
    pub fn take_finished(&mut self) -> VecDeque<(u64, Outcome)> {
        self.finished_bytes = 0;
        std::mem::take(&mut self.finished)
    }

    /// Forget a call; true if it was waiting, so that a cancel frame is due.
    pub fn cancel(&mut self, id: u64) -> bool {
        if let Some(at) = self
            .finished
            .iter()
            .position(|(finished, _)| *finished == id)
            && let Some((_, outcome)) = self.finished.remove(at)
        {
            self.finished_bytes -= outcome.queued_bytes();
        }
        matches!(self.entries.remove(&id), Some(Entry::Waiting { .. }))
    }

    /// End all waiting calls, given how far the outgoing stream went.
    pub fn break_all(&mut self, fault: &Fault, sent: u64) {
        self.break_those(fault, sent, |_| true);
    }

    /// End the calls whose frames have not left completely, given how far the outgoing stream went; their ids.
    pub fn break_unsent(&mut self, fault: &Fault, sent: u64) -> Vec<u64> {
        self.break_those(fault, sent, |end| end > sent)
    }

    fn break_those(&mut self, fault: &Fault, sent: u64, ends: impl Fn(u64) -> bool) -> Vec<u64> {
        let is_ended = |entry: &Entry| matches!(entry, Entry::Waiting { end, .. } if ends(*end));
        let mut waiting: Vec<u64> = self
            .entries
            .iter()
            .filter(|(_, entry)| is_ended(entry))
            .map(|(id, _)| *id)
            .collect();
        waiting.sort_unstable();
        for &id in &waiting {
            let Some(Entry::Waiting { taker, end }) = self.entries.remove(&id) else {
                continue;
            };
            let outcome = Outcome::Broken {
                fault: fault.clone(),
                sent: end <= sent,
            };
            match taker {
                Taker::Thread => drop(self.entries.insert(id, Entry::Done(outcome))),
                Taker::Queue => self.finished.push_back((id, outcome)),
            }
        }
        waiting
    }

    /// Calls that wait for a reply or whose reply was not taken.
    pub fn in_flight(&self) -> usize {
        self.entries.len() + self.finished.len()
    }

    /// Bytes that wait in the queue.
    pub fn bytes(&self) -> usize {
        self.finished_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::buffer::Buffer;
    use crate::wire::frame::Header;

    fn reply(id: u64) -> Incoming {
        let mut head = Buffer::with_capacity(5, 16).expect("memory");
        head.append(b"reply");
        Incoming {
            header: Header::control(Kind::Reply, id),
            head,
            segments: Vec::new(),
        }
    }

    #[test]
    fn a_late_reply_is_counted_and_dropped() {
        let mut calls = Calls::default();
        let id = calls.next_id();
        calls.begin(id, Taker::Thread, 10);
        assert!(calls.cancel(id));
        calls.finish(reply(id));
        calls.finish(reply(99));
        assert_eq!((calls.late, calls.in_flight()), (2, 0));
        assert_eq!(calls.next_id(), id + 1);
    }

    #[test]
    fn a_second_reply_does_not_replace_the_first() {
        let mut calls = Calls::default();
        let id = calls.next_id();
        calls.begin(id, Taker::Thread, 0);
        calls.finish(reply(id));
        calls.finish(reply(id));
        assert_eq!(calls.late, 1);
        assert!(matches!(calls.take(id), Some(Outcome::Reply(_))));
        assert!(calls.take(id).is_none());
    }

    #[test]
    fn an_outcome_follows_its_taker() {
        let mut calls = Calls::default();
        let id = calls.next_id();
        calls.begin(id, Taker::Thread, 0);
        calls.hand_over(id, Taker::Queue);
        calls.finish(reply(id));
        assert!(calls.take(id).is_none());
        calls.hand_over(id, Taker::Thread);
        assert!(calls.finished.is_empty());
        assert!(matches!(calls.take(id), Some(Outcome::Reply(_))));
        calls.hand_over(id, Taker::Queue);
        assert!(calls.finished.is_empty(), "it was taken");
    }

    #[test]
    fn what_leaves_the_queue_counts_no_more() {
        let mut calls = Calls::default();
        let ids: Vec<u64> = (0..3).map(|_| calls.next_id()).collect();
        for &id in &ids {
            calls.begin(id, Taker::Queue, 0);
            calls.finish(reply(id));
        }
        let each = calls.bytes() / 3;
        assert_eq!(each, CALL_BYTES_MIN + 5);
        calls.hand_over(ids[0], Taker::Thread);
        assert_eq!(calls.bytes(), 2 * each, "a thread has it");
        calls.hand_over(ids[0], Taker::Queue);
        assert_eq!(calls.bytes(), 3 * each, "and gives it back");
        assert!(!calls.cancel(ids[1]), "it was done");
        assert_eq!(calls.bytes(), 2 * each);
        calls.break_all(&Fault::Closed, 0);
        calls.hand_over(ids[2], Taker::Thread);
        assert_eq!(calls.take_finished().len(), 1);
        assert_eq!(calls.bytes(), 0);
    }

    #[test]
    fn breaking_says_which_frames_had_left() {
        let mut calls = Calls::default();
        for end in [10, 20] {
            let id = calls.next_id();
            calls.begin(id, Taker::Queue, end);
        }
        calls.break_all(&Fault::Closed, 15);
        let sent: Vec<_> = calls
            .take_finished()
            .into_iter()
            .map(|(_, outcome)| matches!(outcome, Outcome::Broken { sent: true, .. }))
            .collect();
        assert_eq!(sent, [true, false]);
    }

    #[test]
    fn an_answer_says_whether_the_call_raised() {
        let plain = Outcome::Reply(reply(1)).into_frame("the peer");
        let raised = Outcome::Failure(Reason::Raised, reply(1)).into_frame("the peer");
        assert!(matches!(plain, Ok((_, false))), "{plain:?}");
        assert!(matches!(raised, Ok((_, true))), "{raised:?}");
    }

    #[test]
    fn a_call_without_an_answer_says_whether_it_may_have_run() {
        let error = |outcome: Outcome| outcome.into_frame("the peer").expect_err("no frame");
        let failure = |reason| error(Outcome::Failure(reason, reply(1)));
        let broken = |cause, delivered| Error::Broken {
            peer: "the peer".to_owned(),
            cause,
            delivered,
        };
        let peer = "the peer".to_owned();
        assert_eq!(failure(Reason::Stale), Error::Stale { peer });
        let peer = "the peer".to_owned();
        assert_eq!(failure(Reason::Expired), Error::Deadline { peer });
        let cancelled = broken(Cause::Cancelled, Delivered::Maybe);
        assert_eq!(failure(Reason::Cancelled), cancelled);
        assert_eq!(
            failure(Reason::Closing),
            broken(Cause::Goodbye, Delivered::No)
        );
        for (sent, delivered) in [(true, Delivered::Maybe), (false, Delivered::No)] {
            let fault = Fault::Broken(Cause::EndOfFile);
            let lost = error(Outcome::Broken { fault, sent });
            assert_eq!(lost, broken(Cause::EndOfFile, delivered));
        }
    }
}
