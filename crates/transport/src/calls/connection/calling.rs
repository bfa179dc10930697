//! The calling end of a connection: calls and streams.

use std::time::Instant;

use crate::calls::call::{Outcome, Taker};
use crate::calls::connection::waiting::{WaitFor, end_wait};
use crate::calls::connection::{Connection, head_bytes};
use crate::calls::items::Next;
use crate::calls::options::Outgoing;
use crate::calls::state::ConnectionState;
use crate::drive::blocking::is_past;
use crate::error::{Cause, Delivered, Error, Fault, Result};
use crate::limit::{LEND_BYTES_MIN, STREAM_CREDIT_MAX};
use crate::link::outbox::Payload;
use crate::stream::socket::Wire;
use crate::sys::shared::Staged;
use crate::wire::frame::{Header, Kind, time_to_wire};
use crate::wire::preface::STREAMS;
use forebay_base::waiters::Reader;

impl Connection {
    /// Send a call without waiting; returns its id.
    ///
    /// # Errors
    /// `Limit` above the limits of either side, `Broken` with "no" once the peer is gone or said
    /// goodbye, `Closed`, `Forked`.
    ///
    /// Cost: long segments are copied once to be lent, without the lock.
    pub fn start(&self, call: Outgoing<'_>, taker: Taker) -> Result<u64> {
        let staged = self.stage(&call.segments)?;
        self.step_with(call, |state, call| {
            let (id, mut header) = self.next_header(state, call)?;
            if !call.one_way {
                // Registered before sending, so that a failure to send ends it like any other call.
                state.calls().begin(id, taker, u64::MAX);
            }
            let segments = std::mem::take(&mut call.segments);
            let segments = state.name_staged(&mut header, segments, staged);
            let end = state.send(header, call.head.take(), segments);
            // Unless the failure to send has ended it.
            if state.calls().is_waiting(id) {
                state.calls().begin(id, taker, end);
            }
            Ok(id)
        })?
    }

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
            let peer = state.link.peer();
            let speaks = peer.is_none_or(|peer| peer.features & STREAMS != 0);
            if !speaks && !state.link.life().is_broken() {
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

    /// The next id and the header of a call that may be sent.
    fn next_header(
        &self,
        state: &mut ConnectionState<Wire>,
        call: &Outgoing<'_>,
    ) -> Result<(u64, Header)> {
        let segments = self.check_call(state, call)?;
        let head_bytes = head_bytes(&call.head)?;
        let id = state.calls().next_id();
        let header = Header {
            head_bytes,
            codec: call.codec,
            one_way: call.one_way,
            segments,
            time: time_to_wire(call.remaining),
            generation: call.generation,
            ..Header::control(Kind::Call, id)
        };
        Ok((id, header))
    }

    fn check_call(&self, state: &ConnectionState<Wire>, call: &Outgoing<'_>) -> Result<u16> {
        if let Some(fault) = state.link.fault() {
            return Err(fault.to_error(&self.peer, Delivered::No));
        }
        if state.is_refused() {
            return Err(Fault::Broken(Cause::Goodbye).to_error(&self.peer, Delivered::No));
        }
        state.check_limits(&call.head, &call.segments)
    }

    /// Copy long segments into the share pool if the peer borrows. `None` at an index: that segment is sent as bytes; an
    /// empty list: all are.
    pub(crate) fn stage(&self, segments: &[Payload]) -> Result<Vec<Option<Staged>>> {
        let is_long = |segment: &Payload| (**segment).as_ref().len() >= LEND_BYTES_MIN;
        if !segments.iter().any(is_long) {
            return Ok(Vec::new());
        }
        let state = self.lock()?;
        let writer = state.lending().writer();
        drop(state);
        let Some(writer) = writer else {
            return Ok(Vec::new());
        };
        let mut before = 0;
        let put = segments.iter().map(|segment| {
            let bytes = (**segment).as_ref();
            let staged = is_long(segment)
                .then(|| writer.stage(bytes, before))
                .flatten();
            before += staged.as_ref().map_or(0, |_| bytes.len() as u64);
            staged
        });
        Ok(put.collect())
    }

    /// Cancel a call; its late reply is dropped. Unknown ids are ignored.
    pub fn cancel(&self, id: u64) -> Result<()> {
        self.step(|state| state.cancel_call(id))
    }

    /// Change who takes the outcome of a call in flight, even if it has arrived.
    pub fn hand_over(&self, id: u64, to: Taker) -> Result<()> {
        self.step(|state| state.calls().hand_over(id, to))
    }

    /// Read the socket if it has no reader; returns whether a new call may succeed.
    pub fn probe(&self) -> Result<bool> {
        self.step(|state| {
            if state.reader() == Reader::None {
                state.receive();
            }
            state.link.stream().is_some() && state.link.life().receives() && !state.is_refused()
        })
    }

    /// Whether the server said goodbye.
    pub fn is_leaving(&self) -> bool {
        self.lock_any().is_refused()
    }

    /// Take what has arrived of a stream that was started with `Taker::Queue`, without reading the socket.
    pub fn poll_items(&self, id: u64) -> Result<Next> {
        self.step(|state| {
            state.give_credit(id);
            state.items().take(id)
        })
    }

    /// The streams with `Taker::Queue` that something has arrived for since.
    pub fn take_ready(&self) -> Result<Vec<u64>> {
        self.step(|state| state.items().take_ready())
    }

    /// Cancel a stream, here and at the server. Unknown ids are ignored.
    pub fn cancel_stream(&self, id: u64) -> Result<()> {
        self.step(|state| state.cancel_stream(id))
    }

    /// Read the socket if it has no reader; returns how many cancelled streams have not ended yet.
    pub fn cancelled_streams(&self) -> Result<usize> {
        self.step(|state| {
            if state.items().cancelled() > 0 && state.reader() == Reader::None {
                state.receive();
            }
            state.items().cancelled()
        })
    }

    /// Wait for the outcome of a call that was started with `Taker::Thread`.
    ///
    /// # Errors
    /// `Deadline`, after which the call is cancelled. `Interrupted`, after which it continues: wait
    /// again or cancel it. `Closed` if the id is unknown.
    pub fn wait(&self, id: u64, deadline: Option<Instant>) -> Result<Outcome> {
        let outcome = self.wait_keeping_call(id, deadline);
        if matches!(outcome, Err(Error::Deadline { .. })) {
            self.cancel(id)?;
        }
        outcome
    }

    /// As [`Self::wait`], but the call continues past the deadline: wait again, cancel it, or hand it over.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub fn wait_keeping_call(&self, id: u64, deadline: Option<Instant>) -> Result<Outcome> {
        let mut state = self.lock()?;
        loop {
            if let Some(outcome) = state.calls().take(id) {
                end_wait(state, Some(id));
                return Ok(outcome);
            }
            if !state.calls().is_waiting(id) {
                end_wait(state, Some(id));
                return Err(Error::Closed {
                    peer: self.peer.clone(),
                });
            }
            if is_past(deadline) {
                end_wait(state, Some(id));
                return Err(Error::Deadline {
                    peer: self.peer.clone(),
                });
            }
            let write = state.link.wants_write();
            state = self.turn(
                state,
                WaitFor {
                    id: Some(id),
                    write,
                },
                deadline,
            )?;
        }
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
            if late || state.items().has_next(id) {
                state.waiters().forget(id); // or the cancel below would wake this thread
                let next = if late {
                    state.cancel_stream(id);
                    Err(Error::Deadline {
                        peer: self.peer.clone(),
                    })
                } else {
                    Ok(state.items().take(id))
                };
                end_wait(state, Some(id));
                return next;
            }
            let write = state.link.wants_write();
            let wait_for = WaitFor {
                id: Some(id),
                write,
            };
            state = self.turn(state, wait_for, deadline)?;
        }
    }
}
