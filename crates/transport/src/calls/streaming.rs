//! Streams of results: steps of the state, and of a connection at either end.
//!
//! A stream is a call that is answered by any number of items, then by an empty reply or a failure. The rules of the two
//! ends are [`crate::calls::items`] and [`crate::calls::credit`].
//!
//! A serving thread takes calls while its streams wait for credit ([`Connection::next_work`]): otherwise a caller that
//! calls between two items would wait for the stream, and the stream for the caller.

use std::time::{Duration, Instant};

use crate::calls::call::Taker;
use crate::calls::connection::{Connection, Outgoing, check_limits, head_bytes, next_runnable};
use crate::calls::inbox::{Call, Refusal};
use crate::calls::items::Next;
use crate::calls::state::{ConnectionState, Reader};
use crate::drive::blocking::{WaitFor, end_wait, is_past};
use crate::error::{Cause, Delivered, Error, Fault, Result, Violation};
use crate::limit::{STREAM_CREDIT_MAX, STREAM_LOOK_ITEMS, STREAM_LOOK_MS};
use crate::link::outbox::{Head, Payload};
use crate::stream::Stream;
use crate::stream::socket::Wire;
use crate::sys::shared::Staged;
use crate::wire::frame::{Codec, Header, Kind, Reason};
use crate::wire::preface::STREAMS;
use crate::wire::role::Role;

/// What a running stream may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum StreamReadiness {
    /// Wait: for credit, or for the outbox.
    Waiting = 0,
    /// Send an item.
    Ready = 1,
    /// End: its caller has cancelled it or disconnected.
    Cancelled = 2,
    /// End: its deadline has passed.
    Expired = 3,
}

/// The next work of a thread that serves streams.
pub enum Work {
    Call(Call),
    /// Continue its streams: at least one can send or must end.
    Streams,
}

/// When a serving thread last read its socket, to read it now and then although it need not wait.
#[derive(Clone, Copy, Debug)]
pub struct LastLook {
    at: Instant,
    items: u32,
}

impl LastLook {
    /// It has read its socket now.
    pub fn now() -> Self {
        Self {
            at: Instant::now(),
            items: 0,
        }
    }

    fn is_due(&mut self) -> bool {
        self.items += 1;
        self.items >= STREAM_LOOK_ITEMS
            || self.at.elapsed() >= Duration::from_millis(STREAM_LOOK_MS)
    }
}

impl<S: Stream> ConnectionState<S> {
    /// Send a stream's first credit and its call in one write.
    pub(crate) fn begin_stream(
        &mut self,
        header: Header,
        head: Head<'_>,
        segments: Vec<Payload>,
        taker: Taker,
        credit: u32,
    ) {
        let id = header.id;
        self.send_preface();
        self.items.begin(id, taker, credit);
        self.outbox.push_copy(&credit_frame(id, credit).encode());
        let end = self.send(header, head, segments);
        if self.fault.is_none() {
            self.items.sent_until(id, end);
        }
    }

    /// Send the credit that is due for what was taken before.
    pub(crate) fn give_credit(&mut self, id: u64) {
        if let Some(credit) = self.items.consume(id)
            && self.fault.is_none()
        {
            self.send(credit_frame(id, credit), Head::Borrowed(&[]), Vec::new());
        }
    }

    /// Cancel a stream, here and at the peer. A thread that waits for it is woken.
    pub(crate) fn cancel_stream(&mut self, id: u64) {
        let follower = self.followers.remove(&id);
        for wake in follower.iter().chain(&self.leader) {
            wake.raise();
        }
        if self.items.cancel(id) && self.fault.is_none() {
            let header = Header::control(Kind::Cancel, id);
            self.send(header, Head::Borrowed(&[]), Vec::new());
        }
    }

    /// The peer's preface says that it does not support streams.
    pub(crate) fn refuse_streams(&mut self) {
        for id in self.items.refuse_all() {
            if let Some(wake) = self.followers.remove(&id) {
                wake.raise();
            }
        }
    }

    pub(crate) fn accept_credit(&mut self, header: Header) -> std::result::Result<(), Violation> {
        if self.role != Role::Server {
            return Err(Violation::NotServing);
        }
        let known = self.credits.grant(header.id, header.time)?;
        if known && self.reader == Reader::Driver {
            self.granted.push(header.id);
        }
        Ok(())
    }

