//! A requester of the same host and user: it copies rows out of the owner's chunks.
//!
//! A pull copies rows between two loads of the version table (see [`crate::version_table`]). What cannot be read is
//! requested over the stream, which decides every error: rows out of range, dropped tensors, an owner that is gone.
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use forebay_memory::Window;

use super::directory::Directory;
use super::mapped::{MappedTensor, MappedTensors};
use super::process::Process;
use super::{IndexLocation, layout};
use crate::requester::{Pull, Rows};
use crate::sys::arena;
use crate::sys::shared_words::SharedWords;
use crate::sys::span::Span;
use crate::table::{Key, check_slice};
use crate::version_table::{Missed, VERSION_BYTES, VersionTable};

/// How many pulls were answered from memory, and why others were not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShmCounters {
    /// Pulls that were answered from memory.
    pub pulls: u64,
    /// Bytes of their rows.
    pub bytes: u64,
    /// The owner was writing at each attempt.
    pub busy: u64,
    /// The tensor was dropped or replaced.
    pub stale: u64,
    /// The tensor is not in mappable memory, or the rows are out of range.
    pub elsewhere: u64,
    /// Chunks of the owner that are mapped now.
    pub chunks: u64,
}

#[derive(Debug, Default)]
struct Metrics {
    pulls: AtomicU64,
    bytes: AtomicU64,
    busy: AtomicU64,
    stale: AtomicU64,
    elsewhere: AtomicU64,
}

/// The shared index and the chunks of one owner, mapped for reading. Any thread may use it.
#[derive(Debug)]
pub struct Reader {
    header: SharedWords,
    versions: VersionTable,
    directory: Directory,
    process: Process,
    mapped: MappedTensors,
    metrics: Metrics,
    /// Keeps the memory of header, version table and directory mapped.
    _window: Window,
}

impl Reader {
    /// Map the owner's shared index.
    ///
    /// # Errors
    ///
    /// Why that fails: the owner is on another host, belongs to another user, or has ended.
    pub fn open(location: IndexLocation, incarnation: u64) -> Result<Self, String> {
        let process = Process::open(location.process)
            .map_err(|errno| format!("the owner's process was not found on this host: {errno}"))?;
        let memory = process
            .memory(location.descriptor, |file| file.inode == location.inode)
            .map_err(|errno| format!("its index cannot be opened: {errno}"))?;
        let window = Window::open(&memory).map_err(|error| error.to_string())?;
        let other = || "the index belongs to another server".to_owned();
        let all = arena::of_window(&window);
        if all.bytes() < layout::HEADER_BYTES {
            return Err(other());
        }
        let header = SharedWords::new(all.part(0, layout::HEADER_BYTES)).ok_or_else(other)?;
        let word = |at: usize| header.at(at).load(Acquire);
        let is_it = word(layout::WORD_MAGIC) == layout::MAGIC
            && word(layout::WORD_INCARNATION) == incarnation;
        let rest = all.after(layout::HEADER_BYTES);
        let tensors = usize::try_from(word(layout::WORD_TENSORS)).unwrap_or(usize::MAX);
        let versions_bytes = tensors.saturating_mul(VERSION_BYTES);
        if !is_it || versions_bytes > rest.bytes() {
            return Err(other());
        }
        let versions =
            VersionTable::new(rest.part(0, versions_bytes)).map_err(|error| error.to_string())?;
        let directory = Directory::new(rest.after(versions_bytes)).ok_or_else(other)?;
        Ok(Self {
            header,
            versions,
            directory,
            process,
            mapped: MappedTensors::default(),
            metrics: Metrics::default(),
            _window: window,
        })
    }

