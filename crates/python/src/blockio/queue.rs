//! `forebay._core.BlockQueue`: limits and engines for all threads of a process.
#![allow(clippy::doc_markdown)] // the comments are Python docstrings
#![allow(clippy::too_many_arguments)] // they are Python's
#![allow(clippy::needless_pass_by_value)] // PyO3 passes arguments by value

use std::sync::{Mutex, PoisonError};

use forebay_blockio::{BlockQueue as Core, Choice, Config};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::batch::BlockBatch;
use super::outcome::run;
use super::port::BlockPort;
use super::request::{FileList, Request, Work};
use crate::error::{self, Result};
use crate::fields::set_items;
use crate::memory::Arena;

type Any<'py> = Bound<'py, PyAny>;

/// Carries out batches of operations. Base of `forebay.blockio.Queue`.
#[pyclass(frozen, subclass, weakref, module = "forebay._core")]
pub(crate) struct BlockQueue {
    core: Core,
    /// Arenas whose memory is registered.
    attached: Mutex<Vec<Py<Arena>>>,
}

impl BlockQueue {
    pub(super) fn core(&self) -> &Core {
        &self.core
    }

    /// Unregister the memory of all arenas.
    fn release(&self) {
        let mut attached = self.attached.lock().unwrap_or_else(PoisonError::into_inner);
        for arena in std::mem::take(&mut *attached) {
            // A forked child has nothing registered.
            _ = self.core.release(arena.get().region());
        }
    }
}

impl Drop for BlockQueue {
    fn drop(&mut self) {
        self.release();
    }
}

fn choice_of(engine: &str) -> Result<Choice> {
    match engine {
        "auto" => Ok(Choice::Auto),
        "ring" => Ok(Choice::Ring),
        "threads" => Ok(Choice::Threads),
        other => Err(error::config(format!(
            "engine is {other:?}; give \"auto\", \"ring\" or \"threads\""
        ))),
    }
}

fn listed<'a, 'py>(
    operations: &'a Any<'py>,
    memory: &'a Any<'py>,
    files: &'a FileList,
    results: Option<&'a Any<'py>>,
    exact: bool,
) -> Request<'a, 'py> {
    Request {
        work: Work::Listed { operations, memory },
        files: &files.0,
        results,
        exact,
    }
}

#[pymethods]
impl BlockQueue {
    #[new]
    #[pyo3(signature = (*, batch_limit, concurrency_limit, engine, threads, quarantine_bytes_max))]
    fn new(
        py: Python<'_>,
        batch_limit: u32,
        concurrency_limit: u32,
        engine: &str,
        threads: u32,
        quarantine_bytes_max: u64,
    ) -> Result<Self> {
        let config = Config {
            batch_limit,
            concurrency_limit,
            engine: choice_of(engine)?,
            threads,
            quarantine_bytes_max,
        };
        let core = py.detach(|| Core::new(config))?;
        Ok(Self {
            core,
            attached: Mutex::default(),
        })
    }

    /// Register an arena's memory with the kernel, now and as it grows.
    ///
    /// All of its chunks take real memory from now on, and reads into it cost a tenth less.
    /// The queue keeps the arena until it is closed.
    /// Where the kernel refuses (see `ulimit -l`) the arena is used as it is; `stats()["unregistered"]` says why.
    ///
    /// Raises:
    ///     ClosedError: the queue or the arena is closed.
    ///     StaleError: the arena is of the process that this one was forked from.
    ///
    /// Threads: any.
    fn attach(&self, py: Python<'_>, arena: &Bound<'_, Arena>) -> Result<()> {
        let region = arena.get().region();
        py.detach(|| self.core.attach(region))?;
        let mut attached = self.attached.lock().unwrap_or_else(PoisonError::into_inner);
        if !attached.iter().any(|known| known.is(arena)) {
            attached.push(arena.clone().unbind());
        }
        Ok(())
    }

