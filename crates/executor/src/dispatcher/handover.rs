//! Handing the clients' socket and the workers over to another server. The design note is the page
//! `docs/concepts/executor/takeover.md`.
//!
//! Each client's receiving side is shut, so that it knows of each of its calls whether it was read. What was read is
//! answered: a submission with its id once it is on disk, a `run` with its id too, because the next server will know its
//! end. A worker that runs something goes over between two frames, with its open calls. Then the dispatcher closes its
//! store, and leaves the socket's file to the next one.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::mpsc::Sender;
use std::time::Instant;

use crate::error::{Error, Result};
use crate::machine::{AdoptedRun, AdoptedWorker};
use crate::request::{Lane, Slot};

/// The clients' socket and its lock.
const SOCKET_DESCRIPTORS: usize = 2;
/// The connection of a worker, its pidfd, its side socket, and its output.
const WORKER_DESCRIPTORS: usize = 4;

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
    /// As of a started worker.
    pub is_measured: bool,
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

/// Descriptors that are kept for a handover, so that it fails for want of them before a client is disconnected.
pub struct SpareDescriptors {
    _descriptors: Vec<File>,
}

impl SpareDescriptors {
    /// Those for the clients' socket, its lock, and so many workers.
    ///
    /// # Errors
    /// `System`: so many are not left.
    pub fn new(workers: usize) -> Result<Self> {
        let count = SOCKET_DESCRIPTORS + workers * WORKER_DESCRIPTORS;
        let descriptors =
            (0..count).map(|_| File::open("/dev/null").map_err(Error::system("open")));
        Ok(Self {
            _descriptors: descriptors.collect::<Result<_>>()?,
        })
    }
}

/// What is being given away.
pub struct PendingHandover {
    until: Instant,
    given: Sender<Result<Handover>>,
    spares: SpareDescriptors,
}

impl PendingHandover {
    pub fn new(until: Instant, given: Sender<Result<Handover>>, spares: SpareDescriptors) -> Self {
        Self {
            until,
            given,
            spares,
        }
    }

    /// When clients and workers are not waited for any longer.
    pub fn until(&self) -> Instant {
        self.until
    }

    /// Give what `make` makes in the place of the spare descriptors; whether it has succeeded.
    pub fn give(self, make: impl FnOnce() -> Result<Handover>) -> bool {
        drop(self.spares);
        let given = make();
        let is_given = given.is_ok();
        let _ = self.given.send(given); // dropped if the caller no longer waits
        is_given
    }

    /// Tell the caller why nothing has come of it.
    pub fn fail(self, why: Error) {
        let _ = self.given.send(Err(why));
    }
}
