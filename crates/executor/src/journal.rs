//! The journal: runs that began before their claim was on disk.
//!
//! A request that may not run twice must be known to have begun before its worker receives it, and a commit takes as
//! long as the disk. A store into a mapped file takes nanoseconds, and the page cache keeps it when the server is
//! killed. Source: mmap(2), `MAP_SHARED`.
//!
//! # Design note
//!
//! A table of entries of two words each: the id, then attempt and checksum. An id has a range of [`RANGE`] entries,
//! starting where its hash points; it is noted in the first free one. One thread notes (the dispatcher), one clears
//! (the store's writer): only the first takes an entry and only the second frees it, so there is no lock and no
//! compare-and-swap. The id is stored last, so that an entry with an id is complete; a note that a kill interrupted has
//! no id or a wrong checksum, and its worker had not received the run.
//!
//! The table is bounded: if the range of an id is full, `note` says so, and the run waits for its claim's commit. If
//! the disk fails under the map, or becomes read-only, a note may end the server by SIGBUS. That is equivalent to a
//! SIGKILL: nothing that was acknowledged is lost. Nothing is noted while commits fail, because nothing is dispatched
//! then. One entry per worker slot would not do: an asynchronous worker begins thousands of runs within one commit.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use rustix::fs::FlockOperation;

use crate::id::RequestId;
use crate::store::{Result, StoreError};
use crate::sys::Words;

/// "forebayJ" and the version of the layout.
const MAGIC: u64 = 0x666f_7265_6261_794a;
const LAYOUT: u64 = 1;
const HEADER_WORDS: usize = 8;
const ENTRY_WORDS: usize = 2;
/// Entries in which an id may be noted. With six tenths of the table in use, all of them are taken for 1 in 5,000 ids.
const RANGE: usize = 16;
const FILE_MODE: u32 = 0o600;

/// The mapped file, and the lock that makes this the only store of its directory.
#[derive(Debug)]
pub struct Journal {
    words: Words,
    entries: usize,
}

/// A run that had begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    pub id: RequestId,
    pub attempt: u32,
}

impl Journal {
    /// Open or create the journal with room for at least `entries` runs; a larger file keeps its size.
    ///
    /// # Errors
    ///
    /// [`StoreError::InUse`] while another store has it, [`StoreError::Damaged`] for a file that is not a journal.
    pub fn open(path: &Path, entries: usize) -> Result<Self> {
        let file = lock(path)?;
        let metadata = file
            .metadata()
            .map_err(StoreError::file("cannot look at", path))?;
        let there = usize::try_from(metadata.size()).unwrap_or(0) / size_of::<u64>();
        let kept = there.saturating_sub(HEADER_WORDS) / ENTRY_WORDS;
        let entries = entries.max(kept).max(RANGE).next_power_of_two();
        let words = Words::map(file, HEADER_WORDS + ENTRY_WORDS * entries)
            .map_err(StoreError::file("cannot map", path))?;
        let (magic, layout) = (words[0].load(Relaxed), words[1].load(Relaxed));
        // A new file is all zeros; a larger one after a smaller keeps its notes until they are read.
        if magic != 0 && (magic, layout) != (MAGIC, LAYOUT) {
            return Err(StoreError::Damaged {
                path: path.into(),
                what: format!("this is not a journal of layout {LAYOUT}"),
            });
        }
        words[1].store(LAYOUT, Relaxed);
        words[2].store(u64::from(std::process::id()), Relaxed);
        words[0].store(MAGIC, Release);
        Ok(Self { words, entries })
    }

    /// Note that a run begins. `false`: there is no room; wait for the commit of its claim.
    ///
    /// One thread at a time. Cost: a hash and three stores, no system call.
    #[must_use]
    pub fn note(&self, id: RequestId, attempt: u32) -> bool {
        debug_assert!(id.0 != 0, "no request has the number 0");
        for entry in self.window(id) {
            if self.words[entry].load(Acquire) == 0 {
                self.words[entry + 1].store(seal(id, attempt), Relaxed);
                self.words[entry].store(id.0, Release);
                return true;
            }
        }
        false
    }

