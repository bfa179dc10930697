//! Sending: frames go to the kernel at once, and what it does not take waits in the outbox.

use std::io::IoSlice;

use rustix::io::Errno;

use crate::limit::CORKED_BYTES_MAX;
use crate::link::framed::{Handler, Link};
use crate::link::outbox::{Head, Payload};
use crate::stream::{Stream, StreamFault};
use crate::totals;
use crate::wire::frame::Header;

impl<S: Stream> Link<S> {
    /// Send a frame, or queue what the kernel does not take; returns its end in the stream. What has to precede it is
    /// queued before.
    pub fn send(
        &mut self,
        to: &mut impl Handler<S>,
        header: Header,
        head: Head<'_>,
        segments: Vec<Payload>,
    ) -> u64 {
        let fixed = header.encode();
        if segments.is_empty() && self.outbox.is_empty() && !self.corked {
            self.send_short(to, &fixed, head);
        } else {
            self.queue(&fixed, head, segments);
            if !self.corked || self.outbox.bytes() >= CORKED_BYTES_MAX {
                self.flush(to);
            }
        }
        let end = self.outbox.end();
        self.forget_if_broken();
        end
    }

    fn queue(&mut self, fixed: &[u8], head: Head<'_>, segments: Vec<Payload>) {
        if segments.is_empty() {
            self.outbox.push_copy(fixed);
        } else {
            let lengths = segments.len() * size_of::<u64>();
            let mut prefix = Vec::with_capacity(fixed.len() + lengths);
            prefix.extend_from_slice(fixed);
            for segment in &segments {
                prefix.extend_from_slice(&((**segment).as_ref().len() as u64).to_le_bytes());
            }
            self.outbox.push_copy(&prefix);
        }
        self.outbox.push_head(head);
        for segment in segments {
            self.outbox.push_lent(segment);
        }
    }

    /// The common case, without queued bytes or segments: one system call and no allocation.
    fn send_short(&mut self, to: &mut impl Handler<S>, fixed: &[u8], head: Head<'_>) {
        let bytes = head.as_slice();
        let sent = self.offer(to, &[IoSlice::new(fixed), IoSlice::new(bytes)]);
        let from_fixed = sent.min(fixed.len());
        let from_head = sent - from_fixed;
        if from_head == bytes.len() && from_fixed == fixed.len() {
            self.outbox.note_sent(sent, head.into_lent());
            return;
        }
        self.outbox.note_sent(sent, None);
        self.outbox.push_copy(&fixed[from_fixed..]);
        match head {
            Head::Borrowed(bytes) => self.outbox.push_copy(&bytes[from_head..]),
            Head::Lent(payload) if from_head == 0 => self.outbox.push_lent(payload),
            Head::Lent(payload) => self.outbox.push_rest(payload, from_head),
        }
    }

    /// Offer bytes to the stream while nothing is queued; returns how many it took.
    #[inline]
    pub fn offer(&mut self, to: &mut impl Handler<S>, pieces: &[IoSlice<'_>]) -> usize {
        let outcome = match &mut self.stream {
            Some(stream) => stream.send(pieces),
            None => Err(Errno::PIPE.into()),
        };
        let sent = taken(outcome).unwrap_or_else(|fault| {
            self.fail_sending(to, fault);
            0
        });
        totals::note_sent(sent);
        sent
    }

    /// Drop what was queued for a broken link.
    #[inline]
    pub fn forget_if_broken(&mut self) {
        if self.life.is_broken() {
            self.outbox.clear();
        }
    }

    /// Write queued bytes until the kernel takes no more.
    pub fn flush(&mut self, to: &mut impl Handler<S>) {
        if let Err(fault) = self.write_queued() {
            self.fail_sending(to, fault);
        }
    }

    /// The peer takes nothing more.
    #[cold]
    pub(super) fn fail_sending(&mut self, to: &mut impl Handler<S>, fault: StreamFault) {
        if !self.life.is_broken() {
            to.fail_sending(self, fault);
        }
    }

    /// Write queued bytes until the kernel takes no more, then those that the stream itself holds.
    fn write_queued(&mut self) -> Result<(), StreamFault> {
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        let mut outcome = Ok(());
        while !self.outbox.is_empty() {
            let slices = self.outbox.slices();
            let wanted: usize = slices.iter().map(|slice| slice.len()).sum();
            let sent = taken(stream.send(&slices));
            drop(slices);
            match sent {
                Ok(sent) => {
                    totals::note_sent(sent);
                    self.outbox.advance(sent);
                    if sent < wanted {
                        break;
                    }
                }
                Err(fault) => {
                    outcome = Err(fault);
                    break;
                }
            }
        }
        // Also after a fault: the stream may hold the record (a TLS alert) that tells the peer why.
        let flushed = taken(stream.flush().map(|()| 0)).map(drop);
        outcome.and(flushed)
    }

    /// From now on let frames wait for a flush, up to [`CORKED_BYTES_MAX`] bytes.
    pub fn cork(&mut self) {
        self.corked = true;
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

    /// How far the kernel has the stream.
    pub fn kernel_offset(&self) -> u64 {
        let unsent = self.stream.as_ref().map_or(0, Stream::unsent);
        self.outbox.sent() - unsent as u64
    }
}

/// How many bytes were taken: 0 if the stream would block.
#[inline]
fn taken(outcome: Result<usize, StreamFault>) -> Result<usize, StreamFault> {
    match outcome {
        Err(fault) if fault.is_transient() => Ok(0),
        outcome => outcome,
    }
}
