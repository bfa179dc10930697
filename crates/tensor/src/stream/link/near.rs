//! Pulls that a link answers from the owner's memory, without its socket.
//!
//! # Whether the owner lives
//!
//! What the owner left behind stays mapped and reads as before, so a pull could be answered for ever.
//! An end of file is looked for before a pull is answered, though not by a system call for each: an owner that closes
//! says so in a word of its header; of one that was killed the socket tells, which is looked at when the last look is
//! [`LOOKS`] old. So a pull may have the last rows of an owner that has been dead for that long, as it may over a network.
//! Nobody starts a server anew and has others know of it within that time: to begin a process takes longer.
//! A stopped owner (SIGSTOP) is read as before, unless it was stopped while it wrote; then the stream says how it is.
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{Link, Wanted, Work};
use crate::requester::{Outcome, Pull};
use crate::shm::{Counters, Reader};
use crate::stream::batch::Batch;

/// How old a look at the socket may be for a pull to be answered from memory.
const LOOKS: Duration = Duration::from_millis(1);

/// The owner's memory, as far as a link has it.
pub(super) struct Near {
    /// None where there is none, and once the link was closed.
    reader: Mutex<Option<Arc<Reader>>>,
    /// Saves the lock where there is none.
    is_there: AtomicBool,
    begun: Instant,
    /// When the socket was looked at last and was open, in nanoseconds since `begun`.
    looked: AtomicU64,
}

impl Default for Near {
    fn default() -> Self {
        Self {
            reader: Mutex::default(),
            is_there: AtomicBool::new(false),
            begun: Instant::now(),
            looked: AtomicU64::new(0),
        }
    }
}

impl Near {
    fn set(&self, reader: Option<Arc<Reader>>) {
        let mut held = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_there.store(reader.is_some(), Ordering::Release);
        *held = reader;
    }

    fn get(&self) -> Option<Arc<Reader>> {
        if !self.is_there.load(Ordering::Acquire) {
            return None;
        }
        let held = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        held.clone()
    }

    pub(super) fn close(&self) {
        drop(self.get().inspect(|_| self.set(None)));
    }

    /// The socket was looked at.
    pub(super) fn saw(&self, now: Instant, is_open: bool) {
        let since = now.saturating_duration_since(self.begun);
        let since = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        self.looked
            .store(if is_open { since } else { 0 }, Ordering::Relaxed);
    }

    /// Whether the socket was looked at a moment ago, and was open.
    fn is_fresh(&self) -> bool {
        let looked = self.looked.load(Ordering::Relaxed);
        let since = self.begun.elapsed();
        looked > 0 && since.saturating_sub(Duration::from_nanos(looked)) < LOOKS
    }
}

impl<M: Send + Sync + 'static> Link<M> {
    /// Answer pulls from the owner's memory from now on, where that can be.
    pub fn read_from(&self, reader: Reader) {
        self.near.set(Some(Arc::new(reader)));
    }

    /// What was answered from memory; none where the link has only its stream.
    pub fn near_counters(&self) -> Option<Counters> {
        let reader = self.near.get()?;
        Some(reader.counters())
    }

    /// Answer pulls from memory, all of them or none: `told` hears the version of each.
    ///
    /// Where it returns false, what the pulls were to fill may have been written, and they are to be begun.
    pub fn read(&self, works: &[Work], mut told: impl FnMut(usize, u64)) -> bool {
        let Some(reader) = self.reader() else {
            return false;
        };
        for (index, work) in works.iter().enumerate() {
            let version = match work {
                Work::Pull(pull) => reader.pull(pull),
                Work::Push(_) => None,
            };
            match version {
                Some(version) => told(index, version),
                None => return false,
            }
        }
        true
    }

    /// Whether this link has an owner's memory, which was not closed, and its socket was open a moment ago.
    pub fn was_seen(&self) -> bool {
        self.epoch == forebay_memory::epoch()
            && self.near.is_fresh()
            && self.near.get().is_some_and(|reader| !reader.is_closed())
    }

    /// The owner's memory, if it may be read now.
    pub(super) fn reader(&self) -> Option<Arc<Reader>> {
        if self.epoch != forebay_memory::epoch() {
            return None;
        }
        let reader = self.near.get()?;
        let is_there = !reader.is_closed() && (self.near.is_fresh() || self.probe());
        is_there.then_some(reader)
    }
}

/// Answer from memory what can be, up to some bytes; what is left, with its numbers in the batch.
pub(super) fn read_first<M>(
    reader: &Reader,
    batch: &Batch<M>,
    works: impl Iterator<Item = (u32, Wanted)>,
    mut bytes_left: u64,
) -> Vec<(u32, Wanted)> {
    let mut rest = Vec::new();
    for (index, wanted) in works {
        let version = match &wanted.work {
            Work::Pull(pull) => take(&mut bytes_left, pull).and_then(|()| reader.pull(pull)),
            Work::Push(_) => None,
        };
        match version {
            Some(version) => {
                batch.end(index, Ok(Outcome::Moved { version }));
            }
            None => rest.push((index, wanted)),
        }
    }
    rest
}

fn take(bytes_left: &mut u64, pull: &Pull) -> Option<()> {
    let bytes = pull.rows.count().checked_mul(pull.row_bytes)?;
    *bytes_left = bytes_left.checked_sub(bytes)?;
    Some(())
}