    /// Whether the owner has closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.header.at(layout::WORD_CLOSED).load(Acquire) != 0
    }

    /// A descriptor that is readable once the owner's process has ended, even if a child still holds its sockets.
    pub(crate) fn end(&self) -> BorrowedFd<'_> {
        self.process.end()
    }

    /// Copy the rows of a pull; returns their version, or `None` if they must be requested over the stream.
    ///
    /// After `None` the content of `out` is undefined.
    pub fn pull(&self, pull: &Pull) -> Option<u64> {
        if pull.rows.count() == 0 {
            return None; // the requester ends it at once, without a version
        }
        let read = match self.mapped.get(pull.tensor) {
            Some(tensor) => self.copy(pull, &tensor),
            None => self.find(pull.tensor).and_then(|found| match found {
                Some(tensor) => self.copy(pull, &tensor),
                None => Err(Missed::Absent),
            }),
        };
        let metrics = &self.metrics;
        match read {
            Ok(version) => return Some(version),
            Err(Missed::Busy) => metrics.busy.fetch_add(1, Relaxed),
            Err(Missed::Absent) => metrics.elsewhere.fetch_add(1, Relaxed),
            Err(Missed::Stale(_)) => {
                self.mapped.forget(pull.tensor.id);
                metrics.stale.fetch_add(1, Relaxed)
            }
        };
        None
    }

    /// The same for a tensor that was pulled before: it maps, unmaps and waits for nothing.
    ///
    /// After `None` call [`Self::pull`], which counts the reason.
    pub(crate) fn pull_mapped(&self, pull: &Pull) -> Option<u64> {
        if pull.rows.count() == 0 {
            return None;
        }
        let tensor = self.mapped.get(pull.tensor)?;
        self.copy(pull, &tensor).ok()
    }

    /// Check some known tensors for whether they were dropped; takes less than a microsecond.
    pub(crate) fn check_some(&self) {
        self.mapped.check_some(&self.versions);
    }

    /// Whether [`Self::sweep`] should be called.
    pub(crate) fn has_stale(&self) -> bool {
        self.mapped.has_stale()
    }

    /// Forget dropped tensors, and unmap chunks without known tensors.
    pub(crate) fn sweep(&self) {
        self.mapped.sweep(&self.versions);
    }

    /// What was counted.
    pub fn counters(&self) -> ShmCounters {
        let metrics = &self.metrics;
        ShmCounters {
            pulls: metrics.pulls.load(Relaxed),
            bytes: metrics.bytes.load(Relaxed),
            busy: metrics.busy.load(Relaxed),
            stale: metrics.stale.load(Relaxed),
            elsewhere: metrics.elsewhere.load(Relaxed),
            chunks: self.mapped.windows() as u64,
        }
    }

    /// Copy rows out of a mapped tensor; returns their version.
    fn copy(&self, pull: &Pull, tensor: &MappedTensor) -> Result<u64, Missed> {
        if !fits(pull, tensor.memory) {
            return Err(Missed::Absent);
        }
        let mut is_inside = true;
        let version = self.versions.read(pull.tensor, || {
            is_inside = copy(pull, tensor.memory);
        })?;
        if !is_inside {
            return Err(Missed::Absent);
        }
        self.metrics.pulls.fetch_add(1, Relaxed);
        let bytes = pull.rows.count() * pull.row_bytes;
        self.metrics.bytes.fetch_add(bytes, Relaxed);
        Ok(version)
    }

    /// Find a tensor through the directory; maps its chunk on first use, and unmaps chunks that are no longer used.
    fn find(&self, key: Key) -> Result<Option<MappedTensor>, Missed> {
        let mut entry = None;
        self.versions
            .read(key, || entry = self.directory.get(key.id))?;
        let Some(entry) = entry else {
            return Ok(None);
        };
        let opened = self.mapped.window(entry.file, || {
            self.sweep();
            let is_it = |file| file == entry.file;
            let memory = self.process.memory(entry.descriptor, is_it).ok()?;
            Window::open(&memory).ok()
        });
        let Some(window) = opened else {
            return Ok(None);
        };
        let all = arena::of_window(&window);
        let range = (usize::try_from(entry.offset), usize::try_from(entry.bytes));
        let memory = match range {
            (Ok(offset), Ok(bytes)) if offset <= all.bytes() && bytes <= all.bytes() - offset => {
                all.part(offset, bytes)
            }
            _ => return Ok(None),
        };
        let tensor = MappedTensor::new(key.generation, memory, window);
        self.mapped.add(key.id, tensor.clone());
        Ok(Some(tensor))
    }
}

/// Whether a pull matches the mapped tensor, its rows and the size of the destination.
/// The requester refuses a pull that does not, with a message.
fn fits(pull: &Pull, memory: Span) -> bool {
    let all = pull.rows_total.checked_mul(pull.row_bytes);
    let count = pull.rows.count();
    let out = pull.out.bytes() as u64;
    let has_room = match pull.places {
        None => count.checked_mul(pull.row_bytes) == Some(out),
        Some(places) => places.count() as u64 == count,
    };
    let has_rows = match pull.rows {
        Rows::Slice { first, count } => check_slice(pull.rows_total, first, count).is_ok(),
        Rows::Indices(_) => true, // checked as they are used
    };
    pull.row_bytes > 0 && all == Some(memory.bytes() as u64) && has_room && has_rows
}

/// Copy the rows of a pull that fits; returns whether all row numbers and places were in range.
#[allow(clippy::cast_possible_truncation)] // bounded by the memory's size, a `usize`
fn copy(pull: &Pull, memory: Span) -> bool {
    let row_bytes = pull.row_bytes as usize;
    let row = |number: u64| memory.part(number as usize * row_bytes, row_bytes);
    if let (Rows::Slice { first, count }, None) = (pull.rows, pull.places) {
        let rows = memory.part(first as usize * row_bytes, count as usize * row_bytes);
        pull.out.copy_from(rows);
        return true;
    }
    let room = (pull.out.bytes() / row_bytes) as u64;
    for at in 0..pull.rows.count() {
        // Read once, by value: the lender may change them concurrently.
        let number = match pull.rows {
            Rows::Slice { first, .. } => first + at,
            Rows::Indices(words) => words.get(at as usize),
        };
        let place = pull.places.map_or(at, |places| places.get(at as usize));
        if number >= pull.rows_total || place >= room {
            return false;
        }
        let to = pull.out.part(place as usize * row_bytes, row_bytes);
        to.copy_from(row(number));
    }
    true
}
