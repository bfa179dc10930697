//! Streams of results for Python: the ends of one stream.
#![allow(clippy::needless_pass_by_value)] // PyO3 passes arguments by value
#![allow(clippy::too_many_arguments)] // they are Python's

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use forebay_transport::calls::{LastLook, Next, StreamReadiness};
use forebay_transport::wire::Codec;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use super::connection::Connection;
use super::conversion::{
    Segments, outcome_to_python, to_codec, to_deadline, to_head, to_outgoing, to_payloads,
    to_taker, wait_for_room,
};
use super::lend;
use super::wait::{Stop, retry};
use crate::error::{Result, Within};

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
    ) -> Result<Self> {
        let deadline = to_deadline(timeout);
        let core = &connection.get().core;
        if !queue {
            wait_for_room(py, core, deadline).within(timeout)?;
        }
        let call = to_outgoing(codec, head, segments, timeout, generation)?;
        let id = lend::start_stream(py, core, call, to_taker(queue), credit).within(timeout)?;
        Ok(Self {
            connection: connection.unbind(),
            id,
            codec: to_codec(codec),
            timeout,
            deadline,
        })
    }

    /// Wait for what comes next, see `poll`. Past the deadline the stream is left.
    fn wait<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyAny>>> {
        let core = &self.connection.get().core;
        let late = self.deadline.is_some_and(|at| at <= Instant::now());
        let mut next = Next::Nothing;
        if !late {
            next = core.poll_items(self.id).within(self.timeout)?;
        }
        if matches!(next, Next::Nothing) {
            next = match retry(py, || core.wait_items(self.id, self.deadline)) {
                Ok(next) => next,
                Err(Stop::Signal(raised)) => {
                    self.leave()?;
                    return Err(raised.into());
                }
                Err(stop) => return Err(stop.into_error(self.timeout)),
            };
        }
        self.to_python(py, next)
    }

    /// What is there: items as outcomes of calls, the last one first, or an empty list.
    ///
    /// At the end `None`, or an outcome that is a failure; what broke is raised.
    fn poll<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyAny>>> {
        let core = &self.connection.get().core;
        let next = core.poll_items(self.id).within(self.timeout)?;
        self.to_python(py, next)
    }

    /// Give the stream up; what still comes of it is dropped.
    fn leave(&self) -> Result<()> {
        let core = &self.connection.get().core;
        core.cancel_stream(self.id).within(self.timeout)
    }
}

impl ItemReader {
    fn to_python<'py>(&self, py: Python<'py>, next: Next) -> Result<Option<Bound<'py, PyAny>>> {
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
    fn send<'py>(&self, head: &Bound<'py, PyBytes>, segments: Segments<'py>) -> Result<u8> {
        self.put(head, segments, false)
    }

    /// The same, but a short item waits for the next flush.
    fn hold<'py>(&self, head: &Bound<'py, PyBytes>, segments: Segments<'py>) -> Result<u8> {
        self.put(head, segments, true)
    }

    fn readiness(&self) -> Result<u8> {
        let core = &self.connection.get().core;
        let readiness = core.readiness(self.id);
        Ok(readiness? as u8)
    }
}

impl ItemWriter {
    fn put<'py>(
        &self,
        head: &Bound<'py, PyBytes>,
        segments: Segments<'py>,
        hold: bool,
    ) -> Result<u8> {
        let (core, head, segments) = (
            &self.connection.get().core,
            to_head(head),
            to_payloads(segments)?,
        );
        // Not locked while it sends: giving a buffer back may run Python, and let another thread have the GIL.
        let mut look = *self.look();
        let readiness: StreamReadiness =
            core.send_item(self.id, self.codec, head, segments, hold, &mut look)?;
        *self.look() = look;
        Ok(readiness as u8)
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