    /// Cancel the running streams of leases that have ended. Queued ones are stale when their turn comes.
    pub(crate) fn end_old_streams(&mut self) {
        for id in self.credits.of_others(self.inbox.generation()) {
            if self.inbox.is_running(id) && self.inbox.cancel(id) {
                self.report_cancelled([id]);
            }
        }
    }

    /// Send the end of a stream that its caller has cancelled.
    pub(crate) fn confirm_cancelled(&mut self, id: u64) {
        if self.fault.is_none() && self.stream.is_some() {
            self.refuse(Refusal {
                id,
                reason: Reason::Cancelled,
            });
        }
    }

    /// What a running stream may do at `now`.
    pub(crate) fn readiness(&self, id: u64, now: Instant) -> StreamReadiness {
        if self.inbox.is_cancelled(id) || self.fault.is_some() {
            StreamReadiness::Cancelled
        } else if self.credits.is_expired(id, now) {
            StreamReadiness::Expired
        } else if self.credits.may_send(id) {
            if self.outbox.bytes() > self.limits.outbox_bytes_high {
                StreamReadiness::Waiting
            } else {
                StreamReadiness::Ready
            }
        } else if self.ended {
            StreamReadiness::Cancelled // no credit will arrive any more
        } else {
            StreamReadiness::Waiting
        }
    }

    /// Send an item of a stream that is ready; with `hold` a short one waits for the next flush.
    pub(crate) fn send_item(
        &mut self,
        mut header: Header,
        head: Head<'_>,
        segments: Vec<Payload>,
        staged: Vec<Option<Staged>>,
        hold: bool,
    ) {
        let payload = segments.iter().map(|segment| (**segment).as_ref().len());
        let bytes = head.as_slice().len() + payload.sum::<usize>();
        self.credits.sent(header.id, bytes);
        if hold && segments.is_empty() {
            self.send_preface();
            self.outbox.push_copy(&header.encode());
            self.outbox.push_head(head);
        } else {
            let segments = self.name_staged(&mut header, segments, staged);
            self.send(header, head, segments);
        }
    }
}

fn credit_frame(id: u64, credit: u32) -> Header {
    Header {
        time: credit,
        ..Header::control(Kind::Credit, id)
    }
}

/// The calling end.
impl Connection {
    /// Start a stream without waiting, with a credit of `credit` items; returns its id.
    ///
    /// # Errors
    /// As [`Self::start`]; `Credit` for 0 or above `STREAM_CREDIT_MAX`; `Broken` with "no" if the peer has announced
    /// that it does not support streams.
    pub fn start_stream(&self, call: Outgoing<'_>, taker: Taker, credit: u32) -> Result<u64> {
        if credit == 0 || credit > STREAM_CREDIT_MAX {
            return Err(Error::Credit {
                peer: self.peer.clone(),
                limit: STREAM_CREDIT_MAX,
                value: credit,
            });
        }
        let staged = self.stage(&call.segments)?;
        self.step_with(call, |state, call| {
            let speaks = state.peer.is_none_or(|peer| peer.features & STREAMS != 0);
            if !speaks && state.fault.is_none() {
                return Err(Fault::Broken(Cause::NoStreams).to_error(&self.peer, Delivered::No));
            }
            let (id, header) = self.next_header(state, call)?;
            let mut header = Header {
                stream: true,
                ..header
            };
            let segments = std::mem::take(&mut call.segments);
            let segments = state.name_staged(&mut header, segments, staged);
            state.begin_stream(header, call.head.take(), segments, taker, credit);
            Ok(id)
        })?
    }

    /// Wait for the next part of a stream that was started with `Taker::Thread`. What was taken before counts as consumed.
    ///
    /// # Errors
    /// `Deadline`, after which the stream is cancelled. `Interrupted`, after which it continues.
    pub fn wait_items(&self, id: u64, deadline: Option<Instant>) -> Result<Next> {
        let mut state = self.lock()?;
        state.give_credit(id);
        loop {
            let late = is_past(deadline);
            if late || state.items.has_next(id) {
                state.followers.remove(&id); // or the cancel below would wake this thread
                let next = if late {
                    state.cancel_stream(id);
                    Err(Error::Deadline {
                        peer: self.peer.clone(),
                    })
                } else {
                    Ok(state.items.take(id))
                };
                end_wait(state, Some(id));
                return next;
            }
            let write = state.wants_write();
            let wait_for = WaitFor {
                id: Some(id),
                write,
            };
            state = self.turn(state, wait_for, deadline)?;
        }
    }

