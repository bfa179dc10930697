//! `forebay._core.BlockFile`: a file, and batches of blocks on it.
#![allow(clippy::doc_markdown)] // the comments are Python docstrings
#![allow(clippy::too_many_arguments)] // they are Python's
#![allow(clippy::needless_pass_by_value)] // PyO3 passes arguments by value

use std::os::fd::RawFd;
use std::path::PathBuf;
use std::slice;
use std::sync::{Mutex, PoisonError};

use forebay_blockio::{Alignment, BlockFile as Core, Kind, Mode};
use pyo3::prelude::*;

use super::batch::BlockBatch;
use super::outcome::run;
use super::port::BlockPort;
use super::queue::BlockQueue;
use super::request::{FileList, Request, Work, offset_of};
use crate::error::{self, Result};
use crate::sys::loan::lend_once;

/// What is copied from the page cache in ten microseconds, for which the GIL is held.
const CACHED_BYTES_MAX: usize = 64 << 10;

type Any<'py> = Bound<'py, PyAny>;

/// A file whose blocks are read and written in batches. Base of `forebay.blockio.BlockFile`.
#[pyclass(frozen, subclass, weakref, module = "forebay._core")]
pub(crate) struct BlockFile {
    /// None once closed. What is in flight keeps a handle of its own.
    file: Mutex<Option<Core>>,
    path: PathBuf,
    queue: Py<BlockQueue>,
}

impl BlockFile {
    /// The core's handle.
    pub(crate) fn core(&self) -> Result<Core> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.clone().ok_or_else(|| {
            let path = self.path.display();
            error::closed(format!("{path} is closed; open it again"))
        })
    }

    fn blocks<'py>(
        &self,
        py: Python<'py>,
        work: Work<'_, 'py>,
        results: Option<&Any<'py>>,
        exact: bool,
        return_errors: bool,
    ) -> Result<Any<'py>> {
        let file = self.core()?;
        let request = Request {
            work,
            files: slice::from_ref(&file),
            results,
            exact,
        };
        let (array, own) = run(
            py,
            self.queue.get().core(),
            &request,
            work.memory(),
            return_errors,
        )?;
        match array {
            Some(array) => Ok(array),
            None => Ok(own.into_pyobject(py)?.into_any()),
        }
    }
}

impl BlockFile {
    /// Read a short block if the page cache has it, in less time than letting go of the GIL pays for.
    fn read_cached(&self, offset: u64, out: &Any<'_>, exact: bool) -> Result<Option<u32>> {
        let file = self.core()?;
        let queue = self.queue.get().core();
        lend_once(out, |memory| {
            if memory.bytes() > CACHED_BYTES_MAX {
                return Ok(None);
            }
            let read = queue.read_cached(&file, offset, memory);
            let all = |&bytes: &u32| !exact || bytes as usize == memory.bytes();
            Ok(read?.filter(all))
        })
        .unwrap_or(Ok(None))
    }
}

impl<'py> FromPyObject<'_, 'py> for FileList {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(file) = given.cast::<BlockFile>() {
            return Ok(Self(vec![file.get().core()?]));
        }
        let mut all = Vec::new();
        for file in given.try_iter()? {
            all.push(file?.cast::<BlockFile>()?.get().core()?);
        }
        Ok(Self(all))
    }
}

fn mode_of(mode: &str) -> Result<Mode> {
    match mode {
        "r" => Ok(Mode::Read),
        "r+" => Ok(Mode::ReadWrite),
        "w" => Ok(Mode::Truncate),
        "x" => Ok(Mode::Create),
        other => Err(error::config(format!(
            "mode is {other:?}; give \"r\", \"r+\", \"w\" or \"x\""
        ))),
    }
}

