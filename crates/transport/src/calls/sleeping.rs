//! How the blocked threads of a connection sleep.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::drive::look::Look;

/// What a sleep begins with, and what it watches.
#[derive(Debug, Default)]
pub struct Sleeping {
    /// Whether a blocked thread spins before it sleeps.
    look: Look,
    /// The peer's process, if it is known: every sleep watches it.
    process: Option<Arc<OwnedFd>>,
}

impl Sleeping {
    /// Whether a blocked thread spins before it sleeps.
    #[inline]
    pub fn look(&self) -> Look {
        self.look
    }

    /// What the reading thread has learned of spinning.
    #[inline]
    pub fn learn(&mut self, look: Look) {
        self.look = look;
    }

    /// Sleep without spinning from now on.
    pub fn disable_spin(&mut self) {
        self.look.turn_off();
    }

    /// The peer's process.
    #[inline]
    pub fn process(&self) -> Option<&Arc<OwnedFd>> {
        self.process.as_ref()
    }

    /// From now on watch the peer's process, or none.
    pub fn watch(&mut self, process: Option<OwnedFd>) {
        self.process = process.map(Arc::new);
    }
}
