//! The chain of a name's events, or of a request's: where it begins and ends in the ring, and what it has lost.

use crate::id::RequestId;

/// Whose chain it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    Request(RequestId),
    /// By its index.
    Name(u32),
}

/// One chain. A number of 0 is none: the first number of a server is far above it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chain {
    /// The oldest place that is kept.
    first: u64,
    /// The newest place, kept or not.
    last: u64,
    /// The newest event of it that was dropped. A superseded one does not count: nobody misses it.
    dropped: u64,
    kept: u32,
    /// Readers that have a position in it.
    pins: u32,
}

impl Chain {
    /// A chain that may have lost what is not younger than this number.
    pub(super) fn after(dropped: u64) -> Self {
        Self {
            dropped,
            ..Self::default()
        }
    }

    /// The oldest place that is kept.
    pub(super) fn first(&self) -> Option<u64> {
        (self.kept > 0).then_some(self.first)
    }

    /// The newest place that is kept.
    pub(super) fn last(&self) -> Option<u64> {
        (self.kept > 0).then_some(self.last)
    }

    /// The newest event of it that was dropped.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Whether something of it is younger than this number, or was dropped behind it.
    pub(super) fn has_news(&self, cursor: u64) -> bool {
        self.dropped > cursor || (self.kept > 0 && self.last > cursor)
    }

    /// A place is appended; the one before it, which is to lead to it.
    pub(super) fn append(&mut self, number: u64) -> Option<u64> {
        let before = self.last();
        if before.is_none() {
            self.first = number;
        }
        self.last = number;
        self.kept += 1;
        before
    }

    /// Its oldest place is dropped; `next` is the one behind it.
    pub(super) fn drop_first(&mut self, next: Option<u64>, superseded: bool) {
        if !superseded {
            self.dropped = self.first;
        }
        self.kept -= 1;
        self.first = next.unwrap_or(0);
    }

    pub(super) fn pin(&mut self) {
        self.pins += 1;
    }

    pub(super) fn unpin(&mut self) {
        self.pins -= 1;
    }

    /// Whether nothing of it is kept, and no reader has a position in it.
    pub(super) fn is_unused(&self) -> bool {
        self.kept == 0 && self.pins == 0
    }
}
