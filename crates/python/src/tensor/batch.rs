//! `forebay._core.TensorBatch`: pulls and pushes that were begun together.
#![allow(clippy::doc_markdown)] // the comments are Python docstrings
use std::sync::Arc;
use std::time::Duration;

use forebay_base::signals;
use forebay_tensor::stream::{Batch, Deadline, Link, OperationState, StreamError, Until};
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::handle;
use crate::error::{Error, Result, busy, closed, config};
use crate::sys::kept;
use crate::sys::kept::KeptExports;

pub(super) type CoreLink = Arc<Link<KeptExports>>;
pub(super) type CoreBatch = Arc<Batch<KeptExports>>;

/// Operations of one link, and the buffers that they are on.
#[pyclass(frozen, weakref, module = "forebay._core")]
pub(crate) struct TensorBatch {
    /// None once dropped.
    held: Option<(CoreLink, CoreBatch)>,
}

impl TensorBatch {
    pub(super) fn new(link: CoreLink, batch: CoreBatch) -> Self {
        Self {
            held: Some((link, batch)),
        }
    }

    fn held(&self) -> Result<(&CoreLink, &CoreBatch)> {
        let held = self.held.as_ref().map(|(link, batch)| (link, batch));
        held.ok_or_else(|| closed("the batch is gone"))
    }

    fn news(&self) -> Result<Vec<u32>> {
        let mut news = Vec::new();
        self.held()?.1.take_arrived(&mut news);
        Ok(news)
    }
}

#[pymethods]
impl TensorBatch {
    fn __len__(&self) -> Result<usize> {
        Ok(self.held()?.1.len())
    }

    /// Whether everything of it has ended.
    #[getter]
    fn done(&self) -> Result<bool> {
        Ok(self.held()?.1.is_done())
    }

    /// Wait for all, or with `each` until something has ended that was not reported yet; the indices of that.
    ///
    /// Raises DeadlineError after `timeout` seconds; the batch goes on. One thread at a time waits for a batch.
    #[pyo3(signature = (timeout = None, *, each = false))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>, each: bool) -> Result<Vec<u32>> {
        let (link, batch) = self.held()?;
        let until = if each { Until::More } else { Until::All };
        wait(py, link, batch, until, allowed(timeout))?;
        if each { self.news() } else { Ok(Vec::new()) }
    }

    /// The indices of what has ended and was not reported yet, in the order of the ends.
    fn arrived(&self) -> Result<Vec<u32>> {
        self.news()
    }

    /// Why an operation that has ended failed, if it did.
    fn failure(&self, index: usize) -> Result<Option<PyErr>> {
        let (_, batch) = self.held()?;
        check(batch, index)?;
        Ok(match batch.state_of(index) {
            OperationState::Failed(refused) => Some(Error::from(refused).into()),
            OperationState::Pending | OperationState::Done(_) => None,
        })
    }

    /// The first operation that failed, by its index.
    fn first_failure(&self) -> Result<Option<(usize, PyErr)>> {
        let first = self.held()?.1.first_failure();
        Ok(first.map(|(index, refused)| (index, Error::from(refused).into())))
    }

    /// The tensor's version with which an operation ended well; otherwise 0.
    fn version(&self, index: usize) -> Result<u64> {
        let (_, batch) = self.held()?;
        check(batch, index)?;
        Ok(match batch.state_of(index) {
            OperationState::Done(version) => version,
            OperationState::Pending | OperationState::Failed(_) => 0,
        })
    }

    /// What the names of a look-up mean: a handle each, or a list of the nearest names. To be asked for once.
    fn meanings<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyList>> {
        meanings(py, self.held()?.1)
    }

    /// Give up what has not ended; it ends with `ClosedError`. Idempotent.
    ///
    /// Memory where bytes may still come is kept until they have, or the link is closed.
    fn cancel(&self, py: Python<'_>) -> Result<()> {
        let (link, batch) = self.held()?;
        py.detach(|| link.cancel(batch));
        kept::end_exports(py);
        Ok(())
    }
}

impl Drop for TensorBatch {
    fn drop(&mut self) {
        // Dropped by the interpreter, so that the exports can end at once where nothing is outstanding.
        if let Some((_, batch)) = self.held.take() {
            Python::attach(|py| let_go(py, batch));
        }
    }
}

/// The caller needs the batch no more; what the engine still holds of it is in quarantine from here on.
pub(super) fn let_go(py: Python<'_>, batch: CoreBatch) {
    if Arc::strong_count(&batch) > 1
        && let Some(exports) = batch.memory.get()
    {
        exports.quarantine(py);
    }
    kept::drop_attached(py, batch);
}

fn check(batch: &CoreBatch, index: usize) -> Result<()> {
    if index < batch.len() {
        return Ok(());
    }
    Err(config(format!(
        "index {index} of a batch of {}",
        batch.len()
    )))
}

/// What names mean, or why that is not known.
pub(super) fn meanings<'py>(py: Python<'py>, batch: &CoreBatch) -> Result<Bound<'py, PyList>> {
    if let Some((_, refused)) = batch.first_failure() {
        return Err(refused.into());
    }
    handle::meanings(py, batch)?.ok_or_else(|| busy("the names are not known yet, or were taken"))
}

/// Seconds of Python's; none where there is no limit.
pub(super) fn allowed(timeout: Option<f64>) -> Option<Duration> {
    let timeout = timeout.filter(|timeout| timeout.is_finite())?;
    Some(Duration::try_from_secs_f64(timeout).unwrap_or(Duration::ZERO))
}

/// Wait without the GIL; a signal handler that raises ends it.
pub(super) fn wait(
    py: Python<'_>,
    link: &CoreLink,
    batch: &CoreBatch,
    until: Until,
    allowed: Option<Duration>,
) -> Result<()> {
    let deadline = allowed.and_then(Deadline::after);
    signals::watch();
    loop {
        match py.detach(|| link.wait(batch, until, deadline)) {
            Ok(()) => return Ok(()),
            Err(StreamError::Interrupted) => py.check_signals()?,
            Err(refused) => return Err(refused.into()),
        }
    }
}
