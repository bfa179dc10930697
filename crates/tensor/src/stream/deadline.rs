//! A deadline, and how long it was from its start.
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::error::StreamError;

/// An allowed time, and when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    pub(super) due: Instant,
    allowed: Duration,
}

impl Deadline {
    /// A deadline `allowed` from now; `None` if the clock cannot represent it.
    pub fn after(allowed: Duration) -> Option<Self> {
        Self::since(Instant::now(), allowed)
    }

    pub(super) fn since(now: Instant, allowed: Duration) -> Option<Self> {
        let due = now.checked_add(allowed)?;
        Some(Self { due, allowed })
    }

    pub(super) fn has_passed(&self, now: Instant) -> bool {
        self.due <= now
    }

    /// The error of an operation that `peer` did not complete in time.
    pub(super) fn missed_by(&self, peer: &Arc<str>) -> StreamError {
        StreamError::Deadline {
            peer: Arc::clone(peer),
            allowed: self.allowed,
        }
    }
}
