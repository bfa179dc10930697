//! What a connection does for its peer: calls and streams that it serves.

use crate::calls::credit::Credits;
use crate::calls::inbox::Inbox;
use crate::limit::REFUSALS_BYTES_MAX;
use crate::wire::frame::HEADER_BYTES;

/// The serving end.
#[derive(Debug, Default)]
pub struct Answering {
    pub(super) inbox: Inbox,
    pub(super) credits: Credits,
    /// Running calls that were cancelled, for a driver to act on.
    cancelled: Vec<u64>,
    /// Running streams that were granted credit, for a driver to act on.
    granted: Vec<u64>,
    refused: Refused,
}

/// Refusals that were queued since the peer last took all.
#[derive(Debug, Default)]
struct Refused {
    bytes: usize,
    /// Where the last refusal ends in the outgoing stream.
    end: u64,
}

impl Answering {
    /// Keep cancelled calls for the driver.
    pub fn report_cancelled(&mut self, ids: impl IntoIterator<Item = u64>) {
        self.cancelled.extend(ids);
    }

    /// Keep a stream that was granted credit for the driver.
    pub fn report_granted(&mut self, id: u64) {
        self.granted.push(id);
    }

    /// Take the cancelled calls.
    pub fn take_cancelled(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.cancelled)
    }

    /// Take the streams that were granted credit.
    pub fn take_granted(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.granted)
    }

    /// Running streams of leases that have ended, which are cancelled now. Queued ones are stale when their turn comes.
    pub fn cancel_old_streams(&mut self) -> Vec<u64> {
        let mut old = self.credits.of_others(self.inbox.generation());
        old.retain(|&id| self.inbox.is_running(id) && self.inbox.cancel(id));
        old
    }

    /// A refusal was queued up to `end`; the kernel has the stream up to `sent`.
    pub fn note_refusal(&mut self, sent: u64, end: u64) {
        let waiting = if sent < self.refused.end {
            self.refused.bytes
        } else {
            0
        };
        self.refused = Refused {
            bytes: waiting + HEADER_BYTES,
            end,
        };
    }

    /// Whether so many refusals wait that nothing is read that could cause more.
    #[inline]
    pub fn refusals_are_many(&self, sent: u64) -> bool {
        self.refused.bytes > REFUSALS_BYTES_MAX && sent < self.refused.end
    }
}
