//! Giving the clients' socket to another server. The design note is the page `docs/concepts/executor/takeover.md`.
//!
//! Each client's receiving side is shut, so that it knows of each of its calls whether it was read. What was read is
//! answered: a submission with its id once it is on disk, a `run` with its id too, because the next server will know its
//! end. Then the dispatcher closes its store, and leaves the socket's file to the next one.

use std::os::fd::OwnedFd;
use std::sync::mpsc::Sender;
use std::time::Instant;

use crate::error::Result;

/// The socket of the clients and its lock.
pub type Given = [OwnedFd; 2];

/// A socket that is being given away.
pub struct Giving {
    until: Instant,
    given: Sender<Result<Given>>,
}

impl Giving {
    pub fn new(until: Instant, given: Sender<Result<Given>>) -> Self {
        Self { until, given }
    }

    /// When clients are not waited for any longer.
    pub fn until(&self) -> Instant {
        self.until
    }

    /// Tell the caller what has come of it; dropped if it no longer waits.
    pub fn end(self, given: Result<Given>) {
        let _ = self.given.send(given);
    }
}