    /// Take what has arrived of a stream that was started with `Taker::Queue`, without reading the socket.
    pub fn poll_items(&self, id: u64) -> Result<Next> {
        self.step(|state| {
            state.give_credit(id);
            state.items.take(id)
        })
    }

    /// The streams with `Taker::Queue` that something has arrived for since.
    pub fn take_ready(&self) -> Result<Vec<u64>> {
        self.step(|state| state.items.take_ready())
    }

    /// Cancel a stream, here and at the server. Unknown ids are ignored.
    pub fn cancel_stream(&self, id: u64) -> Result<()> {
        self.step(|state| state.cancel_stream(id))
    }

    /// Read the socket if it has no reader; returns how many cancelled streams have not ended yet.
    pub fn cancelled_streams(&self) -> Result<usize> {
        self.step(|state| {
            if state.items.cancelled() > 0 && state.reader == Reader::None {
                state.receive();
            }
            state.items.cancelled()
        })
    }
}

/// The serving end.
impl Connection {
    /// Send an item of a running stream without waiting; returns what the stream may do next. With `hold` a short item waits
    /// for the next flush; `look` says when the socket was read last.
    ///
    /// Nothing is sent if the stream is to end.
    ///
    /// # Errors
    /// `Limit` above the limits of either side; `NoCredit` without credit, see [`Self::readiness`].
    pub fn send_item(
        &self,
        id: u64,
        codec: Codec,
        head: Head<'_>,
        segments: Vec<Payload>,
        hold: bool,
        look: &mut LastLook,
    ) -> Result<StreamReadiness> {
        let staged = self.stage(&segments)?;
        self.step_with((head, segments), |state, (head, segments)| {
            let readiness = state.readiness(id, look.at);
            if readiness == StreamReadiness::Cancelled {
                return Ok(readiness);
            }
            let segments_count = check_limits(state, head, segments)?;
            if !state.credits.may_send(id) {
                return Err(Error::NoCredit {
                    peer: self.peer.clone(),
                    id,
                });
            }
            let header = Header {
                head_bytes: head_bytes(head)?,
                codec,
                segments: segments_count,
                ..Header::control(Kind::Item, id)
            };
            let segments = std::mem::take(segments);
            state.send_item(header, head.take(), segments, staged, hold);
            if state.reader == Reader::None && look.is_due() {
                state.receive();
                *look = LastLook::now();
            }
            Ok(state.readiness(id, look.at))
        })?
    }

    /// What a running stream may do.
    pub fn readiness(&self, id: u64) -> Result<StreamReadiness> {
        self.step(|state| state.readiness(id, Instant::now()))
    }

    /// Wait for a call, or until a running stream can send or must end.
    ///
    /// # Errors
    /// `Interrupted`, `Busy` if another thread or loop reads, `Closed`.
    pub fn next_work(&self) -> Result<Work> {
        let mut state = self.lock()?;
        if state.reader != Reader::None {
            return Err(self.busy("another thread or loop takes its calls"));
        }
        state.receive();
        loop {
            let now = Instant::now();
            let urgent = urgency(&state, now);
            if urgent != Some(Urgency::End)
                && let Some(call) = next_runnable(&mut state)
            {
                end_wait(state, None);
                return Ok(Work::Call(call));
            }
            if urgent.is_some() || state.credits.is_empty() {
                end_wait(state, None);
                return Ok(Work::Streams);
            }
            let deadline = state.credits.deadline();
            let write = state.wants_write();
            state = self.turn(state, WaitFor { id: None, write }, deadline)?;
        }
    }

    /// The running streams that were granted credit since; only recorded while a driver reads.
    pub fn take_granted(&self) -> Result<Vec<u64>> {
        self.step(|state| std::mem::take(&mut state.granted))
    }
}

/// Why the serving thread must continue its streams.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Urgency {
    /// One can send.
    Send,
    /// One must end, before a call that arrived after its cancel is run.
    End,
}

fn urgency(state: &ConnectionState<Wire>, now: Instant) -> Option<Urgency> {
    let running = state.credits.ids().filter(|&id| state.inbox.is_running(id));
    let urgencies = running.filter_map(|id| match state.readiness(id, now) {
        StreamReadiness::Waiting => None,
        StreamReadiness::Ready => Some(Urgency::Send),
        StreamReadiness::Cancelled | StreamReadiness::Expired => Some(Urgency::End),
    });
    urgencies.max()
}
