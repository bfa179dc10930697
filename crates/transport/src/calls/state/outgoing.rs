//! Sending: frames go to the kernel at once, and what it does not take waits in the outbox.

use std::io::IoSlice;

use rustix::io::Errno;

use super::ConnectionState;
use crate::calls::inbox::Refusal;
use crate::error::Fault;
use crate::limit::{CORKED_BYTES_MAX, REFUSALS_BYTES_MAX};
use crate::link::flow;
use crate::link::outbox::{Head, Payload};
use crate::stream::{Stream, StreamFault};
use crate::wire::frame::{HEADER_BYTES, Header, Kind, Reason};
use crate::wire::role::Role;

/// Refusals that were queued since the peer last took all.
#[derive(Debug, Default)]
pub(super) struct Refused {
    bytes: usize,
    /// Where the last refusal ends in the outgoing stream.
    end: u64,
}

impl<S: Stream> ConnectionState<S> {
    /// Send a frame, or queue what the kernel does not take; returns its end in the stream.
    pub fn send(&mut self, header: Header, head: Head<'_>, segments: Vec<Payload>) -> u64 {
        self.send_preface();
        self.prepare_to_lend(&segments);
        let fixed = header.encode();
        let mut prefix = Vec::new();
        if !segments.is_empty() {
            prefix.reserve(fixed.len() + segments.len() * size_of::<u64>());
            prefix.extend_from_slice(&fixed);
            for segment in &segments {
                prefix.extend_from_slice(&((**segment).as_ref().len() as u64).to_le_bytes());
            }
        }
        let prefix = if segments.is_empty() {
            &fixed[..]
        } else {
            &prefix[..]
        };
        if self.outbox.is_empty() && segments.is_empty() && !self.corked {
            self.send_short(prefix, head);
        } else {
            self.outbox.push_copy(prefix);
            self.outbox.push_head(head);
            for segment in segments {
                self.outbox.push_lent(segment);
            }
            if !self.corked || self.outbox.bytes() >= CORKED_BYTES_MAX {
                self.flush();
            }
        }
        let end = self.outbox.end();
        if self.fault.is_some() {
            self.outbox.clear();
        }
        end
    }

    /// The common case, without queued bytes or segments: one system call and no allocation.
    fn send_short(&mut self, prefix: &[u8], head: Head<'_>) {
        let bytes = head.as_slice();
        let outcome = match &mut self.stream {
            Some(stream) => stream.send(&[IoSlice::new(prefix), IoSlice::new(bytes)]),
            None => Err(Errno::PIPE.into()),
        };
        let sent = self.count_sent(outcome);
        let from_prefix = sent.min(prefix.len());
        let from_head = sent - from_prefix;
        if from_head == bytes.len() && from_prefix == prefix.len() {
            self.outbox.note_sent(sent, head.into_lent());
            return;
        }
        self.outbox.note_sent(sent, None);
        self.outbox.push_copy(&prefix[from_prefix..]);
        match head {
            Head::Borrowed(bytes) => self.outbox.push_copy(&bytes[from_head..]),
            Head::Lent(payload) if from_head == 0 => self.outbox.push_lent(payload),
            Head::Lent(payload) => self.outbox.push_rest(payload, from_head),
        }
    }

    /// Write queued bytes until the kernel takes no more.
    pub fn flush(&mut self) {
        if let Err(fault) = flow::flush(&mut self.stream, &mut self.outbox) {
            self.fail_sending(fault);
        }
    }

    /// Whether bytes wait for the kernel, here or in the stream.
    pub fn wants_write(&self) -> bool {
        let queued = !self.outbox.is_empty();
        let stream = self.stream.as_ref();
        stream.map_or(queued, |stream| {
            stream.wants_write() || (queued && stream.takes())
        })
    }

    /// Bytes that wait for the kernel; those that the stream itself holds count as at least one.
    pub fn unsent_bytes(&self) -> usize {
        let stream = self.stream.as_ref().filter(|stream| stream.wants_write());
        self.outbox.bytes() + stream.map_or(0, |stream| stream.unsent().max(1))
    }

    /// Whether the stream holds received bytes, for which the socket does not become readable.
    pub fn holds_received(&self) -> bool {
        self.fault.is_none() && self.stream.as_ref().is_some_and(Stream::holds_received)
    }

    fn count_sent(&mut self, outcome: Result<usize, StreamFault>) -> usize {
        flow::taken(outcome).unwrap_or_else(|fault| {
            self.fail_sending(fault);
            0
        })
    }

    /// The peer takes nothing more. Replies that it sent before that are still delivered.
    pub(super) fn fail_sending(&mut self, fault: StreamFault) {
        if self.fault.is_some() {
            return;
        }
        if self.receiving {
            self.failed_sending = Some(fault);
            return;
        }
        self.receive();
        if self.role == Role::Server {
            self.end(true);
            self.outbox.clear();
        } else if self.fault.is_none() {
            self.break_with(Fault::Broken(fault.into()));
        }
    }

    /// Answer a call that will not be started.
    pub fn refuse(&mut self, refusal: Refusal) {
        self.credits.close(refusal.id);
        let header = Header {
            time: refusal.reason as u32,
            ..Header::control(Kind::Failure, refusal.id)
        };
        let end = self.send(header, Head::Borrowed(&[]), Vec::new());
        let waiting = if self.refusals_wait() {
            self.refused.bytes
        } else {
            0
        };
        self.refused = Refused {
            bytes: waiting + HEADER_BYTES,
            end,
        };
    }

    fn refusals_wait(&self) -> bool {
        self.outbox.sent() < self.refused.end
    }

    /// Whether so many refusals wait that nothing is read that could cause more.
    pub(super) fn refusals_are_many(&self) -> bool {
        self.refused.bytes > REFUSALS_BYTES_MAX && self.refusals_wait()
    }

    /// Answer a running call; nothing is sent if it was cancelled.
    pub fn answer(
        &mut self,
        mut header: Header,
        reason: Option<Reason>,
        head: Head<'_>,
        segments: Vec<Payload>,
    ) {
        let was_stream = self.credits.close(header.id);
        let waits = self.inbox.answer(header.id);
        if waits && self.stream.is_some() {
            header.time = reason.map_or(header.time, |reason| reason as u32);
            self.send(header, head, segments);
        } else {
            self.outbox.retire(head.into_lent());
            self.outbox.retire(segments);
            if was_stream {
                self.confirm_cancelled(header.id);
            }
        }
    }
}
