//! Pulls that a link answers from the owner's memory, without its socket.
//!
//! # Whether the owner is alive
//!
//! The memory of a dead owner stays mapped and readable, so pulls could be answered from it for ever.
//! Each pull therefore checks that the owner is alive, but not by a system call each: an owner that closes sets a
//! word of its header; the death of one that was killed shows on its pidfd and on the socket, which one `poll` checks
//! when the last check is [`CHECK_INTERVAL`] old. The socket alone is not enough: a child that the owner forked holds
//! it too. So a pull may return the last rows of an owner that died within that interval, as it may over a network.
//! No replacement can be confused with it: starting a process takes longer than the interval. A stopped owner
//! (SIGSTOP) is read as before, unless it was stopped while it wrote; then the stream decides.
//!
//! The check reads nothing from the socket and never blocks, so it may be made under a lock such as Python's GIL.
//! If the process has ended, the check shuts the socket down in both directions, which wakes all waiters of the link.
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use forebay_base::time::timespec;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use rustix::net::{Shutdown, shutdown};

use super::{Link, Submission, Work};
use crate::requester::{Outcome, Pull};
use crate::shm::{Reader, ShmCounters};
use crate::stream::batch::Batch;

/// How old a check of the owner may be for a pull to be answered from memory.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// An owner's memory, and how to check that the owner is alive.
#[derive(Debug)]
pub(super) struct OwnerMemory {
    pub(super) reader: Reader,
    /// Dangling once the link is closed or broken.
    socket: Weak<OwnedFd>,
}

impl OwnerMemory {
    /// Check that the owner is alive, without waiting.
    fn check(&self) -> bool {
        let Some(socket) = self.socket.upgrade() else {
            return false;
        };
        let mut watched = [
            PollFd::new(&socket, PollFlags::RDHUP),
            PollFd::from_borrowed_fd(self.reader.end(), PollFlags::IN),
        ];
        let at_once = timespec(Duration::ZERO);
        let found = retry_on_intr(|| poll(&mut watched, Some(&at_once)));
        if !watched[1].revents().is_empty() {
            _ = shutdown(&socket, Shutdown::Both); // it may be shut down already
        }
        found == Ok(0)
    }
}

/// The shared-memory side of a link.
pub(super) struct SharedMemory {
    /// `None` without shared memory, and once the link is closed.
    owner_memory: Mutex<Option<Arc<OwnerMemory>>>,
    /// Whether `owner_memory` is set: saves the lock of links without shared memory.
    is_present: AtomicBool,
    begun: Instant,
    /// When the owner was last found alive, in nanoseconds since `begun`; 0 for never.
    checked: AtomicU64,
}

impl Default for SharedMemory {
    fn default() -> Self {
        Self {
            owner_memory: Mutex::default(),
            is_present: AtomicBool::new(false),
            begun: Instant::now(),
            checked: AtomicU64::new(0),
        }
    }
}

impl SharedMemory {
    fn set(&self, owner_memory: Option<Arc<OwnerMemory>>) {
        let mut held = self
            .owner_memory
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.is_present
            .store(owner_memory.is_some(), Ordering::Release);
        *held = owner_memory;
    }

    fn get(&self) -> Option<Arc<OwnerMemory>> {
        if !self.is_present.load(Ordering::Acquire) {
            return None;
        }
        let held = self
            .owner_memory
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        held.clone()
    }

    pub(super) fn close(&self) {
        drop(self.get().inspect(|_| self.set(None)));
    }

    /// Whether the owner is alive, by a check that is not older than [`CHECK_INTERVAL`].
    fn is_alive(&self, owner_memory: &OwnerMemory) -> bool {
        if owner_memory.reader.is_closed() {
            return false;
        }
        let since = self.begun.elapsed();
        let checked = self.checked.load(Ordering::Relaxed);
        if checked > 0 && since.saturating_sub(Duration::from_nanos(checked)) < CHECK_INTERVAL {
            return owner_memory.socket.strong_count() > 0;
        }
        let is_present = owner_memory.check();
        owner_memory.reader.check_some();
        let since = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        let checked = if is_present { since } else { 0 };
        self.checked.store(checked, Ordering::Relaxed);
        is_present
    }
}

impl<M: Send + Sync + 'static> Link<M> {
    /// Answer pulls from the owner's memory from now on, if possible.
    pub fn attach_reader(&self, reader: Reader) {
        let socket = match self.lock() {
            Ok(inner) => inner.socket(),
            Err(_) => None,
        };
        let Some(socket) = socket else {
            return; // the link is closed
        };
        self.shm.set(Some(Arc::new(OwnerMemory {
            reader,
            socket: Arc::downgrade(&socket),
        })));
    }

    /// Counters of shared memory; `None` if the link has only its stream.
    pub fn shm_counters(&self) -> Option<ShmCounters> {
        let owner_memory = self.shm.get()?;
        Some(owner_memory.reader.counters())
    }

    /// Answer pulls from memory, all of them or none; `on_version` gets the version of each.
    ///
    /// After `false` the destinations may have been written, and the pulls must be begun with [`Self::begin`].
    /// It maps, unmaps and waits for nothing: so it returns `false` for the first pull of a tensor, and for any pull
    /// while memory of dropped tensors has to be unmapped.
    pub fn read(&self, works: &[Work], mut on_version: impl FnMut(usize, u64)) -> bool {
        let Some(owner_memory) = self.owner_memory() else {
            return false;
        };
        if owner_memory.reader.has_stale() {
            return false;
        }
        for (index, work) in works.iter().enumerate() {
            let version = match work {
                Work::Pull(pull) => owner_memory.reader.pull_mapped(pull),
                Work::Push(_) => None,
            };
            match version {
                Some(version) => on_version(index, version),
                None => return false,
            }
        }
        true
    }

    /// Whether this link has shared memory whose owner was alive a moment ago.
    ///
    /// Cost: one system call if the last check is older than a millisecond; it never blocks.
    pub fn is_owner_alive(&self) -> bool {
        self.owner_memory().is_some()
    }

    /// The owner's memory, if it may be read now.
    pub(super) fn owner_memory(&self) -> Option<Arc<OwnerMemory>> {
        if self.epoch != forebay_memory::epoch() {
            return None;
        }
        let owner_memory = self.shm.get()?;
        self.shm.is_alive(&owner_memory).then_some(owner_memory)
    }
}

/// Answer from memory as many pulls as possible, up to `bytes_left`; returns the other operations with their indices.
pub(super) fn pull_from_memory<M>(
    reader: &Reader,
    batch: &Batch<M>,
    works: impl Iterator<Item = (u32, Submission)>,
    mut bytes_left: u64,
) -> Vec<(u32, Submission)> {
    if reader.has_stale() {
        reader.sweep();
    }
    let mut rest = Vec::new();
    for (index, submission) in works {
        let version = match &submission.work {
            Work::Pull(pull) => take(&mut bytes_left, pull).and_then(|()| reader.pull(pull)),
            Work::Push(_) => None,
        };
        match version {
            Some(version) => {
                batch.end(index, Ok(Outcome::Moved { version }));
            }
            None => rest.push((index, submission)),
        }
    }
    rest
}

fn take(bytes_left: &mut u64, pull: &Pull) -> Option<()> {
    let bytes = pull.rows.count().checked_mul(pull.row_bytes)?;
    *bytes_left = bytes_left.checked_sub(bytes)?;
    Some(())
}
