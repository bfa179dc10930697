//! `forebay._core.TensorPort`: an event loop's way to links, or that of the thread that completes futures.
use std::os::fd::RawFd;

use forebay_base::signals;
use forebay_tensor::stream::{Port, StreamError};
use pyo3::prelude::*;

use crate::error::Result;
use crate::sys::kept;
use crate::sys::kept::KeptExports;

/// Drives links, and reports the progress of batches: one wake-up for many.
#[pyclass(frozen, weakref, module = "forebay._core")]
pub(crate) struct TensorPort {
    port: Port<KeptExports>,
}

impl TensorPort {
    pub(super) fn core(&self) -> &Port<KeptExports> {
        &self.port
    }
}

#[pymethods]
impl TensorPort {
    #[new]
    fn new() -> Result<Self> {
        let port = Port::new()?;
        Ok(Self { port })
    }

    /// The descriptor that is readable when `turn` is due. The port owns it.
    fn fileno(&self) -> RawFd {
        self.port.fileno()
    }

    /// Do what can be done without waiting; return the tickets of batches that have news.
    fn turn(&self, py: Python<'_>) -> Result<Vec<u64>> {
        let mut tickets = Vec::new();
        let turned = py.detach(|| self.port.turn(&mut tickets));
        kept::end_exports(py);
        match turned {
            Ok(()) | Err(StreamError::Interrupted | StreamError::Closed { .. }) => Ok(tickets),
            Err(refused) => Err(refused.into()),
        }
    }

    /// The same for a thread: sleep without the GIL until there is news; `None` once the port is closed.
    fn wait(&self, py: Python<'_>) -> Result<Option<Vec<u64>>> {
        let mut tickets = Vec::new();
        signals::watch();
        loop {
            match py.detach(|| self.port.wait(&mut tickets)) {
                // What was given up has no ticket: its late answer lets go of memory all the same.
                Ok(()) if tickets.is_empty() => kept::end_exports(py),
                Ok(()) => break,
                Err(StreamError::Closed { .. }) => return Ok(None),
                Err(StreamError::Interrupted) => py.check_signals()?,
                Err(refused) => return Err(refused.into()),
            }
        }
        kept::end_exports(py);
        Ok(Some(tickets))
    }

    /// Give the links back, and wake `wait`. Idempotent.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.port.close());
    }
}
