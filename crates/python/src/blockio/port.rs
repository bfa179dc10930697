//! An event loop's way to a queue, or that of the thread that completes futures.
use std::os::fd::RawFd;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use forebay_blockio::{Batch, Error, Finished, Keeper, Port};
use pyo3::prelude::*;

use super::batch::BlockBatch;
use super::request::Request;
use crate::error::{self, Result};
use crate::sys::kept;

/// Takes batches, and reports which have ended: one wake-up for many.
#[pyclass(frozen, weakref, module = "forebay._core")]
pub(crate) struct BlockPort {
    /// None once closed. Locked without the GIL, or for moments.
    port: Mutex<Option<Port>>,
}

impl BlockPort {
    pub(super) fn new(port: Port) -> Self {
        Self {
            port: Mutex::new(Some(port)),
        }
    }

    /// Act on the port, without the GIL.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&mut Port) -> Result<T, Error> + Send,
    ) -> Result<T> {
        Ok(py.detach(|| {
            let mut port = self.port.lock().unwrap_or_else(PoisonError::into_inner);
            act(port.as_mut().ok_or(Error::Closed)?)
        })?)
    }

    /// Make a batch of a request and submit it as `ticket`.
    pub(super) fn start<'py>(
        &self,
        py: Python<'py>,
        ticket: u64,
        request: &Request<'_, 'py>,
        memory: Option<&Bound<'py, PyAny>>,
        return_errors: bool,
    ) -> Result<BlockBatch> {
        let (mut batch, operations, keeper) = BlockBatch::make(py, request, memory, return_errors)?;
        if self.submit(py, operations, keeper, ticket)? {
            batch.end_at_once();
        }
        Ok(batch)
    }

    /// Submit a batch; whether it is over already.
    fn submit(&self, py: Python<'_>, batch: Batch, keeper: Keeper, ticket: u64) -> Result<bool> {
        let back = self.with(py, |port| port.submit(batch, keeper, ticket))?;
        let over = back.is_some();
        kept::drop_attached(py, back);
        Ok(over)
    }
}

/// The tickets of batches that are over; their buffers are let go.
fn tickets(py: Python<'_>, finished: Vec<Finished>) -> Vec<u64> {
    let tickets = finished.iter().map(|one| one.ticket).collect();
    kept::drop_attached(py, finished);
    tickets
}

#[pymethods]
impl BlockPort {
    /// The descriptor that is readable when `turn` is due. The port owns it.
    fn fileno(&self) -> Result<RawFd> {
        let port = self.port.lock().unwrap_or_else(PoisonError::into_inner);
        match &*port {
            Some(port) => Ok(port.fileno()),
            None => Err(error::closed("the port is closed")),
        }
    }

    /// Do what can be done without waiting; return the tickets of the batches that are over.
    fn turn(&self, py: Python<'_>) -> Result<Vec<u64>> {
        let mut finished = Vec::new();
        let turned = self.with(py, |port| port.turn(&mut finished));
        let tickets = tickets(py, finished);
        turned.map(|()| tickets)
    }

    /// Stop waiting for the batch; its buffers are kept until the kernel has let go of them.
    fn detach(&self, py: Python<'_>, ticket: u64, batch: &BlockBatch) -> Result<()> {
        batch.give_up(py);
        self.with(py, |port| {
            port.detach(ticket);
            Ok(())
        })
    }

    /// Cancel what is in flight and wait for it; return the operations that are left, and the tickets of what is over.
    fn drain(&self, py: Python<'_>, timeout: f64) -> Result<(u64, Vec<u64>)> {
        let allowed = Duration::try_from_secs_f64(timeout).unwrap_or_default();
        let mut finished = Vec::new();
        let left = self.with(py, |port| Ok(port.drain(allowed, &mut finished)));
        let tickets = tickets(py, finished);
        left.map(|left| (left, tickets))
    }

    /// Give up the descriptor and what carries operations out; waits for what is in flight. Idempotent.
    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            let port = self
                .port
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            drop(port);
        });
    }
}
