//! Streams of results, as a thread or a driver that serves them sees them.
//!
//! A stream is a call that is answered by any number of items, then by an empty reply or a failure. The rules of the two
//! ends are [`crate::calls::items`] and [`crate::calls::credit`].
//!
//! A serving thread takes calls while its streams wait for credit (`next_work`): otherwise a caller that
//! calls between two items would wait for the stream, and the stream for the caller.

use std::time::{Duration, Instant};

use crate::calls::incoming::Call;
use crate::limit::{STREAM_LOOK_ITEMS, STREAM_LOOK_MS};

/// What a running stream may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum StreamReadiness {
    /// Wait: for credit, or for the outbox.
    Waiting = 0,
    /// Send an item.
    Ready = 1,
    /// End: its caller has cancelled it or disconnected.
    Cancelled = 2,
    /// End: its deadline has passed.
    Expired = 3,
}

/// Why a serving thread must continue its streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// One can send.
    Send,
    /// One must end, before a call that arrived after its cancel is run.
    End,
}

/// The next work of a thread that serves streams.
pub enum Work {
    Call(Call),
    /// Continue its streams: at least one can send or must end.
    Streams,
}

/// When a serving thread last read its socket, to read it now and then although it need not wait.
#[derive(Clone, Copy, Debug)]
pub struct LastLook {
    at: Instant,
    items: u32,
}

impl LastLook {
    /// It has read its socket now.
    pub fn now() -> Self {
        Self {
            at: Instant::now(),
            items: 0,
        }
    }

    /// When that was.
    pub(super) fn at(&self) -> Instant {
        self.at
    }

    /// One item more; whether to read the socket now.
    pub(super) fn is_due(&mut self) -> bool {
        self.items += 1;
        self.items >= STREAM_LOOK_ITEMS
            || self.at.elapsed() >= Duration::from_millis(STREAM_LOOK_MS)
    }
}
