//! `forebay._core.TensorShard`: tensors, and the thread that serves them without the GIL.
#![allow(clippy::doc_markdown)] // the comments are Python docstrings
#![allow(clippy::needless_pass_by_value)] // PyO3 passes arguments by value
#![allow(clippy::too_many_arguments)] // they are Python's
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::Arc;

use forebay_tensor::fabric::Provider;
use forebay_tensor::stream::{Entrance, Options, Server, StreamError};
use forebay_tensor::{Description, FileRows, Key, ShardLimits};
use forebay_transport::link::Admission;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::handle::dtype_of;
use super::request::{memory_of, operation_of, rows_of};
use super::verbs::device_of;
use crate::blockio::BlockFile;
use crate::error::{At, Result, config};
use crate::fields::set_field;
use crate::fields::set_items;
use crate::memory::{Arena, block_under};
use crate::sys::exports::Exports;
use crate::sys::kept;
use crate::sys::kept::KeptExports;
use crate::sys::loan::Want;
use crate::transport::{TlsServer, listening, seconds};

/// Requests that a client may have at a shard, where the server does not say.
const SLOTS: u32 = 1024;

/// Descriptors of listening sockets, given away; a path; TLS; a token.
type Entered<'py> = (
    Vec<RawFd>,
    Option<PathBuf>,
    Option<PyRef<'py, TlsServer>>,
    Option<Vec<u8>>,
);

/// One shard of a server. Any thread may use it.
#[pyclass(frozen, weakref, module = "forebay._core")]
pub(crate) struct TensorShard {
    server: Server<KeptExports>,
    name: String,
}

fn entrance(entered: Entered<'_>, own: bool) -> Result<Entrance> {
    let (descriptors, path, tls, expected) = entered;
    Ok(Entrance {
        listening: listening(path, descriptors, own)?,
        tls: tls.map(|tls| tls.core()),
        admission: expected.map_or(Admission::Anybody, Admission::Token),
    })
}

/// What a shard grants its clients; an unknown name is an error.
fn limits_of(given: Option<&Bound<'_, PyDict>>) -> Result<ShardLimits> {
    let mut limits = ShardLimits {
        slots: SLOTS,
        ..ShardLimits::default()
    };
    for (name, value) in given.into_iter().flatten() {
        let name: String = name.extract()?;
        if name == "liveness" {
            limits.liveness = seconds(value.extract()?)?;
        } else if !set_field!(
            limits, name.as_str(), value;
            slots grant_bytes tensors_max peers_max staging_bytes
        ) {
            return Err(config(format!("unknown limit {name:?} of a shard")));
        }
    }
    Ok(limits)
}

/// The RDMA device that knows the arena, if there is one; `is_needed`: its lack is an error.
fn device_for(
    py: Python<'_>,
    arena: Option<PyRef<'_, Arena>>,
    is_needed: bool,
) -> Result<Option<Arc<dyn Provider>>> {
    let Some(arena) = arena else { return Ok(None) };
    match device_of(py, &arena) {
        Err(refused) if is_needed => Err(refused),
        found => Ok(found.ok().map(|device| device as Arc<dyn Provider>)),
    }
}

impl TensorShard {
    /// What `publish` returns.
    fn published(
        &self,
        py: Python<'_>,
        key: Result<Result<Key, forebay_tensor::Error>, StreamError>,
    ) -> Result<(u32, u32)> {
        kept::end_exports(py);
        let key = key?.at(&self.name)?;
        Ok((key.id, key.generation))
    }
}

