//! Calls at the serving end, without a socket: order, expiry, cancellation, generations.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use crate::calls::incoming::Call;
use crate::error::Violation;
use crate::wire::frame::{Incoming, Reason, time_from_wire};

/// A call that will not be started, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub id: u64,
    pub reason: Reason,
}

/// The stage of a call that has arrived and is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Queued,
    Running,
    /// It runs, but its caller no longer waits for the answer.
    Cancelled,
}

/// Queued and running calls.
#[derive(Debug, Default)]
pub struct Inbox {
    queue: VecDeque<Call>,
    bytes: usize,
    /// Of queued calls, and of running ones that are to be answered.
    stages: HashMap<u64, Stage>,
    generation: u32,
    closing: bool,
    /// Dropped because their deadline had passed.
    pub expired: u64,
    /// Refused because of an older generation.
    pub stale: u64,
    /// Removed from the queue by their caller.
    pub cancelled: u64,
}

impl Inbox {
    /// Accept a call frame that arrived at `now`; a refusal is to be sent back.
    ///
    /// # Errors
    /// `Repeated` for the id of a queued or running call, even if the frame would be refused.
    pub fn accept(&mut self, frame: Incoming, now: Instant) -> Result<Option<Refusal>, Violation> {
        let header = frame.header;
        if self.stages.contains_key(&header.id) {
            return Err(Violation::Repeated(header.id));
        }
        let refuse = |reason| {
            (!header.one_way).then_some(Refusal {
                id: header.id,
                reason,
            })
        };
        if self.closing {
            return Ok(refuse(Reason::Closing));
        }
        if is_older(header.generation, self.generation) {
            self.stale += 1;
            return Ok(refuse(Reason::Stale));
        }
        self.generation = header.generation;
        let call = Call {
            id: header.id,
            codec: header.codec,
            one_way: header.one_way,
            stream: header.stream,
            deadline: time_from_wire(header.time).and_then(|remaining| now.checked_add(remaining)),
            generation: header.generation,
            head: frame.head,
            segments: frame.segments,
        };
        self.bytes += call.bytes();
        self.stages.insert(call.id, Stage::Queued);
        self.queue.push_back(call);
        Ok(None)
    }

    /// Take the next call; one whose deadline has passed is returned as a refusal instead.
    pub fn next(&mut self, now: Instant) -> Option<Result<Call, Option<Refusal>>> {
        let call = self.queue.pop_front()?;
        self.bytes -= call.bytes();
        let refusal = if call.deadline.is_some_and(|deadline| deadline <= now) {
            self.expired += 1;
            Some(Reason::Expired)
        } else if is_older(call.generation, self.generation) {
            self.stale += 1;
            Some(Reason::Stale)
        } else {
            None
        };
        if let Some(reason) = refusal {
            self.stages.remove(&call.id);
            return Some(Err((!call.one_way).then_some(Refusal {
                id: call.id,
                reason,
            })));
        }
        if call.one_way {
            self.stages.remove(&call.id);
        } else {
            self.stages.insert(call.id, Stage::Running);
        }
        Some(Ok(call))
    }

    /// The caller cancels; true if the call runs.
    pub fn cancel(&mut self, id: u64) -> bool {
        let Some(stage) = self.stages.get_mut(&id) else {
            return false;
        };
        if *stage != Stage::Queued {
            *stage = Stage::Cancelled;
            return true;
        }
        self.stages.remove(&id);
        if let Some(at) = self.queue.iter().position(|call| call.id == id)
            && let Some(call) = self.queue.remove(at)
        {
            self.bytes -= call.bytes();
            self.cancelled += 1;
        }
        false
    }

    /// Record the answer; false if the caller no longer waits for it.
    pub fn answer(&mut self, id: u64) -> bool {
        if self.stages.get(&id) == Some(&Stage::Queued) {
            return false; // not taken yet, so there is nothing to answer
        }
        self.stages.remove(&id) == Some(Stage::Running)
    }

    /// Whether it is running, cancelled or not.
    pub fn is_running(&self, id: u64) -> bool {
        self.stages
            .get(&id)
            .is_some_and(|stage| *stage != Stage::Queued)
    }

    /// Whether the caller waits for the answer to a running call.
    pub fn awaits(&self, id: u64) -> bool {
        self.stages.get(&id) == Some(&Stage::Running)
    }

    /// Whether a running call was cancelled, or is unknown.
    pub fn is_cancelled(&self, id: u64) -> bool {
        !self.awaits(id)
    }

    /// The caller is gone: drop the queue, cancel what runs.
    pub fn abandon(&mut self) -> Vec<u64> {
        self.cancelled += self.queue.len() as u64;
        self.queue.clear();
        self.bytes = 0;
        self.stages.retain(|_, stage| *stage != Stage::Queued);
        self.stages
            .values_mut()
            .for_each(|stage| *stage = Stage::Cancelled);
        self.stages.keys().copied().collect()
    }

    /// Refuse calls that arrive from now on, and queued ones: their callers may go elsewhere.
    pub fn close(&mut self) -> Vec<Refusal> {
        self.closing = true;
        self.bytes = 0;
        self.stages.retain(|_, stage| *stage != Stage::Queued);
        let waiting = self.queue.drain(..).filter(|call| !call.one_way);
        let refused = waiting.map(|call| Refusal {
            id: call.id,
            reason: Reason::Closing,
        });
        refused.collect()
    }

    /// Whether calls that arrive are refused.
    pub fn is_closing(&self) -> bool {
        self.closing
    }

    /// Refuse generations older than this one.
    pub fn set_generation(&mut self, generation: u32) {
        self.generation = generation;
    }

