//! The serving end of a connection: calls and streams to run, and their answers.

use std::time::Instant;

use crate::calls::connection::waiting::{WaitFor, end_wait};
use crate::calls::connection::{Connection, head_bytes};
use crate::calls::incoming::Call;
use crate::calls::state::ConnectionState;
use crate::calls::streaming::{LastLook, StreamReadiness, Urgency, Work};
use crate::drive::blocking::is_past;
use crate::error::{Delivered, Error, Fault, Result};
use crate::link::outbox::{Head, Payload};
use crate::wire::frame::{Codec, Header, Kind, Reason};
use forebay_base::waiters::Reader;

impl Connection {
    /// Take up to `count` calls to run, answering expired ones.
    pub fn poll_calls(&self, count: usize) -> Result<Vec<Call>> {
        self.step(|state| {
            let mut calls = Vec::new();
            while calls.len() < count
                && let Some(call) = state.next_runnable()
            {
                calls.push(call);
            }
            calls
        })
    }

    /// Take the ids of running calls whose callers cancelled or disconnected.
    pub fn take_cancelled(&self) -> Result<Vec<u64>> {
        self.step(ConnectionState::take_cancelled)
    }

    /// Wait for a call to run; `None` once the peer sends no more.
    ///
    /// # Errors
    /// `Deadline`, `Interrupted`, `Busy` if another thread or loop reads, `Protocol`, `Closed`.
    pub fn next_call(&self, deadline: Option<Instant>) -> Result<Option<Call>> {
        let mut state = self.lock()?;
        if state.reader() != Reader::None {
            return Err(self.busy("another thread or loop takes its calls"));
        }
        if state.inbox().queued() > 0 && !state.sleeping().look().is_off() {
            // A cancel of a queued call may have arrived behind it.
            state.receive();
        }
        loop {
            if let Some(call) = state.next_runnable() {
                end_wait(state, None);
                return Ok(Some(call));
            }
            let closing = state.inbox().is_closing();
            match state.link.fault() {
                Some(Fault::Broken(_)) => {
                    end_wait(state, None);
                    return Ok(None);
                }
                Some(fault) => {
                    let error = fault.to_error(&self.peer, Delivered::Maybe);
                    end_wait(state, None);
                    return Err(error);
                }
                None if state.link.life().has_ended() || closing => {
                    end_wait(state, None);
                    return Ok(None);
                }
                None => {}
            }
            if is_past(deadline) {
                end_wait(state, None);
                return Err(Error::Deadline {
                    peer: self.peer.clone(),
                });
            }
            let write = state.link.wants_write();
            state = self.turn(state, WaitFor { id: None, write }, deadline)?;
        }
    }

    /// Reply to a running call without waiting.
    ///
    /// # Errors
    /// `Limit` above the limits of either side; the call is then still to be answered.
    pub fn reply(
        &self,
        id: u64,
        codec: Codec,
        head: Head<'_>,
        segments: Vec<Payload>,
    ) -> Result<()> {
        let staged = self.stage(&segments)?;
        self.step_with((head, segments), |state, (head, segments)| {
            let count = state.check_limits(head, segments)?;
            let head_bytes = head_bytes(head)?;
            let mut header = Header {
                head_bytes,
                codec,
                segments: count,
                ..Header::control(Kind::Reply, id)
            };
            let mut segments = std::mem::take(segments);
            if state.inbox().awaits(id) {
                segments = state.name_staged(&mut header, segments, staged);
            }
            state.answer(header, None, head.take(), segments);
            Ok(())
        })?
    }

    /// The longest answer that both ends take, in bytes.
    pub fn answer_bytes_max(&self) -> Result<u64> {
        self.step(|state| state.link.frame_bytes_max())
    }

    /// Fail a running call without waiting.
    ///
    /// A head above the limits of either side is left out, and the reason becomes `Undescribed`: this answers in any case.
    pub fn fail(&self, id: u64, reason: Reason, codec: Codec, head: Head<'_>) -> Result<()> {
        self.step_with(head, |state, head| {
            let fits = state.check_limits(head, &[]).and_then(|_| head_bytes(head));
            let (reason, head_bytes, head) = match fits {
                Ok(bytes) => (reason, bytes, head.take()),
                Err(_) => (Reason::Undescribed, 0, Head::Borrowed(&[])),
            };
            let header = Header {
                head_bytes,
                codec,
                ..Header::control(Kind::Failure, id)
            };
            state.answer(header, Some(reason), head, Vec::new());
        })
    }

    /// Read the socket; returns whether the caller of a running call cancelled it or disconnected.
    pub fn is_cancelled(&self, id: u64) -> Result<bool> {
        self.step(|state| {
            if state.reader() == Reader::None {
                state.receive();
            }
            state.caller_gone() || state.inbox().is_cancelled(id)
        })
    }

    /// Announce that no new calls are taken: running ones finish, queued ones are refused.
    pub fn goodbye(&self) -> Result<()> {
        self.step(|state| {
            if !state.inbox().is_closing() && !state.link.life().is_broken() {
                let queued = state.inbox().close();
                state.tell(Header::control(Kind::Goodbye, 0));
                for refusal in queued {
                    state.refuse(refusal);
                }
            }
        })
    }

    /// The newest generation seen: that of the call that was taken last.
    pub fn generation(&self) -> u32 {
        self.lock_any().inbox().generation()
    }

    /// Refuse calls of generations older than this one.
    pub fn set_generation(&self, generation: u32) -> Result<()> {
        self.step(|state| state.inbox().set_generation(generation))
    }

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
            let readiness = state.readiness(id, look.at());
            if readiness == StreamReadiness::Cancelled {
                return Ok(readiness);
            }
            let segments_count = state.check_limits(head, segments)?;
            if !state.credits().may_send(id) {
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
            if state.reader() == Reader::None && look.is_due() {
                state.receive();
                *look = LastLook::now();
            }
            Ok(state.readiness(id, look.at()))
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
        if state.reader() != Reader::None {
            return Err(self.busy("another thread or loop takes its calls"));
        }
        state.receive();
        loop {
            let now = Instant::now();
            let urgent = state.urgency(now);
            if urgent != Some(Urgency::End)
                && let Some(call) = state.next_runnable()
            {
                end_wait(state, None);
                return Ok(Work::Call(call));
            }
            if urgent.is_some() || state.credits().is_empty() {
                end_wait(state, None);
                return Ok(Work::Streams);
            }
            let deadline = state.credits().deadline();
            let write = state.link.wants_write();
            state = self.turn(state, WaitFor { id: None, write }, deadline)?;
        }
    }

    /// The running streams that were granted credit since; only recorded while a driver reads.
    pub fn take_granted(&self) -> Result<Vec<u64>> {
        self.step(ConnectionState::take_granted)
    }
}
