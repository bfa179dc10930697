//! What `recv` and `send` of a message connection return: coroutines without a frame of their own.
//!
//! A result that is there costs no sleep and no turn of the loop. Nothing is taken from the connection before the
//! task that wants it runs, so that a cancelled `recv` loses nothing.
#![allow(clippy::needless_pass_by_value)] // PyO3 passes arguments by value

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyStopIteration;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use super::MessageConnection;
use crate::transport::sleeper::Sleeper;

/// What a coroutine waits for.
#[derive(Clone, Copy)]
pub enum Wanted {
    /// The next message, or with a number a list of those that are there, at most so many.
    Message(Option<usize>),
    /// That the kernel has the stream up to here; whether buffers of the caller are read until then.
    Sent { end: u64, lent: bool },
    /// That the handshake is over.
    Open,
    /// Nothing: it is done.
    Nothing,
}

/// A coroutine over one connection.
#[pyclass(frozen, module = "forebay._core")]
pub struct Waiting {
    connection: Option<Py<MessageConnection>>,
    wanted: Wanted,
    /// What its task sleeps on.
    sleeper: Mutex<Option<Py<Sleeper>>>,
}

impl Waiting {
    pub fn new(connection: Option<Py<MessageConnection>>, wanted: Wanted) -> Self {
        Self {
            connection,
            wanted,
            sleeper: Mutex::new(None),
        }
    }

    fn sleep(&self, connection: &Bound<'_, MessageConnection>) -> PyResult<Py<Sleeper>> {
        let (py, this) = (connection.py(), connection.get());
        let sleeper = this.sleep_on(py, self.wanted)?;
        if matches!(self.wanted, Wanted::Message(_)) && this.holds_received() {
            MessageConnection::come_back(connection)?; // the socket will not become readable for it
        }
        *self.sleeper() = Some(sleeper.clone_ref(py));
        Ok(sleeper)
    }

    fn sleeper(&self) -> MutexGuard<'_, Option<Py<Sleeper>>> {
        self.sleeper.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its task was cancelled, or it was given up.
    fn leave(&self) {
        let sleeper = self.sleeper().take();
        if let Some(connection) = &self.connection {
            connection.get().leave(self.wanted, sleeper);
        }
    }
}

#[pymethods]
impl Waiting {
    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// A result ends the iteration; else what to sleep on.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<Sleeper>>> {
        let Some(connection) = &self.connection else {
            return Ok(None);
        };
        let Some(result) = connection.get().look(py, self.wanted)? else {
            return self.sleep(connection.bind(py)).map(Some);
        };
        if !matches!(self.wanted, Wanted::Message(_)) {
            return Ok(None);
        }
        if let Err(error) = MessageConnection::resume(connection.bind(py)) {
            PyErr::from(error).write_unraisable(py, Some(connection.bind(py))); // the message is taken, and not lost for it
        }
        // A list goes as it is: the interpreter makes an exception only of what could be taken for its arguments.
        Err(PyStopIteration::new_err(result))
    }

    fn send(&self, py: Python<'_>, _value: Py<PyAny>) -> PyResult<Py<Sleeper>> {
        let sleeper = self.__next__(py)?;
        sleeper.ok_or_else(|| PyStopIteration::new_err(()))
    }

    #[pyo3(signature = (kind, value = None, _traceback = None))]
    fn throw(
        &self,
        kind: Bound<'_, PyAny>,
        value: Option<Bound<'_, PyAny>>,
        _traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        self.leave();
        let error = match value {
            Some(value) if !value.is_none() => value,
            _ if kind.is_callable() => kind.call0()?,
            _ => kind,
        };
        Err(PyErr::from_value(error))
    }

    fn close(&self) {
        self.leave();
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.connection)?;
        match self.sleeper.try_lock().as_deref() {
            Ok(sleeper) => visit.call(sleeper),
            Err(_) => Ok(()),
        }
    }

    fn __clear__(&self) {
        let sleeper = self.sleeper().take();
        drop(sleeper); // without the lock
    }
}
