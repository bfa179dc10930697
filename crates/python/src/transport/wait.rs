//! Waiting without the GIL.

use forebay_base::signals;
use forebay_transport::Error;
use pyo3::prelude::*;

use crate::error::{self, Result, Within};

/// Why a wait ended without its result.
pub enum Stop {
    Error(Error),
    /// A signal handler raised.
    Signal(PyErr),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<PyErr> for Stop {
    fn from(raised: PyErr) -> Self {
        Self::Signal(raised)
    }
}

impl Stop {
    /// The exception, where the caller had allowed `timeout`.
    pub fn into_error(self, timeout: Option<f64>) -> error::Error {
        match self {
            Self::Signal(raised) => raised.into(),
            Self::Error(error) => error::transport(&error, timeout),
        }
    }
}

impl<T> Within<T> for Result<T, Stop> {
    fn within(self, timeout: Option<f64>) -> Result<T> {
        self.map_err(|stop| stop.into_error(timeout))
    }
}

/// Wait without the GIL; run signal handlers when interrupted, then wait on.
pub fn retry<R: Send>(
    py: Python<'_>,
    mut wait: impl FnMut() -> Result<R, Error> + Send,
) -> Result<R, Stop> {
    signals::watch();
    loop {
        match py.detach(&mut wait) {
            Err(Error::Interrupted) => py.check_signals()?,
            other => return Ok(other?),
        }
    }
}