    /// Carry out any operations, and wait for them.
    ///
    /// An fsync or fdatasync begins when the operations before it are over, and is not issued after a failed write.
    /// All others are carried out in any order.
    ///
    /// Args:
    ///     operations: array of shape (n,) and dtype `OPERATION`, any n; it is used as it is, anything else is converted.
    ///     files: a `BlockFile`, or a sequence of them that the field `file` counts from 0.
    ///     buffer: memory of all operations: any C-contiguous buffer, writable if there are reads.
    ///         Lent until this returns.
    ///     exact: continue short reads and writes; those that cannot go on fail with ENODATA or ENOSPC.
    ///     return_errors: failed operations are -errno in the result, and nothing is raised for them.
    ///     results: int64 array of shape (n,) for the result; a new one where left out.
    ///
    /// Returns:
    ///     Bytes moved by each operation, 0 for an fsync; int64 of shape (n,).
    ///
    /// Raises:
    ///     BlockError: an operation failed; `.index` says which was the first, `.errno` why. The others are valid.
    ///     ConfigError: an operation is wrong; nothing was submitted.
    ///     ClosedError, LimitError, BrokenError: as `BlockFile.read_many`.
    ///
    /// Threads, cancellation, cost: as `BlockFile.read_many`.
    #[pyo3(signature = (operations, files, buffer, *, exact = false, return_errors = false, results = None))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        operations: &Any<'py>,
        files: &Any<'py>,
        buffer: &Any<'py>,
        exact: bool,
        return_errors: bool,
        results: Option<&Any<'py>>,
    ) -> Result<Any<'py>> {
        let files = files.extract::<FileList>()?;
        let request = listed(operations, buffer, &files, results, exact);
        let (array, _) = run(py, &self.core, &request, Some(buffer), return_errors)?;
        Ok(array.unwrap_or_else(|| py.None().into_bound(py)))
    }

    /// Begin `run` as batch `ticket` of a port.
    #[allow(clippy::unused_self)] // the port is one of this queue's
    #[pyo3(signature = (port, ticket, operations, files, buffer, *, exact = false, return_errors = false, results = None))]
    fn start<'py>(
        &self,
        py: Python<'py>,
        port: &BlockPort,
        ticket: u64,
        operations: &Any<'py>,
        files: &Any<'py>,
        buffer: &Any<'py>,
        exact: bool,
        return_errors: bool,
        results: Option<&Any<'py>>,
    ) -> Result<BlockBatch> {
        let files = files.extract::<FileList>()?;
        let request = listed(operations, buffer, &files, results, exact);
        port.start(py, ticket, &request, Some(buffer), return_errors)
    }

    /// Make a port: a ring of the calling thread, or with `hand_over` the I/O thread's.
    fn port(&self, py: Python<'_>, hand_over: bool) -> Result<BlockPort> {
        let port = py.detach(|| self.core.port(hand_over));
        Ok(port.map(BlockPort::new)?)
    }

    /// Refuse further batches, cancel what is in flight, and wait until the kernel has let go of its memory. Idempotent.
    ///
    /// Returns:
    ///     Operations that it did not let go of within five seconds; their memory is never used again.
    ///
    /// Threads: any; rings of other threads end with those threads, or when they use the queue again.
    fn close(&self, py: Python<'_>) -> u64 {
        py.detach(|| {
            let left = self.core.close();
            self.release();
            left
        })
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.core.is_closed()
    }

    /// What carries out operations here: "ring" (io_uring) or "threads".
    #[getter]
    fn engine(&self) -> &'static str {
        if self.core.availability().ring {
            "ring"
        } else {
            "threads"
        }
    }

    /// Why that engine and not the other, in words that can be acted on.
    #[getter]
    fn reason(&self) -> &str {
        &self.core.availability().reason
    }

    /// Return what the queue has done and holds.
    ///
    /// Returns:
    ///     `enters` (system calls that entered a ring), `operations` (that completed),
    ///     `quarantined_batches` and `quarantined_bytes` (cancelled, and still the kernel's) and `max_quarantine_bytes`,
    ///     `registered_bytes`, `unregistered` (why other memory is not registered, or None),
    ///     `leaked_operations` (whose memory was given up for good).
    ///
    /// Threads: any. Cost: a microsecond.
    fn stats<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let stats = self.core.stats();
        let dict = PyDict::new(py);
        set_items!(
            dict, stats;
            enters operations
            quarantined_batches quarantined_bytes
            registered_bytes leaked_operations unregistered
        );
        dict.set_item("max_quarantine_bytes", stats.quarantine_bytes_max)?;
        Ok(dict)
    }
}
