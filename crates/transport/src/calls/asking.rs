//! What a connection asks of its peer: calls and streams that it has started.

use crate::calls::call::Calls;
use crate::calls::items::Streams;
use crate::error::Fault;
use crate::wire::frame::Incoming;

/// The calling end.
#[derive(Debug, Default)]
pub struct Asking {
    pub(super) calls: Calls,
    pub(super) items: Streams,
    /// The peer takes no new calls.
    goodbye: bool,
}

impl Asking {
    /// The end of a call or of a stream has come.
    #[inline]
    pub fn finish(&mut self, frame: Incoming) {
        if let Some(frame) = self.items.finish(frame) {
            self.calls.finish(frame);
        }
    }

    /// The connection has broken; the kernel had the stream up to `sent`.
    pub fn break_all(&mut self, fault: &Fault, sent: u64) {
        self.calls.break_all(fault, sent);
        self.items.break_all(fault, sent);
    }

    /// The peer reads nothing more: end what has not left completely, and start nothing new; the ids of what ended. What
    /// the peer has read it may still answer.
    pub fn break_unsent(&mut self, fault: &Fault, sent: u64) -> Vec<u64> {
        self.goodbye = true;
        let mut ended = self.calls.break_unsent(fault, sent);
        ended.extend(self.items.break_unsent(fault, sent));
        ended
    }

    /// Outcomes that have not been taken, and streams that have not been read to their end.
    pub fn in_flight(&self) -> usize {
        self.calls.in_flight() + self.items.in_flight()
    }

    /// Answers and items that wait to be taken.
    pub fn bytes(&self) -> usize {
        self.calls.bytes() + self.items.bytes()
    }

    /// The peer has said goodbye.
    pub fn note_goodbye(&mut self) {
        self.goodbye = true;
    }

    /// Whether the peer has said goodbye.
    pub fn is_refused(&self) -> bool {
        self.goodbye
    }
}
