//! Waiting without the GIL.

use forebay_transport::Error;
use pyo3::prelude::*;

use crate::error::transport_error;

/// Why a wait ended without its result.
pub enum Stop {
    Error(Error),
    /// A signal handler raised.
    Signal(PyErr),
}

pub fn raise(py: Python<'_>, stop: Stop, timeout: Option<f64>) -> PyErr {
    match stop {
        Stop::Signal(error) => error,
        Stop::Error(error) => transport_error(py, &error, timeout),
    }
}

/// Wait without the GIL; run signal handlers when interrupted, then wait on.
pub fn retry<R: Send>(
    py: Python<'_>,
    mut wait: impl FnMut() -> Result<R, Error> + Send,
) -> Result<R, Stop> {
    loop {
        match py.detach(&mut wait) {
            Err(Error::Interrupted) => py.check_signals().map_err(Stop::Signal)?,
            other => return other.map_err(Stop::Error),
        }
    }
}
