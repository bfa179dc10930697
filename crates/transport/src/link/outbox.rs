//! Outgoing bytes that the kernel has not taken yet, in order.
//!
//! Not the outbox of the tensor crate: lent pieces are owned here and kept until they can be dropped outside of a lock;
//! there they are spans with a mark that is reported once they are sent. The two have one loop in common.

use std::collections::VecDeque;
use std::io::IoSlice;

use crate::limit::{COPY_BYTES_MAX, PIECES_MAX};

/// Bytes lent for sending; they must not change until they are dropped.
pub type Payload = Box<dyn AsRef<[u8]> + Send + Sync>;

/// The head of a frame to send.
pub enum Head<'a> {
    /// Copied if the kernel does not take it at once.
    Borrowed(&'a [u8]),
    /// Kept until the kernel has it; for long ones.
    Lent(Payload),
}

impl Head<'_> {
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Head::Borrowed(bytes) => bytes,
            Head::Lent(payload) => (**payload).as_ref(),
        }
    }

    /// Take it, and leave an empty one.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::replace(self, Head::Borrowed(&[]))
    }

    /// What was lent for it, if anything.
    pub(crate) fn into_lent(self) -> Option<Payload> {
        match self {
            Head::Borrowed(_) => None,
            Head::Lent(payload) => Some(payload),
        }
    }
}

enum Piece {
    Small(Vec<u8>),
    Lent(Payload),
}

impl Piece {
    fn as_slice(&self) -> &[u8] {
        match self {
            Piece::Small(bytes) => bytes,
            Piece::Lent(payload) => (**payload).as_ref(),
        }
    }
}

/// A queue of pieces. Positions are byte offsets of the outgoing stream.
#[derive(Default)]
pub struct Outbox {
    pieces: VecDeque<Piece>,
    /// How much of the first piece is gone.
    first_sent: usize,
    queued: u64,
    sent: u64,
    copied: u64,
    retired: Vec<Payload>,
}

impl Outbox {
    /// Queue bytes by copy; small ones share a piece.
    pub fn push_copy(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.queued += bytes.len() as u64;
        self.copied += bytes.len() as u64;
        if let Some(Piece::Small(last)) = self.pieces.back_mut()
            && last.len() + bytes.len() <= COPY_BYTES_MAX
        {
            last.extend_from_slice(bytes);
            return;
        }
        self.pieces.push_back(Piece::Small(bytes.to_vec()));
    }

    /// Queue lent bytes, without a copy if they are more than `COPY_BYTES_MAX`.
    pub fn push_lent(&mut self, payload: Payload) {
        let bytes = (*payload).as_ref();
        if bytes.len() <= COPY_BYTES_MAX {
            self.push_copy(bytes);
            self.retired.push(payload);
            return;
        }
        self.queued += bytes.len() as u64;
        self.pieces.push_back(Piece::Lent(payload));
    }

    /// Queue lent bytes of which the first `sent` were written; only into an empty outbox.
    pub fn push_rest(&mut self, payload: Payload, sent: usize) {
        debug_assert!(self.is_empty(), "only into an empty outbox");
        self.queued += ((*payload).as_ref().len() - sent) as u64;
        self.first_sent = sent;
        self.pieces.push_back(Piece::Lent(payload));
    }

    /// Give lent bytes back unsent.
    pub fn retire(&mut self, payloads: impl IntoIterator<Item = Payload>) {
        self.retired.extend(payloads);
    }

    /// Queue the head of a frame.
    pub fn push_head(&mut self, head: Head<'_>) {
        match head {
            Head::Borrowed(bytes) => self.push_copy(bytes),
            Head::Lent(payload) => self.push_lent(payload),
        }
    }

    /// Count bytes that the kernel took without their being queued.
    pub fn note_sent(&mut self, count: usize, payloads: impl IntoIterator<Item = Payload>) {
        debug_assert!(self.is_empty(), "only into an empty outbox");
        self.queued += count as u64;
        self.sent += count as u64;
        self.retired.extend(payloads);
    }

    /// The pieces to send next, at most [`PIECES_MAX`].
    pub fn slices(&self) -> Vec<IoSlice<'_>> {
        let first = self
            .pieces
            .iter()
            .take(1)
            .map(|piece| &piece.as_slice()[self.first_sent..]);
        let others = self
            .pieces
            .iter()
            .skip(1)
            .take(PIECES_MAX - 1)
            .map(Piece::as_slice);
        first.chain(others).map(IoSlice::new).collect()
    }

    /// Move on by what the kernel took.
    pub fn advance(&mut self, count: usize) {
        self.sent += count as u64;
        self.first_sent += count;
        while let Some(first) = self.pieces.front() {
            let length = first.as_slice().len();
            if self.first_sent < length {
                break;
            }
            self.first_sent -= length;
            if let Some(Piece::Lent(payload)) = self.pieces.pop_front() {
                self.retired.push(payload);
            }
        }
    }

    /// Copy the unsent part of lent bytes, and give them back.
    pub fn own(&mut self) {
        for (index, piece) in self.pieces.iter_mut().enumerate() {
            if !matches!(piece, Piece::Lent(_)) {
                continue;
            }
            let gone = if index == 0 {
                std::mem::take(&mut self.first_sent)
            } else {
                0
            };
            let copy = Piece::Small(piece.as_slice()[gone..].to_vec());
            self.copied += copy.as_slice().len() as u64;
            if let Piece::Lent(payload) = std::mem::replace(piece, copy) {
                self.retired.push(payload);
            }
        }
    }

    /// Drop what is queued; nothing more can be sent.
    pub fn clear(&mut self) {
        let lent = self.pieces.drain(..).filter_map(|piece| match piece {
            Piece::Lent(payload) => Some(payload),
            Piece::Small(_) => None,
        });
        self.retired.extend(lent);
        self.first_sent = 0;
        self.queued = self.sent;
    }

    /// Lent bytes that were sent or forgotten. To be dropped outside of any lock, since
    /// giving them back may call into another runtime.
    pub fn take_retired(&mut self) -> Vec<Payload> {
        std::mem::take(&mut self.retired)
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        usize::try_from(self.queued - self.sent).unwrap_or(usize::MAX)
    }

    /// Offset in the stream after everything queued so far.
    pub fn end(&self) -> u64 {
        self.queued
    }

    /// Bytes that had to be copied because the kernel did not take them at once.
    pub fn copied(&self) -> u64 {
        self.copied
    }

    /// Offset up to which the kernel has the stream.
    pub fn sent(&self) -> u64 {
        self.sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_writes_share_a_piece_and_order_is_kept() {
        let mut outbox = Outbox::default();
        outbox.push_copy(b"ab");
        outbox.push_copy(b"cd");
        outbox.push_lent(Box::new(vec![7u8; COPY_BYTES_MAX + 1]));
        outbox.push_copy(b"ef");
        let lengths: Vec<_> = outbox.slices().iter().map(|slice| slice.len()).collect();
        assert_eq!(lengths, [4, COPY_BYTES_MAX + 1, 2]);
        outbox.advance(3);
        assert_eq!(&*outbox.slices()[0], b"d");
        assert!(outbox.take_retired().is_empty());
        outbox.advance(2 + COPY_BYTES_MAX);
        assert_eq!(&*outbox.slices()[0], b"ef");
        assert_eq!(outbox.take_retired().len(), 1);
        outbox.advance(2);
        assert!(outbox.is_empty() && outbox.bytes() == 0 && outbox.sent() == outbox.end());
    }
}