    /// The newest generation seen or set.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Calls that wait.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Serial number order (RFC 1982), so that the counter may wrap.
fn is_older(generation: u32, than: u32) -> bool {
    generation.wrapping_sub(than).cast_signed() < 0
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sys::buffer::Buffer;
    use crate::wire::frame::{Header, Kind, NO_DEADLINE};

    fn call(id: u64, time: u32, generation: u32) -> Incoming {
        let head = Buffer::with_capacity(0, 16).expect("nothing");
        Incoming {
            header: Header {
                time,
                generation,
                ..Header::control(Kind::Call, id)
            },
            head,
            segments: Vec::new(),
        }
    }

    fn accept(inbox: &mut Inbox, frame: Incoming, now: Instant) -> Option<Refusal> {
        inbox.accept(frame, now).expect("a new id")
    }

    #[test]
    fn a_call_of_an_id_that_waits_or_runs_breaks_the_protocol() {
        let (mut inbox, now) = (Inbox::default(), Instant::now());
        inbox.set_generation(1);
        let again = Some(Violation::Repeated(1));
        accept(&mut inbox, call(1, NO_DEADLINE, 1), now);
        assert_eq!(inbox.accept(call(1, NO_DEADLINE, 1), now).err(), again);
        assert!(inbox.next(now).expect("queued").is_ok());
        for stale in [false, true] {
            let frame = call(1, NO_DEADLINE, u32::from(!stale));
            assert_eq!(inbox.accept(frame, now).err(), again);
        }
        assert!(inbox.cancel(1));
        assert_eq!(inbox.accept(call(1, NO_DEADLINE, 1), now).err(), again);
        assert!(!inbox.answer(1));
        assert_eq!(accept(&mut inbox, call(1, NO_DEADLINE, 1), now), None);
        assert!(!inbox.cancel(1), "it waits, and is forgotten");
        assert_eq!(accept(&mut inbox, call(1, NO_DEADLINE, 1), now), None);
        assert_eq!(inbox.close().len(), 1);
        assert!(inbox.stages.is_empty());
    }

    #[test]
    fn expired_calls_are_answered_unstarted() {
        let (mut inbox, now) = (Inbox::default(), Instant::now());
        accept(&mut inbox, call(1, 5, 0), now);
        accept(&mut inbox, call(2, NO_DEADLINE, 0), now);
        let later = now + Duration::from_millis(5);
        let refused = inbox.next(later).expect("queued").expect_err("expired");
        assert_eq!(
            refused,
            Some(Refusal {
                id: 1,
                reason: Reason::Expired
            })
        );
        assert_eq!(inbox.next(later).expect("queued").expect("runs").id, 2);
        assert_eq!((inbox.expired, inbox.bytes()), (1, 0));
    }

    #[test]
    fn older_generations_are_refused_also_across_the_wrap() {
        let (mut inbox, now) = (Inbox::default(), Instant::now());
        inbox.set_generation(u32::MAX);
        assert_eq!(accept(&mut inbox, call(1, NO_DEADLINE, 1), now), None);
        let refusal = accept(&mut inbox, call(2, NO_DEADLINE, u32::MAX), now);
        assert_eq!(
            refusal,
            Some(Refusal {
                id: 2,
                reason: Reason::Stale
            })
        );
        assert_eq!((inbox.stale, inbox.generation()), (1, 1));
    }

    #[test]
    fn a_call_queued_before_its_lease_ended_is_stale_when_its_turn_comes() {
        let (mut inbox, now) = (Inbox::default(), Instant::now());
        accept(&mut inbox, call(1, NO_DEADLINE, 1), now);
        accept(&mut inbox, call(2, NO_DEADLINE, 2), now);
        let refused = inbox.next(now).expect("queued").expect_err("stale");
        assert_eq!(
            refused,
            Some(Refusal {
                id: 1,
                reason: Reason::Stale
            })
        );
        assert_eq!(inbox.next(now).expect("queued").expect("runs").id, 2);
    }

    #[test]
    fn cancelling_removes_a_queued_call_and_marks_a_running_one() {
        let (mut inbox, now) = (Inbox::default(), Instant::now());
        accept(&mut inbox, call(1, NO_DEADLINE, 0), now);
        accept(&mut inbox, call(2, NO_DEADLINE, 0), now);
        assert!(inbox.next(now).expect("queued").is_ok());
        assert!(inbox.cancel(1) && inbox.is_cancelled(1));
        assert!(!inbox.cancel(2));
        assert!(inbox.next(now).is_none());
        assert!(!inbox.answer(1), "a cancelled call's answer is dropped");
        assert_eq!((inbox.cancelled, inbox.bytes()), (1, 0), "the queued one");
        assert!(!inbox.cancel(7) && inbox.cancelled == 1, "it never came");
    }

    #[test]
    fn what_nobody_waits_for_is_dropped_and_what_runs_is_cancelled() {
        let (mut inbox, now) = (Inbox::default(), Instant::now());
        for id in 1..4 {
            accept(&mut inbox, call(id, NO_DEADLINE, 0), now);
        }
        assert!(inbox.next(now).expect("queued").is_ok());
        assert!(inbox.awaits(1) && !inbox.awaits(2) && !inbox.is_closing());
        assert_eq!(inbox.abandon(), [1]);
        assert_eq!((inbox.cancelled, inbox.queued(), inbox.bytes()), (2, 0, 0));
        assert!(inbox.is_running(1) && inbox.is_cancelled(1));
        assert!(!inbox.is_running(2) && inbox.next(now).is_none());
        assert!(!inbox.answer(1) && !inbox.is_running(1));
    }
}
