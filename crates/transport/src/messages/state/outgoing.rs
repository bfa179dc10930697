//! Sending: a message goes to the kernel at once, and what it does not take waits in the outbox.

use std::cell::RefCell;
use std::io::IoSlice;

use super::State;
use crate::error::{Error, Result};
use crate::limit::{COPY_BYTES_MAX, PIECES_MAX};
use crate::link::outbox::Payload;
use crate::messages::Frames;
use crate::messages::named::Named;
use crate::stream::Stream;
use crate::wire::frame::{HEADER_BYTES, Header, Kind};

thread_local! {
    /// Headers and lengths of the message that is being sent.
    static PREFIX: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl<S: Stream> State<S> {
    /// Send a message, or queue what the kernel does not take.
    ///
    /// Returns whether frames of it are still lent, and its end in the stream.
    pub fn send(&mut self, frames: &mut dyn Frames) -> (bool, u64) {
        match self.stage(frames) {
            Some(mut named) => self.send_as(Kind::Shared, &mut named),
            None => self.send_as(Kind::Message, frames),
        }
    }

    fn send_as(&mut self, kind: Kind, frames: &mut dyn Frames) -> (bool, u64) {
        self.sent += 1;
        let lent = PREFIX.with_borrow_mut(|prefix| {
            write_prefix(prefix, kind, frames);
            if self.outbox().is_empty() && frames.count() < PIECES_MAX {
                self.send_at_once(prefix, frames)
            } else {
                self.link.outbox_mut().push_copy(prefix);
                let lent = self.queue(frames, 0, 0);
                self.flush();
                lent
            }
        });
        let end = self.outbox().end();
        self.link.forget_if_broken();
        self.arrivals.account(&self.link);
        (lent && self.outbox().sent() < end, end)
    }

    /// Queue a message without writing yet; returns whether frames of it are lent.
    pub fn push(&mut self, frames: &mut dyn Frames) -> bool {
        match self.stage(frames) {
            Some(mut named) => self.push_as(Kind::Shared, &mut named),
            None => self.push_as(Kind::Message, frames),
        }
    }

    fn push_as(&mut self, kind: Kind, frames: &mut dyn Frames) -> bool {
        self.sent += 1;
        PREFIX.with_borrow_mut(|prefix| {
            write_prefix(prefix, kind, frames);
            self.link.outbox_mut().push_copy(prefix);
        });
        self.queue(frames, 0, 0)
    }

    /// Put long frames into shared memory; `None` if there are none, or no room.
    fn stage<'a>(&mut self, frames: &'a mut dyn Frames) -> Option<Named<'a>> {
        if self.link.life().is_broken() {
            return None;
        }
        let stream = self.link.stream_mut()?;
        Named::new(frames, |bytes, block| stream.share(bytes, block))
    }

    /// Nothing is queued: one system call straight from the caller's buffers.
    fn send_at_once(&mut self, prefix: &[u8], frames: &mut dyn Frames) -> bool {
        let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
        pieces[0] = IoSlice::new(prefix);
        let count = frames.count();
        let mut wanted = prefix.len();
        for (index, piece) in pieces[1..=count].iter_mut().enumerate() {
            let bytes = frames.get(index);
            wanted += bytes.len();
            *piece = IoSlice::new(bytes);
        }
        let sent = self.link.offer(&mut self.arrivals, &pieces[..=count]);
        self.link.outbox_mut().note_sent(sent, None);
        if sent == wanted || self.link.life().is_broken() {
            return false;
        }
        let Some(mut from) = sent.checked_sub(prefix.len()) else {
            self.link.outbox_mut().push_copy(&prefix[sent..]);
            let lent = self.queue(frames, 0, 0);
            return lent;
        };
        let mut index = 0;
        while from >= frames.get(index).len() {
            from -= frames.get(index).len();
            index += 1;
        }
        self.queue(frames, index, from)
    }

    /// Queue the frames from `first` on, of which the first `gone` bytes were written; true if some are lent.
    fn queue(&mut self, frames: &mut dyn Frames, first: usize, gone: usize) -> bool {
        let mut lent = false;
        for index in first..frames.count() {
            let from = if index == first { gone } else { 0 };
            let bytes = &frames.get(index)[from..];
            if bytes.len() <= COPY_BYTES_MAX {
                self.link.outbox_mut().push_copy(bytes);
                continue;
            }
            lent = true;
            if from == 0 {
                self.link.outbox_mut().push_lent(frames.lend(index));
            } else {
                self.link.outbox_mut().push_rest(frames.lend(index), from);
            }
        }
        lent
    }

    /// Write queued bytes until the kernel takes no more.
    pub fn flush(&mut self) {
        self.link.flush(&mut self.arrivals);
        self.arrivals.account(&self.link);
    }

    /// Stop using the caller's buffers: copy what the kernel has not taken of them.
    pub fn own(&mut self) {
        self.link.outbox_mut().own();
    }

    /// Sent buffers of callers. Drop them outside of any lock.
    pub fn take_sent(&mut self) -> Vec<Payload> {
        self.link.take_sent()
    }

    /// Whether the process holds more than it may, and this end adds to it.
    pub fn is_over_budget(&self) -> bool {
        self.outbox().bytes() > 0 && self.arrivals.is_over_limit()
    }

    /// Whether so little is queued that a sender need not wait.
    pub fn has_room(&self) -> bool {
        self.outbox().bytes() <= self.link.limits().outbox_bytes_high
    }

    /// Check that one more message may be queued: the limit for senders that do not await earlier ones.
    pub fn check_outbox(&self) -> Result<()> {
        let (limit, value) = (self.link.limits().outbox_bytes_max, self.outbox().bytes());
        if value < limit {
            return Ok(());
        }
        Err(Error::Limit {
            name: "max_outbox_bytes",
            limit: limit as u64,
            value: value as u64,
        })
    }

    /// Check that a message is within the limits of both sides.
    pub fn check(&self, frames: &dyn Frames) -> Result<()> {
        let (bytes_max, frames_max) = (self.link.frame_bytes_max(), self.link.segments_max());
        let count = frames.count();
        if count == 0 {
            return Err(Error::Config("a message needs at least one frame".into()));
        }
        if count > usize::from(frames_max) {
            return Err(Error::Limit {
                name: "max_frames",
                limit: frames_max.into(),
                value: count as u64,
            });
        }
        let value = (0..count).map(|index| frames.get(index).len() as u64).sum();
        if value > bytes_max {
            return Err(Error::Limit {
                name: "max_message_bytes",
                limit: bytes_max,
                value,
            });
        }
        Ok(())
    }
}

/// Header and lengths of a message.
fn write_prefix(prefix: &mut Vec<u8>, kind: Kind, frames: &dyn Frames) {
    let count = frames.count();
    let header = Header {
        segments: u16::try_from(count).unwrap_or(u16::MAX),
        ..Header::control(kind, 0)
    };
    prefix.clear();
    prefix.reserve(HEADER_BYTES + count * size_of::<u64>());
    prefix.extend_from_slice(&header.encode());
    for index in 0..count {
        prefix.extend_from_slice(&(frames.get(index).len() as u64).to_le_bytes());
    }
}
