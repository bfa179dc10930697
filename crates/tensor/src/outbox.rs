//! Bytes to send, in order: our own text, and memory that is lent to us.
//!
//! Not the outbox of the transport: lent spans have a mark here, which is reported once they are sent; there the pieces
//! are owned and kept until they can be dropped outside of a lock. The two have one loop in common.
use std::collections::VecDeque;

use crate::sys::span::Span;

/// Sent text is removed from the front of the buffer above this size, which bounds the cost of moving the rest.
const COMPACT_BYTES: usize = 64 << 10;

#[derive(Debug)]
enum Source {
    /// The next bytes of the buffer.
    Text,
    /// Lent memory, with the lender's mark for it.
    Lent(Span, u32),
    /// A copy of lent memory, from its first unsent byte on.
    Copied(Vec<u8>),
}

#[derive(Debug)]
struct Piece {
    source: Source,
    /// Bytes that are not sent yet.
    left: usize,
}

/// The sending end of a stream.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    text: Vec<u8>,
    text_sent: usize,
    pieces: VecDeque<Piece>,
    bytes: usize,
}

impl Outbox {
    /// Bytes that are not sent yet.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Send a copy of `bytes`.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.make_room();
        self.text.extend_from_slice(bytes);
        self.pushed_text(bytes.len());
    }

    /// Send a copy of `span`.
    pub(crate) fn push_copy(&mut self, span: Span) {
        self.make_room();
        span.append_to(&mut self.text);
        self.pushed_text(span.bytes());
    }

    /// Send the bytes of `span` without a copy; `sent` reports `mark` once all of them are sent.
    ///
    /// Returns whether the span was taken: an empty one is not.
    pub(crate) fn push_lent(&mut self, span: Span, mark: u32) -> bool {
        self.push_source(Source::Lent(span, mark), span.bytes())
    }

    /// Send an owned buffer.
    pub(crate) fn push_owned(&mut self, bytes: Vec<u8>) {
        let count = bytes.len();
        self.push_source(Source::Copied(bytes), count);
    }

    fn push_source(&mut self, source: Source, left: usize) -> bool {
        if left > 0 {
            self.pieces.push_back(Piece { source, left });
            self.bytes += left;
        }
        left > 0
    }

    fn make_room(&mut self) {
        if self.text_sent == self.text.len() {
            self.text.clear();
            self.text_sent = 0;
        } else if self.text_sent >= COMPACT_BYTES && self.text_sent * 2 >= self.text.len() {
            self.text.drain(..self.text_sent);
            self.text_sent = 0;
        }
    }

    fn pushed_text(&mut self, count: usize) {
        if let Some(last) = self.pieces.back_mut()
            && matches!(last.source, Source::Text)
        {
            last.left += count;
            self.bytes += count;
        } else {
            self.push_source(Source::Text, count);
        }
    }

    /// The next bytes to send, in order; returns how many of `into` were set.
    pub(crate) fn gather(&self, into: &mut [Span]) -> usize {
        let mut text = &self.text[self.text_sent..];
        for (at, piece) in into.iter_mut().zip(&self.pieces) {
            *at = match &piece.source {
                Source::Text => {
                    let (next, rest) = text.split_at(piece.left);
                    text = rest;
                    Span::sending(next)
                }
                Source::Lent(span, _) => *span,
                Source::Copied(bytes) => Span::sending(&bytes[bytes.len() - piece.left..]),
            };
        }
        into.len().min(self.pieces.len())
    }

    /// `count` of the bytes of `gather` were sent; `lent` is called for each span that is sent whole.
    pub(crate) fn sent(&mut self, mut count: usize, mut lent: impl FnMut(u32)) {
        assert!(count <= self.bytes, "more was sent than there was");
        self.bytes -= count;
        while count > 0 {
            let piece = self.pieces.front_mut().expect("the bytes are counted");
            let taken = count.min(piece.left);
            count -= taken;
            piece.left -= taken;
            match &mut piece.source {
                Source::Text => self.text_sent += taken,
                Source::Lent(span, _) => *span = span.after(taken),
                Source::Copied(_) => {}
            }
            if piece.left == 0
                && let Some(Piece {
                    source: Source::Lent(_, mark),
                    ..
                }) = self.pieces.pop_front()
            {
                lent(mark);
            }
        }
    }

    /// Copy the spans with this `mark` that `touches` selects; returns how many have the mark, and how many were
    /// copied.
    pub(crate) fn preserve(&mut self, mark: u32, touches: impl Fn(Span) -> bool) -> (u32, u32) {
        let (mut marked, mut copied) = (0, 0);
        for piece in &mut self.pieces {
            if let Source::Lent(lent, of) = piece.source
                && of == mark
            {
                marked += 1;
                if touches(lent) {
                    let mut bytes = Vec::new();
                    lent.append_to(&mut bytes);
                    piece.source = Source::Copied(bytes);
                    copied += 1;
                }
            }
        }
        (marked, copied)
    }

    /// Drop all unsent bytes; `lent` is called for each lent span.
    pub(crate) fn clear(&mut self, mut lent: impl FnMut(u32)) {
        for piece in self.pieces.drain(..) {
            if let Source::Lent(_, mark) = piece.source {
                lent(mark);
            }
        }
        self.text.clear();
        self.text_sent = 0;
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(outbox: &Outbox) -> Vec<u8> {
        let mut spans = [Span::EMPTY; 8];
        let count = outbox.gather(&mut spans);
        let mut bytes = Vec::new();
        for span in &spans[..count] {
            span.append_to(&mut bytes);
        }
        bytes
    }

    /// The text, a lent span, more text and a buffer; then byte by byte.
    #[test]
    fn bytes_go_in_order_however_few_are_taken() {
        let mut memory = *b"lent";
        let mut outbox = Outbox::default();
        outbox.push(b"te");
        outbox.push(b"xt");
        assert!(outbox.push_lent(Span::of(&mut memory), 7));
        outbox.push_copy(Span::sending(b"copy"));
        outbox.push_owned(b"owned".to_vec());
        let all = b"textlentcopyowned";
        let mut marks = Vec::new();
        for sent in 0..all.len() {
            assert_eq!(content(&outbox), &all[sent..]);
            assert_eq!(outbox.bytes(), all.len() - sent);
            assert_eq!(marks.len(), usize::from(sent >= 8));
            outbox.sent(1, |mark| marks.push(mark));
        }
        assert!(outbox.is_empty());
        assert_eq!(marks, [7]);
    }

    #[test]
    fn what_was_preserved_goes_out_as_it_was() {
        let mut memory = *b"abcdefgh";
        let span = Span::of(&mut memory);
        let mut outbox = Outbox::default();
        outbox.push_lent(span.part(0, 4), 1);
        outbox.push_lent(span.part(4, 4), 1);
        outbox.sent(2, |_| {});
        assert_eq!(outbox.preserve(2, |lent| lent.overlaps(span)), (0, 0));
        let changed = span.part(3, 1);
        assert_eq!(outbox.preserve(1, |lent| lent.overlaps(changed)), (2, 1));
        span.write(b"--------");
        assert_eq!(content(&outbox), b"cd----");
        outbox.sent(1, |_| {});
        assert_eq!(content(&outbox), b"d----");
    }

    #[test]
    fn nothing_is_lent_where_there_is_no_byte() {
        let mut outbox = Outbox::default();
        assert!(!outbox.push_lent(Span::EMPTY, 1));
        assert!(outbox.is_empty());
    }

    #[test]
    fn dropping_all_gives_every_mark_back() {
        let mut memory = [0; 4];
        let span = Span::of(&mut memory);
        let mut outbox = Outbox::default();
        outbox.push(b"text");
        outbox.push_lent(span, 1);
        outbox.push_lent(span, 2);
        let mut marks = Vec::new();
        outbox.clear(|mark| marks.push(mark));
        assert_eq!((marks, outbox.bytes()), (vec![1, 2], 0));
    }

    #[test]
    fn the_text_of_a_stream_that_never_rests_stays_small() {
        let mut outbox = Outbox::default();
        outbox.push(&[1; 100]);
        for _ in 0..10_000 {
            outbox.push(&[2; 100]);
            outbox.sent(100, |_| {});
        }
        assert!(outbox.text.capacity() < 4 * COMPACT_BYTES);
    }
}