#[pymethods]
impl TensorShard {
    /// Serve in a thread of its own; clients are let in from `open` on, and wait until then.
    ///
    /// Args:
    ///     entrances: where clients come in: descriptors of listening nonblocking sockets, which are given away, or a path
    ///         of a Unix socket; what accepts TLS there; the token that is asked for.
    ///     name: what errors call the server: its address.
    ///     limits: any of
    ///         `slots`, requests that a client may have here, at most; it gets what it asks for up to that.
    ///         `grant_bytes`, bytes of responses that a client may have here.
    ///         `tensors_max` and `peers_max`, how many of them there may be.
    ///         `liveness`, seconds after which a peer that takes nothing is let go.
    ///         `staging_bytes`, memory for rows of files on their way, taken with the first one.
    ///     handshake: seconds in which a client must have said what it wants.
    ///     note: words to every client, at most 64 KiB.
    ///     verbs: the arena that tensors lie in, to have clients pull them over RDMA verbs, where there is a device.
    ///     verbs_needed: refuse to start where there is none.
    ///
    /// Raises:
    ///     ConfigError, LimitError: a limit cannot be, or the note is too long.
    ///     BrokenError: no descriptor or thread is left.
    #[new]
    #[pyo3(signature = (entrances, *, name = "the server", limits = None, handshake = 5.0, note = None, shared_memory = true, verbs = None, verbs_needed = false, own = false))]
    fn new(
        py: Python<'_>,
        entrances: Vec<Entered<'_>>,
        name: &str,
        limits: Option<&Bound<'_, PyDict>>,
        handshake: f64,
        note: Option<Vec<u8>>,
        shared_memory: bool,
        verbs: Option<PyRef<'_, Arena>>,
        verbs_needed: bool,
        own: bool,
    ) -> Result<Self> {
        let entrances = entrances.into_iter().map(|entered| entrance(entered, own));
        // Before anything else fails: they own the sockets.
        let entrances = entrances.collect::<Result<Vec<_>>>()?;
        let options = Options {
            fabric: device_for(py, verbs, verbs_needed)?,
            limits: limits_of(limits)?,
            handshake: seconds(handshake)?,
            note: note.unwrap_or_default(),
            name: name.to_owned(),
            shared_memory,
            ..Options::default()
        };
        let server = Server::start(entrances, options)?;
        let name = name.to_owned();
        Ok(Self { server, name })
    }

    /// Let clients in. Never waits; idempotent.
    fn open(&self) {
        self.server.open();
    }

    /// Which run of a server this is.
    #[getter]
    fn incarnation(&self) -> u64 {
        self.server.incarnation()
    }

    /// Serve a buffer under a name; its id and generation. What had the name is replaced.
    ///
    /// Args:
    ///     dtype: how the elements are written, for clients: it is passed on.
    ///     kind: numpy's letter for them: i, u, f and c can be added to, others only set.
    ///     item_bytes: bytes of an element.
    ///     shape: rows first.
    ///     memory: a writable C-contiguous buffer of that size. The shard's until the tensor is dropped or replaced, or the
    ///         shard closed, and no answer reads it: it alone writes there.
    ///
    /// Raises:
    ///     ConfigError: the name, the shape or the buffer cannot be.
    ///     LimitError: there are `tensors_max` of them.
    ///     ClosedError: the shard is closed. StaleError: this is a forked child.
    ///
    /// Threads: any; waits for the shard's thread, without the GIL.
    fn publish(
        &self,
        py: Python<'_>,
        name: String,
        dtype: String,
        kind: &str,
        item_bytes: u32,
        shape: Vec<u64>,
        memory: &Bound<'_, PyAny>,
    ) -> Result<(u32, u32)> {
        let description = Description {
            dtype: dtype_of(dtype, kind, item_bytes),
            shape,
        };
        let mut exports = Exports::with_room(1);
        let span = memory_of(&mut exports, memory, Want::WritableBytes)?;
        let keeper = KeptExports::new(exports);
        // Clients are told where an arena's block lies, so that they can map it.
        let block = block_under(memory).and_then(|buffer| buffer.get().lease());
        let key = py.detach(|| {
            let memory = (span, block.as_ref());
            self.server.publish(name, description, memory, keeper)
        });
        self.published(py, key)
    }

