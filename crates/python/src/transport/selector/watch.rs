//! What the selector keeps of Python beside a descriptor, and how a file object names one.

use std::os::fd::RawFd;

use forebay_transport::drive::selector::{Interest, Selector};
use pyo3::exceptions::PyValueError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::error::{Result, config};
use crate::transport::messages::MessageConnection;

/// Whom an event concerns.
pub enum Watch {
    /// A `SelectorKey`, and the file object in it, by which a closed one is found.
    Key { key: Py<PyAny>, fileobj: Py<PyAny> },
    /// A callback.
    Direct(Py<PyAny>),
    /// A connection, called without a detour.
    Connection(Py<MessageConnection>),
}

impl Watch {
    pub fn key(key: &Bound<'_, PyAny>, fileobj: &Bound<'_, PyAny>) -> Self {
        Self::Key {
            key: key.clone().unbind(),
            fileobj: fileobj.clone().unbind(),
        }
    }

    pub fn direct(callback: &Bound<'_, PyAny>) -> Self {
        match callback.cast::<MessageConnection>() {
            Ok(connection) => Self::Connection(connection.clone().unbind()),
            Err(_) => Self::Direct(callback.clone().unbind()),
        }
    }

    pub fn as_key<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        match self {
            Self::Key { key, .. } => Some(key.bind(py).clone()),
            Self::Direct(_) | Self::Connection(_) => None,
        }
    }

    pub fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Self::Key { key, fileobj } => {
                visit.call(key)?;
                visit.call(fileobj)
            }
            Self::Direct(callback) => visit.call(callback),
            Self::Connection(connection) => visit.call(connection),
        }
    }
}

/// The descriptor of a registered file object that cannot tell it any more.
pub fn number_of(core: &Selector<Watch>, fileobj: &Bound<'_, PyAny>) -> Option<RawFd> {
    let mut entries = core.entries();
    let entry = entries.find(
        |entry| matches!(&entry.payload, Watch::Key { fileobj: kept, .. } if kept.is(fileobj)),
    );
    entry.map(|entry| entry.descriptor)
}

/// A descriptor as `selectors` reads it: an integer, or something with `fileno()`.
pub fn number(fileobj: &Bound<'_, PyAny>) -> PyResult<RawFd> {
    let py = fileobj.py();
    let fd = if let Ok(fd) = fileobj.extract::<RawFd>() {
        fd
    } else {
        let asked = fileobj.call_method0("fileno");
        match asked.and_then(|fd| fd.extract::<RawFd>()) {
            Ok(fd) => fd,
            Err(error) => return Err(invalid(py, fileobj, error)),
        }
    };
    if fd < 0 {
        return Err(PyValueError::new_err(format!(
            "Invalid file descriptor: {fd}"
        )));
    }
    Ok(fd)
}

/// `ValueError` for what is no file object; what `fileno` raised beyond that stays as it is.
fn invalid(py: Python<'_>, fileobj: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    use pyo3::exceptions::{PyAttributeError, PyOverflowError, PyTypeError};
    let expected = error.is_instance_of::<PyAttributeError>(py)
        || error.is_instance_of::<PyTypeError>(py)
        || error.is_instance_of::<PyOverflowError>(py)
        || error.is_instance_of::<PyValueError>(py);
    if !expected {
        return error;
    }
    match fileobj.repr() {
        Ok(text) => PyValueError::new_err(format!("Invalid file object: {text}")),
        Err(error) => error,
    }
}

/// `EVENT_READ`, `EVENT_WRITE` or both, as `selectors` checks it.
pub fn interest(events: &Bound<'_, PyAny>) -> PyResult<Interest> {
    let bits = events.extract::<i64>()?;
    u8::try_from(bits)
        .ok()
        .and_then(Interest::from_bits)
        .filter(|wanted| *wanted != Interest::NONE)
        .ok_or_else(|| PyValueError::new_err(format!("Invalid events: {bits}")))
}

/// The events of the direct path: none is allowed too.
pub fn direct_interest(events: u8) -> Result<Interest> {
    Interest::from_bits(events).ok_or_else(|| {
        config(format!(
            "events is {events}; it is the sum of 1 (readable) and 2 (writable), or 0"
        ))
    })
}
