//! Handing the clients' socket and the workers over to another server. The design note is the page
//! `docs/concepts/executor/takeover.md`.
//!
//! Each client's receiving side is shut, so that it knows of each of its calls whether it was read. What was read is
//! answered: a submission with its id once it is on disk, a `run` with its id too, because the next server will know its
//! end. A worker that runs something goes over between two frames, with its open calls. Then the dispatcher closes its
//! store, and leaves the socket's file to the next one.

use std::os::fd::OwnedFd;
use std::sync::mpsc::Sender;
use std::time::Instant;

use crate::error::Result;
use crate::machine::{AdoptedRun, AdoptedWorker};
use crate::request::{Lane, Slot};

/// What a dispatcher leaves to the next one.
#[derive(Debug)]
pub struct Handover {
    /// The socket of the clients and its lock.
    pub clients: [OwnedFd; 2],
    pub workers: Vec<MovedWorker>,
}

/// A worker that runs something while its server is replaced.
#[derive(Debug)]
pub struct MovedWorker {
    /// Its slot under the server that has started it.
    pub slot: Slot,
    pub lane: Lane,
    pub pid: i32,
    pub generation: u32,
    pub connection: OwnedFd,
    pub pidfd: OwnedFd,
    pub side: OwnedFd,
    /// The read end of its output, unless the worker has closed the other one.
    pub output: Option<OwnedFd>,
    pub runs: Vec<MovedRun>,
}

/// A run of such a worker, with its call.
#[derive(Clone, Copy, Debug)]
pub struct MovedRun {
    pub call: u64,
    pub run: AdoptedRun,
}

impl MovedWorker {
    /// What the machine knows of it.
    pub fn adopted(&self) -> AdoptedWorker {
        AdoptedWorker {
            lane: self.lane,
            runs: self.runs.iter().map(|moved| moved.run).collect(),
        }
    }
}

/// What is being given away.
pub struct PendingHandover {
    until: Instant,
    given: Sender<Result<Handover>>,
}

impl PendingHandover {
    pub fn new(until: Instant, given: Sender<Result<Handover>>) -> Self {
        Self { until, given }
    }

    /// When clients and workers are not waited for any longer.
    pub fn until(&self) -> Instant {
        self.until
    }

    /// Tell the caller what has come of it; dropped if it no longer waits.
    pub fn end(self, given: Result<Handover>) {
        let _ = self.given.send(given);
    }
}