    /// This run's claim or its end is on disk: free its entry and those of earlier runs, and no later run's.
    ///
    /// One thread at a time. A run may be noted twice, or after its claim was committed: its end frees the rest.
    pub fn clear(&self, id: RequestId, attempt: u32) {
        for entry in self.window(id) {
            let stands = self.words[entry].load(Acquire) == id.0;
            if stands && attempt_of(self.words[entry + 1].load(Relaxed)) <= attempt {
                self.words[entry].store(0, Release);
            }
        }
    }

    /// The noted runs, as the last server left them. Incomplete entries are left out.
    pub fn notes(&self) -> Vec<Note> {
        let entries = self.words[HEADER_WORDS..].chunks_exact(ENTRY_WORDS);
        entries
            .filter_map(|entry| {
                let id = RequestId(entry[0].load(Acquire));
                let sealed = entry[1].load(Relaxed);
                let attempt = attempt_of(sealed);
                (id.0 != 0 && seal(id, attempt) == sealed).then_some(Note { id, attempt })
            })
            .collect()
    }

    /// Forget every note: all of them are on disk.
    pub fn clear_all(&self) {
        for word in &self.words[HEADER_WORDS..] {
            word.store(0, Release);
        }
    }

    /// Runs that can be noted at once, if they spread evenly.
    pub fn entries(&self) -> usize {
        self.entries
    }

    /// The first words of the entries in which an id may be noted.
    fn window(&self, id: RequestId) -> impl Iterator<Item = usize> + use<> {
        let mask = self.entries - 1;
        #[allow(clippy::cast_possible_truncation)] // the upper half, moved down
        let first = (mix(id.0) >> 32) as usize;
        (0..RANGE).map(move |step| HEADER_WORDS + ENTRY_WORDS * ((first + step) & mask))
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // Explicitly: a child that is being forked may hold the descriptor for a moment, and with it the lock.
        let unlocked = rustix::fs::flock(self.words.file(), FlockOperation::Unlock);
        debug_assert!(unlocked.is_ok(), "unlock: {unlocked:?}");
    }
}

/// Fibonacci hashing: consecutive ids are spread far apart. Source: Knuth, volume 3, section 6.4.
fn mix(value: u64) -> u64 {
    value.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Attempt and checksum of an entry, as one word.
fn seal(id: RequestId, attempt: u32) -> u64 {
    let sum = mix(mix(id.0) ^ u64::from(attempt)) >> 32;
    u64::from(attempt) << 32 | sum
}

#[allow(clippy::cast_possible_truncation)] // the upper half, moved down
fn attempt_of(sealed: u64) -> u32 {
    (sealed >> 32) as u32
}

/// Open the file and lock it, which makes this the only store of its directory.
///
/// Not the server's own file `lock`, which it holds from before it has a store: a lock belongs to the open file, so a
/// second one of the same process would be refused.
fn lock(path: &Path) -> Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(FILE_MODE)
        .open(path)
        .map_err(StoreError::file("cannot open", path))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(StoreError::InUse {
            directory: path.parent().unwrap_or(path).into(),
            pid: owner(&file),
        }),
        Err(errno) => Err(StoreError::file("cannot lock", path)(io::Error::from(
            errno,
        ))),
    }
}

/// The process that wrote its id into the header; 0 if it has not yet.
fn owner(file: &File) -> u32 {
    use std::os::unix::fs::FileExt;

    let mut word = [0; size_of::<u64>()];
    let read = file.read_exact_at(&mut word, 2 * size_of::<u64>() as u64);
    read.map_or(0, |()| u32::try_from(u64::from_ne_bytes(word)).unwrap_or(0))
}
