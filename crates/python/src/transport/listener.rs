//! Connecting over a Unix socket, for Python.
#![allow(clippy::needless_pass_by_value)] // PyO3 passes arguments by value

use std::os::fd::{IntoRawFd, RawFd};
use std::path::PathBuf;

use forebay_base::time::left;
use forebay_transport::stream::unix::{self, Listener as UnixListener};
use pyo3::prelude::*;

use super::conversion::to_deadline;
use super::wait::retry;
use crate::error::{Result, Within};

/// A listening Unix socket.
#[pyclass(frozen, module = "forebay._core")]
pub struct Listener {
    core: std::sync::Mutex<Option<UnixListener>>,
}

#[pymethods]
impl Listener {
    /// Listen at `path`; the file is private and replaced if it is stale.
    #[new]
    fn new(path: PathBuf) -> Result<Self> {
        let listener = UnixListener::bind(&path)?;
        Ok(Self {
            core: std::sync::Mutex::new(Some(listener)),
        })
    }

    /// Take a waiting connection's descriptor, which is the caller's to close; `None` if none.
    fn accept(&self) -> Result<Option<RawFd>> {
        let socket = self.with(UnixListener::accept).unwrap_or(Ok(None))?;
        Ok(socket.map(IntoRawFd::into_raw_fd))
    }

    /// The socket's descriptor, -1 once closed.
    fn fileno(&self) -> RawFd {
        self.with(UnixListener::descriptor).unwrap_or(-1)
    }

    /// Stop listening and remove the file. Idempotent.
    fn close(&self) {
        drop(
            self.core
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .take(),
        );
    }
}

impl Listener {
    fn with<R>(&self, act: impl FnOnce(&UnixListener) -> R) -> Option<R> {
        self.core
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .as_ref()
            .map(act)
    }
}

/// In a forked child: let go of every listening socket, and its lock, that the parent has in Rust.
#[pyfunction]
pub fn stop_listening() {
    forebay_transport::stream::listed::release_inherited();
}

/// Connect to a Unix socket; returns a descriptor, which is the caller's to close.
///
/// While its queue is full it waits, at most `timeout` seconds; 0 does not wait at all.
#[pyfunction]
#[pyo3(signature = (path, timeout = None))]
pub fn connect_unix(py: Python<'_>, path: PathBuf, timeout: Option<f64>) -> Result<RawFd> {
    let deadline = to_deadline(timeout);
    let socket = retry(py, || unix::connect(&path, left(deadline))).within(timeout)?;
    Ok(socket.into_raw_fd())
}
