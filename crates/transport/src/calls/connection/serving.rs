//! The serving end of a connection: calls to run, and their answers.

use std::time::Instant;

use super::{Connection, check_limits, head_bytes};
use crate::calls::inbox::Call;
use crate::calls::state::{ConnectionState, Reader};
use crate::error::Result;
use crate::link::outbox::{Head, Payload};
use crate::stream::socket::Wire;
use crate::wire::frame::{Codec, Header, Kind, Reason};

impl Connection {
    /// Take up to `count` calls to run, answering expired ones.
    pub fn poll_calls(&self, count: usize) -> Result<Vec<Call>> {
        self.step(|state| {
            let mut calls = Vec::new();
            while calls.len() < count
                && let Some(call) = next_runnable(state)
            {
                calls.push(call);
            }
            calls
        })
    }

    /// Take the ids of running calls whose callers cancelled or disconnected.
    pub fn take_cancelled(&self) -> Result<Vec<u64>> {
        self.step(|state| std::mem::take(&mut state.cancels))
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
            let count = check_limits(state, head, segments)?;
            let head_bytes = head_bytes(head)?;
            let mut header = Header {
                head_bytes,
                codec,
                segments: count,
                ..Header::control(Kind::Reply, id)
            };
            let mut segments = std::mem::take(segments);
            if state.inbox.awaits(id) {
                segments = state.name_staged(&mut header, segments, staged);
            }
            state.answer(header, None, head.take(), segments);
            Ok(())
        })?
    }

    /// The longest answer that both ends take, in bytes.
    pub fn answer_bytes_max(&self) -> Result<u64> {
        self.step(|state| {
            let theirs = state.peer.as_ref().map(|peer| peer.frame_bytes_max);
            theirs.map_or(state.limits.frame_bytes_max, |theirs| {
                theirs.min(state.limits.frame_bytes_max)
            })
        })
    }

    /// Fail a running call without waiting.
    ///
    /// A head above the limits of either side is left out, and the reason becomes `Undescribed`: this answers in any case.
    pub fn fail(&self, id: u64, reason: Reason, codec: Codec, head: Head<'_>) -> Result<()> {
        self.step_with(head, |state, head| {
            let fits = check_limits(state, head, &[]).and_then(|_| head_bytes(head));
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
            if state.reader == Reader::None {
                state.receive();
            }
            state.caller_gone() || state.inbox.is_cancelled(id)
        })
    }

    /// Announce that no new calls are taken: running ones finish, queued ones are refused.
    pub fn goodbye(&self) -> Result<()> {
        self.step(|state| {
            if !state.inbox.is_closing() && state.fault.is_none() {
                let queued = state.inbox.close();
                state.send(
                    Header::control(Kind::Goodbye, 0),
                    Head::Borrowed(&[]),
                    Vec::new(),
                );
                for refusal in queued {
                    state.refuse(refusal);
                }
            }
        })
    }

    /// The newest generation seen: that of the call that was taken last.
    pub fn generation(&self) -> u32 {
        self.lock_any().inbox.generation()
    }

    /// Refuse calls of generations older than this one.
    pub fn set_generation(&self, generation: u32) -> Result<()> {
        self.step(|state| state.inbox.set_generation(generation))
    }
}

/// The next call that is to run; refusals are sent on the way.
pub(crate) fn next_runnable(state: &mut ConnectionState<Wire>) -> Option<Call> {
    loop {
        match state.inbox.next(Instant::now())? {
            Ok(call) => {
                if call.stream {
                    state.credits.run(call.id, call.deadline);
                }
                return Some(call);
            }
            Err(Some(refusal)) => state.refuse(refusal),
            Err(None) => {}
        }
    }
}
