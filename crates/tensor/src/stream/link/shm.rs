//! Pulls that a link answers from the owner's memory, without its socket.
//!
//! # Whether the owner lives
//!
//! What the owner left behind stays mapped and reads as before, so a pull could be answered for ever.
//! Its end is looked for before a pull is answered, though not by a system call for each: an owner that closes says so
//! in a word of its header; of one that was killed its process tells, and the socket, at which one `poll` looks when the
//! last look is [`LOOKS`] old. The socket alone would not do: a child that the owner forked has it too.
//! So a pull may have the last rows of an owner that has been dead for that long, as it may over a network.
//! Nobody starts a server anew and has others know of it within that time: to begin a process takes longer.
//! A stopped owner (SIGSTOP) is read as before, unless it was stopped while it wrote; then the stream says how it is.
//!
//! A look takes nothing from the socket and waits for nobody, so it may be made under a lock such as Python's.
//! The socket of a process that has ended is shut down for both directions: whoever waits for that link hears of it.
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::net::{Shutdown, shutdown};

use super::{Link, Submission, Work};
use crate::requester::{Outcome, Pull};
use crate::shm::{Reader, ShmCounters};
use crate::stream::batch::Batch;
use crate::stream::channel::Channel;

/// How old a look at the owner may be for a pull to be answered from memory.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// An owner's memory, and what tells whether it lives.
#[derive(Debug)]
pub(super) struct OwnerMemory {
    pub(super) reader: Reader,
    /// Gone once the link was closed or found broken.
    socket: Weak<OwnedFd>,
}

impl OwnerMemory {
    /// Look whether the owner is there, without waiting.
    fn check(&self) -> bool {
        let Some(socket) = self.socket.upgrade() else {
            return false;
        };
        let mut watched = [
            PollFd::new(&socket, PollFlags::RDHUP),
            PollFd::from_borrowed_fd(self.reader.end(), PollFlags::IN),
        ];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let found = retry_on_intr(|| poll(&mut watched, Some(&at_once)));
        if !watched[1].revents().is_empty() {
            _ = shutdown(&socket, Shutdown::Both); // it may have been before
        }
        found == Ok(0)
    }
}

/// The owner's memory, as far as a link has it.
pub(super) struct SharedMemory {
    /// None where there is none, and once the link was closed.
    owner_memory: Mutex<Option<Arc<OwnerMemory>>>,
    /// Saves the lock where there is none.
    is_present: AtomicBool,
    begun: Instant,
    /// When the owner was looked at last and was there, in nanoseconds since `begun`.
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

    /// Whether the owner is there, by a look that is not older than [`LOOKS`].
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
    /// Answer pulls from the owner's memory from now on, where that can be.
    pub fn attach_reader(&self, reader: Reader) {
        let socket = match self.lock() {
            Ok(inner) => inner.channel.as_ref().map(Channel::watch),
            Err(_) => None,
        };
        let Some(socket) = socket else {
            return; // there is nothing any more that it would be read beside
        };
        self.shm.set(Some(Arc::new(OwnerMemory {
            reader,
            socket: Arc::downgrade(&socket),
        })));
    }

    /// What was answered from memory; none where the link has only its stream.
    pub fn shm_counters(&self) -> Option<ShmCounters> {
        let owner_memory = self.shm.get()?;
        Some(owner_memory.reader.counters())
    }

    /// Answer pulls from memory, all of them or none: `told` hears the version of each.
    ///
    /// Where it returns false, what the pulls were to fill may have been written, and they are to be begun.
    /// Nothing is mapped, unmapped or waited for: the first pull of a tensor is to be begun, and one of any tensor whenever
    /// memory of dropped ones is to be unmapped.
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

    /// Whether this link has an owner's memory, which was not closed, and the owner was there a moment ago.
    ///
    /// Cost: a system call where the last look is older; it waits for nobody.
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

/// Answer from memory what can be, up to some bytes; what is left, with its numbers in the batch.
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
