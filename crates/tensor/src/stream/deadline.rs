//! Until when something may take, and how long that was to be.
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::error::StreamError;

/// A time that is allowed, and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    pub(super) due: Instant,
    allowed: Duration,
}

impl Deadline {
    /// So much from now on; none where the clock does not go so far.
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

    /// `peer` did not end it within that time.
    pub(super) fn missed_by(&self, peer: &Arc<str>) -> StreamError {
        StreamError::Deadline {
            peer: Arc::clone(peer),
            allowed: self.allowed,
        }
    }
}