#[pymethods]
impl BlockFile {
    #[new]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        mode: &str,
        direct: bool,
        queue: Py<BlockQueue>,
    ) -> Result<Self> {
        let mode = mode_of(mode)?;
        let opened = py.detach(|| Core::open(&path, mode, direct));
        let file = opened?;
        Ok(Self {
            file: Mutex::new(Some(file)),
            path,
            queue,
        })
    }

    /// Read blocks at `offsets` into consecutive blocks of `out`, and wait for them.
    ///
    /// Args:
    ///     offsets: byte offsets, shape (n,), any n; uint64 or int64 and C-contiguous, it is used as it is,
    ///         anything else is converted. With `direct` multiples of `alignment.offset`.
    ///     out: memory of n equal blocks: a writable C-contiguous buffer, of an arena or your own.
    ///         Lent until this returns; not used elsewhere meanwhile.
    ///     lengths: bytes of each block to read, shape (n,), uint32; all of each where left out.
    ///     exact: continue short reads; one that meets the end of the file fails with ENODATA.
    ///     return_errors: failed operations are -errno in the result, and nothing is raised for them.
    ///     results: int64 array of shape (n,) for the result; a new one where left out.
    ///
    /// Returns:
    ///     Bytes read by each operation, int64 of shape (n,): fewer than asked for only at the end of the file.
    ///     A numpy array, or an `array.array` where numpy is not installed; `results` where it was given.
    ///
    /// Raises:
    ///     BlockError: an operation failed; `.index` says which was the first, `.errno` why. The others are valid.
    ///     ConfigError: an operation is out of bounds or not aligned, or an array does not fit; nothing was read.
    ///     ClosedError: the file or its queue is closed.
    ///     LimitError: too much memory of cancelled reads is still the kernel's (`quarantine_bytes_max`).
    ///     BrokenError: the kernel gives no ring, or does not answer any more.
    ///
    /// Threads: any; each has a ring of its own. The GIL is not held meanwhile.
    /// Cancellation: a signal handler that raises ends the wait; the buffers are kept until the kernel has let go.
    /// Cost: about a system call for `batch_limit` blocks; no allocation per block. Source: io_uring_enter(2).
    #[pyo3(signature = (offsets, out, *, lengths = None, exact = false, return_errors = false, results = None))]
    fn read_many<'py>(
        &self,
        py: Python<'py>,
        offsets: &Any<'py>,
        out: &Any<'py>,
        lengths: Option<&Any<'py>>,
        exact: bool,
        return_errors: bool,
        results: Option<&Any<'py>>,
    ) -> Result<Any<'py>> {
        let work = Work::Blocks {
            kind: Kind::Read,
            offsets,
            lengths,
            memory: out,
        };
        self.blocks(py, work, results, exact, return_errors)
    }

    /// Write consecutive blocks of `data` at `offsets`, and wait for them; they are not ordered among themselves.
    ///
    /// Args:
    ///     offsets: as `read_many`; two that overlap are written in any order.
    ///     data: memory of n equal blocks: any C-contiguous buffer. Lent until this returns; not changed meanwhile.
    ///     lengths: bytes of each block to write, shape (n,), uint32; all of each where left out.
    ///     exact: continue short writes; one that cannot go on fails with ENOSPC.
    ///     return_errors: failed operations are -errno in the result, and nothing is raised for them.
    ///     results: int64 array of shape (n,) for the result; a new one where left out.
    ///
    /// Returns:
    ///     Bytes written by each operation, as `read_many`.
    ///
    /// Raises:
    ///     BlockError, ConfigError, ClosedError, LimitError, BrokenError: as `read_many`.
    ///
    /// What is written survives a power loss after `fsync` or `fdatasync` alone.
    /// Threads, cancellation, cost: as `read_many`.
    #[pyo3(signature = (offsets, data, *, lengths = None, exact = false, return_errors = false, results = None))]
    fn write_many<'py>(
        &self,
        py: Python<'py>,
        offsets: &Any<'py>,
        data: &Any<'py>,
        lengths: Option<&Any<'py>>,
        exact: bool,
        return_errors: bool,
        results: Option<&Any<'py>>,
    ) -> Result<Any<'py>> {
        let work = Work::Blocks {
            kind: Kind::Write,
            offsets,
            lengths,
            memory: data,
        };
        self.blocks(py, work, results, exact, return_errors)
    }

    /// Read one block at `offset` into `out`; return its bytes.
    ///
    /// As `read_many` with one offset, at less cost: there is one buffer to borrow and no array to make.
    ///
    /// Args:
    ///     offset: where in the file, in bytes.
    ///     out: a writable C-contiguous buffer, filled as far as the file goes. Lent until this returns.
    ///     exact: fail with ENODATA where the file ends before `out` does.
    ///
    /// Raises:
    ///     BlockError, ConfigError, ClosedError, LimitError, BrokenError: as `read_many`.
    ///
    /// Threads, cancellation: as `read_many`. Cost: that of `os.preadv`.
    #[pyo3(signature = (offset, out, *, exact = false))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        offset: &Any<'py>,
        out: &Any<'py>,
        exact: bool,
    ) -> Result<Any<'py>> {
        let offset = offset_of(offset)?;
        if let Some(bytes) = self.read_cached(offset, out, exact)? {
            return Ok(bytes.into_pyobject(py)?.into_any());
        }
        let work = Work::One {
            kind: Kind::Read,
            offset,
            memory: out,
        };
        self.blocks(py, work, None, exact, false)
    }

    /// Write all of `data` as one block at `offset`; return how many bytes were written.
    ///
    /// As `write_many` with one offset, at less cost.
    ///
    /// Args:
    ///     offset: where in the file, in bytes.
    ///     data: any C-contiguous buffer. Lent until this returns.
    ///     exact: continue a short write.
    ///
    /// Raises:
    ///     BlockError, ConfigError, ClosedError, LimitError, BrokenError: as `read_many`.
    ///
    /// Threads, cancellation: as `read_many`. Cost: that of `os.pwritev`.
    #[pyo3(signature = (offset, data, *, exact = false))]
    fn write<'py>(
        &self,
        py: Python<'py>,
        offset: &Any<'py>,
        data: &Any<'py>,
        exact: bool,
    ) -> Result<Any<'py>> {
        let work = Work::One {
            kind: Kind::Write,
            offset: offset_of(offset)?,
            memory: data,
        };
        self.blocks(py, work, None, exact, false)
    }

    /// Have the device keep all that was written before, data and metadata, and wait for it.
    ///
    /// Raises:
    ///     BlockError: the device failed; what was written since the last sync may be lost.
    ///     ClosedError, BrokenError: as `read_many`.
    ///
    /// Threads: any. Cost: that of the device, milliseconds on most. Source: fsync(2).
    fn fsync(&self, py: Python<'_>) -> Result<()> {
        let work = Work::Sync { kind: Kind::Fsync };
        self.blocks(py, work, None, false, false).map(drop)
    }

    /// As `fsync`, but of the metadata only what reading needs.
    ///
    /// Raises:
    ///     BlockError, ClosedError, BrokenError: as `fsync`.
    ///
    /// Threads: any. Cost: as `fsync`, less where the size did not change. Source: fdatasync(2).
    fn fdatasync(&self, py: Python<'_>) -> Result<()> {
        let work = Work::Sync {
            kind: Kind::Fdatasync,
        };
        self.blocks(py, work, None, false, false).map(drop)
    }

    /// Begin one of the methods above as batch `ticket` of a port.
    #[pyo3(signature = (port, ticket, method, offsets = None, memory = None, *, lengths = None, exact = false, return_errors = false, results = None))]
    fn start<'py>(
        &self,
        py: Python<'py>,
        port: &BlockPort,
        ticket: u64,
        method: &str,
        offsets: Option<&Any<'py>>,
        memory: Option<&Any<'py>>,
        lengths: Option<&Any<'py>>,
        exact: bool,
        return_errors: bool,
        results: Option<&Any<'py>>,
    ) -> Result<BlockBatch> {
        let file = self.core()?;
        let work = Work::named(method, offsets, lengths, memory)?;
        let request = Request {
            work,
            files: slice::from_ref(&file),
            results,
            exact,
        };
        port.start(py, ticket, &request, work.memory(), return_errors)
    }

    /// Let the file go; batches in flight keep it open until they are done. Idempotent.
    ///
    /// The ring of another thread that used it keeps it open too, until that thread's next batch, or its end.
    fn close(&self, py: Python<'_>) {
        let file = self
            .file
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        py.detach(|| drop(file));
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.file
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_none()
    }

    /// Where it was opened.
    #[getter]
    fn path(&self) -> &PathBuf {
        &self.path
    }

    /// Its size in bytes at this moment; each look asks the system.
    ///
    /// Raises:
    ///     ClosedError: the file is closed.
    #[getter]
    fn size_bytes(&self) -> Result<u64> {
        Ok(self.core()?.size_bytes()?)
    }

    /// What addresses, and what offsets and lengths, have to be multiples of, in bytes; 1 and 1 without `direct`.
    #[getter]
    fn alignment(&self) -> Result<(u32, u32)> {
        let Alignment { memory, offset } = self.core()?.alignment();
        Ok((memory, offset))
    }

    /// Whether it goes around the page cache.
    #[getter]
    fn direct(&self) -> Result<bool> {
        Ok(self.core()?.is_direct())
    }

    /// Whether it was opened for writing.
    #[getter]
    fn writable(&self) -> Result<bool> {
        Ok(self.core()?.is_writable())
    }

    /// The queue that carries out its batches.
    #[getter]
    fn queue(&self, py: Python<'_>) -> Py<BlockQueue> {
        self.queue.clone_ref(py)
    }

    /// The number of its descriptor, for a look; the file owns it.
    ///
    /// Raises:
    ///     ClosedError: the file is closed.
    fn fileno(&self) -> Result<RawFd> {
        Ok(self.core()?.fileno())
    }

    fn __repr__(&self) -> String {
        let state = if self.closed() { ", closed" } else { "" };
        format!("<forebay.BlockFile {}{state}>", self.path.display())
    }
}
