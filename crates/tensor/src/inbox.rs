//! Received bytes: in a buffer, or directly in their destination.
use crate::sys::span::Span;

/// The receiving end of a stream.
///
/// While a span is filled directly the buffer is empty: what it held was copied to the span first.
#[derive(Debug)]
pub(crate) struct Inbox {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    direct: Span,
    offset: u64,
}

impl Inbox {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            buffer: vec![0; capacity].into_boxed_slice(),
            start: 0,
            end: 0,
            direct: Span::EMPTY,
            offset: 0,
        }
    }

    /// The stream offset of the first buffered byte.
    pub(crate) fn offset(&self) -> u64 {
        self.offset - self.bytes().len() as u64
    }

    /// Where to receive next: the rest of the diverted span, then at most `ahead` bytes of the buffer.
    pub(crate) fn spans(&mut self, ahead: usize) -> [Span; 2] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start > 0 {
            // The rest is the beginning of one header or entry table, so this moves few bytes.
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let ahead = ahead.max(1);
        let until = self.buffer.len().min(self.end.saturating_add(ahead));
        let buffer = Span::of(&mut self.buffer[self.end..until]);
        if self.direct.bytes() > 0 {
            [self.direct, buffer]
        } else {
            [buffer, Span::EMPTY]
        }
    }

    /// `count` bytes were received into the `spans`.
    pub(crate) fn received(&mut self, count: usize) {
        let direct = count.min(self.direct.bytes());
        self.direct = self.direct.after(direct);
        self.end += count - direct;
        assert!(
            self.end <= self.buffer.len(),
            "more was received than there was room for"
        );
        self.offset += count as u64;
    }

    /// The buffered bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    pub(crate) fn consume(&mut self, count: usize) {
        assert!(count <= self.end - self.start, "more than there is");
        self.start += count;
    }

    /// Send the next bytes to `span`: the buffered ones now, the others as they are received.
    pub(crate) fn divert(&mut self, span: Span) {
        debug_assert_eq!(self.direct.bytes(), 0, "one span after the other");
        let count = span.bytes().min(self.end - self.start);
        span.write(&self.buffer[self.start..self.start + count]);
        self.start += count;
        self.direct = span.after(count);
    }

    /// Whether the span of `divert` is not full yet.
    pub(crate) fn is_diverted(&self) -> bool {
        self.direct.bytes() > 0
    }

    /// Drop the diverted span and the buffered bytes.
    pub(crate) fn clear(&mut self) {
        self.direct = Span::EMPTY;
        (self.start, self.end) = (0, 0);
    }
}

/// Copy as many of `bytes` as fit; returns how many.
pub(crate) fn fill(spans: [Span; 2], bytes: &[u8]) -> usize {
    let mut count = 0;
    for span in spans {
        let part = span.bytes().min(bytes.len() - count);
        span.write(&bytes[count..count + part]);
        count += part;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(inbox: &mut Inbox, ahead: usize, mut bytes: &[u8]) {
        let mut taken = 0;
        for span in inbox.spans(ahead) {
            let count = span.bytes().min(bytes.len());
            span.write(&bytes[..count]);
            bytes = &bytes[count..];
            taken += count;
        }
        assert!(bytes.is_empty(), "there was room for all of it");
        inbox.received(taken);
    }

    #[test]
    fn what_is_buffered_goes_to_the_span_before_what_comes() {
        let mut inbox = Inbox::new(16);
        let mut memory = [0; 8];
        receive(&mut inbox, 16, b"abcde");
        inbox.consume(2);
        inbox.divert(Span::of(&mut memory));
        assert!(inbox.is_diverted() && inbox.bytes().is_empty());
        receive(&mut inbox, 16, b"fghijxy");
        assert!(!inbox.is_diverted());
        assert_eq!((&memory, inbox.bytes()), (b"cdefghij", &b"xy"[..]));
        assert_eq!(inbox.offset(), 10);
    }

    #[test]
    fn a_span_that_is_filled_from_the_buffer_leaves_the_rest_there() {
        let mut inbox = Inbox::new(16);
        let mut memory = [0; 3];
        receive(&mut inbox, 16, b"abcdef");
        inbox.divert(Span::of(&mut memory));
        assert!(!inbox.is_diverted());
        assert_eq!((&memory, inbox.bytes()), (b"abc", &b"def"[..]));
    }

    #[test]
    fn no_more_than_was_wished_for_is_offered_ahead() {
        let mut inbox = Inbox::new(16);
        assert_eq!(inbox.spans(5).map(|span| span.bytes()), [5, 0]);
        let mut memory = [0; 3];
        inbox.divert(Span::of(&mut memory));
        assert_eq!(inbox.spans(5).map(|span| span.bytes()), [3, 5]);
        let _ = inbox.spans(usize::MAX);
    }

    #[test]
    fn room_is_made_by_moving_what_is_left_to_the_front() {
        let mut inbox = Inbox::new(8);
        receive(&mut inbox, 8, b"abcdefgh");
        inbox.consume(6);
        receive(&mut inbox, 8, b"ijklmn");
        assert_eq!(inbox.bytes(), b"ghijklmn");
    }
}