    /// Serve rows of a file under a name, which are not written here; what had the name is replaced.
    ///
    /// Args:
    ///     name: at most 255 bytes of UTF-8.
    ///     dtype, kind, item_bytes, shape: as of `publish`.
    ///     file: what they are read from, with direct I/O where it was opened so; kept open until the tensor is gone.
    ///     offset: where the first row begins, in bytes.
    ///     stride_bytes: from the beginning of a row to that of the next.
    ///     first: what messages call the first row.
    ///     checksums: each row is followed by its CRC-32C, which is compared.
    ///
    /// Returns:
    ///     Its id and generation.
    ///
    /// Raises:
    ///     ConfigError: the file has not these rows, or direct I/O on it needs another offset or stride.
    ///     LimitError: there are too many tensors. ClosedError: the server or the file is closed.
    ///     BrokenError: the kernel gives no ring or memory.
    ///
    /// Threads: any. The first file costs `staging_bytes` of memory.
    #[pyo3(signature = (name, dtype, kind, item_bytes, shape, file, *, offset, stride_bytes, first = 0, checksums = false))]
    fn publish_file(
        &self,
        py: Python<'_>,
        name: String,
        dtype: String,
        kind: &str,
        item_bytes: u32,
        shape: Vec<u64>,
        file: PyRef<'_, BlockFile>,
        offset: u64,
        stride_bytes: u64,
        first: u64,
        checksums: bool,
    ) -> Result<(u32, u32)> {
        let description = Description {
            dtype: dtype_of(dtype, kind, item_bytes),
            shape,
        };
        let rows = FileRows {
            offset,
            stride_bytes,
            first,
            checksums,
        };
        let rows = (file.core()?, rows);
        let key = py.detach(|| self.server.publish_file(&name, description, rows));
        self.published(py, key)
    }

    /// Serve a name no more; its buffer is let go once no answer reads it.
    fn drop(&self, py: Python<'_>, name: String) -> Result<()> {
        let dropped = py.detach(|| self.server.run(move |shard| shard.drop_tensor(&name)));
        kept::end_exports(py);
        dropped?.at(&self.name)
    }

    /// Set rows or add to them, between two answers; the version that this makes.
    ///
    /// Args:
    ///     key: id and generation, as `publish` gave them.
    ///     rows: the first row; or row numbers, int64 or uint64, where `count` is None.
    ///     values: a C-contiguous buffer of as many rows. Lent until this returns.
    ///
    /// Raises:
    ///     OutOfRangeError, ConfigError, StaleError (dropped, or a forked child), ClosedError; nothing was written.
    ///
    /// Threads: any; waits for the shard's thread, without the GIL.
    #[pyo3(signature = (key, rows, count, values, *, add = false))]
    fn write(
        &self,
        py: Python<'_>,
        key: (u32, u32),
        rows: &Bound<'_, PyAny>,
        count: &Bound<'_, PyAny>,
        values: &Bound<'_, PyAny>,
        add: bool,
    ) -> Result<u64> {
        let mut exports = Exports::with_room(2);
        let rows = rows_of(&mut exports, rows, count)?;
        let values = memory_of(&mut exports, values, Want::Bytes)?;
        let (id, generation) = key;
        let key = Key { id, generation };
        let operation = operation_of(add);
        let written = py.detach(|| {
            self.server
                .run(move |shard| shard.write(key, rows, operation, values))
        });
        written?.at(&self.name)
    }

    /// What was counted.
    fn metrics<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let counted = self.server.counters();
        let metrics = PyDict::new(py);
        set_items!(
            metrics, counted;
            peers accepted refused late turned_away broken received_bytes sent_bytes
        );
        metrics.set_item("verbs_peers", counted.fabric_peers)?;
        metrics.set_item("verbs_pulls", counted.fabric_pulls)?;
        metrics.set_item("last_failure", counted.failure)?;
        Ok(metrics)
    }

    /// Begin to close.
    fn stop(&self) {
        self.server.stop();
    }

    /// Close, and wait for the thread, without the GIL. Idempotent.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.server.close());
        kept::end_exports(py);
    }
}
