//! Streams of results for Python: the ends of one stream.
#![allow(clippy::needless_pass_by_value)] // PyO3 passes arguments by value
#![allow(clippy::too_many_arguments)] // they are Python's

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use forebay_transport::calls::{LastLook, Next, Outgoing, StreamReadiness, Taker};
use forebay_transport::limit;
use forebay_transport::wire::Codec;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use super::connection::Connection;
use super::conversion::{Segments, outcome_to_python, to_codec, to_duration, to_head, to_payloads};
use super::lend;
use super::wait::{Stop, raise, retry};
use crate::error::transport_error;

/// The calling end of one stream; made by asking for it.
///
/// One thread or task at a time reads it.
#[pyclass(frozen, module = "forebay._core")]
pub struct ItemReader {
    connection: Py<Connection>,
    #[pyo3(get)]
    id: u64,
    codec: Codec,
    timeout: Option<f64>,
    deadline: Option<Instant>,
}

#[pymethods]
impl ItemReader {
    /// Send the call without waiting, unless the outbox is full and it is a thread's.
    #[new]
    fn new<'py>(
        py: Python<'py>,
        connection: Bound<'py, Connection>,
        codec: u8,
        head: &Bound<'py, PyBytes>,
        segments: Segments<'py>,
        timeout: Option<f64>,
        generation: u32,
        credit: u32,
        queue: bool,
    ) -> PyResult<Self> {
        let allowed = to_duration(timeout);
        let deadline = allowed.and_then(|allowed| Instant::now().checked_add(allowed));
        let core = &connection.get().core;
        if !queue && core.outbox_bytes() > limit::OUTBOX_BYTES_HIGH {
            retry(py, || core.wait_for_room(deadline)).map_err(|e| raise(py, e, timeout))?;
        }
        let mut call = Outgoing {
            codec: to_codec(codec),
            one_way: false,
            remaining: allowed,
            generation,
            head: to_head(head),
            segments: to_payloads(segments)?,
        };
        let taker = if queue { Taker::Queue } else { Taker::Thread };
        let segments = std::mem::take(&mut call.segments);
        let start = |segments| {
            call.segments = segments;
            core.start_stream(call, taker, credit)
        };
        let id = lend::send(py, segments, start).map_err(|e| transport_error(py, &e, timeout))?;
        Ok(Self {
            connection: connection.unbind(),
            id,
            codec: to_codec(codec),
            timeout,
            deadline,
        })
    }

    /// Wait for what comes next, see `poll`. Past the deadline the stream is left.
    fn wait<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let core = &self.connection.get().core;
        let late = self.deadline.is_some_and(|at| at <= Instant::now());
        let mut next = Next::Nothing;
        if !late {
            next = core.poll_items(self.id).map_err(|e| self.error(py, &e))?;
        }
        if matches!(next, Next::Nothing) {
            next = match retry(py, || core.wait_items(self.id, self.deadline)) {
                Ok(next) => next,
                Err(Stop::Signal(error)) => {
                    self.leave(py)?;
                    return Err(error);
                }
                Err(stop) => return Err(raise(py, stop, self.timeout)),
            };
        }
        self.to_python(py, next)
    }

    /// What is there: items as outcomes of calls, the last one first, or an empty list.
    ///
    /// At the end `None`, or an outcome that is a failure; what broke is raised.
    fn poll<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let core = &self.connection.get().core;
        let next = core.poll_items(self.id).map_err(|e| self.error(py, &e))?;
        self.to_python(py, next)
    }

    /// Give the stream up; what still comes of it is dropped.
    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        let core = &self.connection.get().core;
        core.cancel_stream(self.id).map_err(|e| self.error(py, &e))
    }
}

impl ItemReader {
    fn error(&self, py: Python<'_>, error: &forebay_transport::Error) -> PyErr {
        transport_error(py, error, self.timeout)
    }

    fn to_python<'py>(&self, py: Python<'py>, next: Next) -> PyResult<Option<Bound<'py, PyAny>>> {
        use forebay_transport::calls::Outcome;
        let core = &self.connection.get().core;
        let convert = |outcome| outcome_to_python(py, core, self.codec, outcome, self.timeout);
        match next {
            Next::Nothing => Ok(Some(PyList::empty(py).into_any())),
            Next::Items(items) => {
                let list = PyList::empty(py);
                for item in items.into_iter().rev() {
                    list.append(convert(Outcome::Reply(item))?.into_result()?)?;
                }
                Ok(Some(list.into_any()))
            }
            Next::End(None | Some(Outcome::Reply(_))) => Ok(None),
            Next::End(Some(outcome)) => convert(outcome)?.into_result().map(Some),
        }
    }
}

/// The serving end of one running stream. What its methods return: 0 wait, 1 go on, 2 its caller has left, 3 it is late.
#[pyclass(frozen, module = "forebay._core")]
pub struct ItemWriter {
    connection: Py<Connection>,
    #[pyo3(get)]
    id: u64,
    codec: Codec,
    look: Mutex<LastLook>,
}

#[pymethods]
impl ItemWriter {
    #[new]
    fn new(connection: Py<Connection>, id: u64, codec: u8) -> Self {
        Self {
            connection,
            id,
            codec: to_codec(codec),
            look: Mutex::new(LastLook::now()),
        }
    }

    /// Send an item, without waiting.
    fn send<'py>(
        &self,
        py: Python<'py>,
        head: &Bound<'py, PyBytes>,
        segments: Segments<'py>,
    ) -> PyResult<u8> {
        self.put(py, head, segments, false)
    }

    /// The same, but a short item waits for the next flush.
    fn hold<'py>(
        &self,
        py: Python<'py>,
        head: &Bound<'py, PyBytes>,
        segments: Segments<'py>,
    ) -> PyResult<u8> {
        self.put(py, head, segments, true)
    }

    fn standing(&self, py: Python<'_>) -> PyResult<u8> {
        let core = &self.connection.get().core;
        let standing = core.readiness(self.id);
        Ok(standing.map_err(|e| transport_error(py, &e, None))? as u8)
    }
}

impl ItemWriter {
    fn put<'py>(
        &self,
        py: Python<'py>,
        head: &Bound<'py, PyBytes>,
        segments: Segments<'py>,
        hold: bool,
    ) -> PyResult<u8> {
        let (core, head, segments) = (
            &self.connection.get().core,
            to_head(head),
            to_payloads(segments)?,
        );
        // Not locked while it sends: giving a buffer back may run Python, and let another thread have the GIL.
        let mut look = *self.look();
        let standing: StreamReadiness = core
            .send_item(self.id, self.codec, head, segments, hold, &mut look)
            .map_err(|e| transport_error(py, &e, None))?;
        *self.look() = look;
        Ok(standing as u8)
    }

    fn look(&self) -> MutexGuard<'_, LastLook> {
        self.look.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Add the classes to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<ItemReader>()?;
    module.add_class::<ItemWriter>()
}
