//! `forebay._core.TensorShard`: tensors, and the thread that serves them without the GIL.
#![allow(clippy::needless_pass_by_value)] // PyO3 passes arguments by value
#![allow(clippy::too_many_arguments)] // they are Python's
use std::os::fd::RawFd;
use std::path::PathBuf;

use forebay_tensor::stream::{Entrance, Options, Server};
use forebay_tensor::{Description, Key, ShardLimits};
use forebay_transport::Admission;
use forebay_transport::native::Listening;
use forebay_transport::unix::Listener;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::handle::dtype_of;
use super::link::seconds;
use super::request::{memory_of, operation_of, rows_of};
use crate::error;
use crate::memory::block_under;
use crate::sys::descriptor;
use crate::sys::exports::{Exports, KeptExports};
use crate::sys::kept;
use crate::sys::loan::Want;
use crate::transport::TlsServer;

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

fn entrance(py: Python<'_>, entered: Entered<'_>) -> PyResult<Entrance> {
    let (descriptors, path, tls, expected) = entered;
    let sockets: PyResult<Vec<_>> = descriptors.into_iter().map(descriptor::take).collect();
    let sockets = sockets?;
    let listening = match path {
        None => Listening::Tcp(sockets),
        Some(path) => {
            let bound = Listener::bind(&path);
            Listening::Unix(bound.map_err(|e| error::transport_error(py, &e, None))?)
        }
    };
    Ok(Entrance {
        listening,
        tls: tls.map(|tls| tls.core()),
        admission: expected.map_or(Admission::Anybody, Admission::Token),
    })
}

impl TensorShard {
    fn refused(&self, error: &forebay_tensor::Error) -> PyErr {
        error::tensor(&self.name, error)
    }
}

#[pymethods]
impl TensorShard {
    #[new]
    #[pyo3(signature = (entrances, *, name = "the server".to_owned(), slots = 1024, grant_bytes = 16 << 20, tensors_max = 65_536, peers_max = 4096, liveness = 5.0, handshake = 5.0, note = Vec::new(), shared_memory = true))]
    fn new(
        py: Python<'_>,
        entrances: Vec<Entered<'_>>,
        name: String,
        slots: u32,
        grant_bytes: u64,
        tensors_max: u32,
        peers_max: u32,
        liveness: f64,
        handshake: f64,
        note: Vec<u8>,
        shared_memory: bool,
    ) -> PyResult<Self> {
        let entrances: PyResult<Vec<_>> = entrances
            .into_iter()
            .map(|entered| entrance(py, entered))
            .collect();
        let options = Options {
            limits: ShardLimits {
                slots,
                grant_bytes,
                tensors_max,
                peers_max,
                liveness: seconds(liveness)?,
            },
            handshake: seconds(handshake)?,
            note,
            name: name.clone(),
            shared_memory,
        };
        let server = Server::start(entrances?, options).map_err(error::stream)?;
        Ok(Self { server, name })
    }

    /// Which run of a server this is.
    #[getter]
    fn incarnation(&self) -> u64 {
        self.server.incarnation()
    }

    /// Serve a buffer under a name; its id and generation. What had the name is replaced.
    fn publish(
        &self,
        py: Python<'_>,
        name: String,
        dtype: String,
        kind: &str,
        item_bytes: u32,
        shape: Vec<u64>,
        memory: &Bound<'_, PyAny>,
    ) -> PyResult<(u32, u32)> {
        let description = Description {
            dtype: dtype_of(dtype, kind, item_bytes),
            shape,
        };
        let mut exports = Exports::with_room(1);
        let span = memory_of(&mut exports, memory, Want::WritableBytes)?;
        let keeper = KeptExports::new(exports);
        // Of an arena's block other processes are told where it lies.
        let block = block_under(memory).and_then(|buffer| buffer.get().lease());
        let published = py.detach(|| {
            let memory = (span, block.as_ref());
            self.server.publish(name, description, memory, keeper)
        });
        kept::end_exports(py);
        let key = published.map_err(error::stream)?;
        let key = key.map_err(|refused| self.refused(&refused))?;
        Ok((key.id, key.generation))
    }

    /// Serve a name no more; its buffer is let go once no answer reads it.
    fn drop(&self, py: Python<'_>, name: String) -> PyResult<()> {
        let dropped = py.detach(|| self.server.run(move |shard| shard.drop_tensor(&name)));
        kept::end_exports(py);
        let dropped = dropped.map_err(error::stream)?;
        dropped.map_err(|refused| self.refused(&refused))
    }

    /// Set rows or add to them, between two answers; the version that this makes.
    #[pyo3(signature = (key, rows, count, values, *, add = false))]
    fn write(
        &self,
        py: Python<'_>,
        key: (u32, u32),
        rows: &Bound<'_, PyAny>,
        count: &Bound<'_, PyAny>,
        values: &Bound<'_, PyAny>,
        add: bool,
    ) -> PyResult<u64> {
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
        let written = written.map_err(error::stream)?;
        written.map_err(|refused| self.refused(&refused))
    }

    /// What was counted.
    fn metrics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counted = self.server.counters();
        let metrics = PyDict::new(py);
        metrics.set_item("peers", counted.peers)?;
        metrics.set_item("accepted", counted.accepted)?;
        metrics.set_item("refused", counted.refused)?;
        metrics.set_item("late", counted.late)?;
        metrics.set_item("turned_away", counted.turned_away)?;
        metrics.set_item("broken", counted.broken)?;
        metrics.set_item("received_bytes", counted.received_bytes)?;
        metrics.set_item("sent_bytes", counted.sent_bytes)?;
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
