//! A batch that was handed over, as the waiting caller sees it.
use std::sync::{Arc, Mutex, PoisonError};

use forebay_blockio::{Batch, BlockFile, Keeper};
use pyo3::prelude::*;

use super::outcome::{failure, quarantine};
use super::request::{Made, Request, Shape};
use crate::error::{self, Result};
use crate::sys::kept::KeptLoan;
use crate::sys::loan::Loan;

/// A batch in flight on a port, or done.
///
/// It and the kernel hold the buffers; they are let go with `result`, or when both are done with them.
#[pyclass(frozen, module = "forebay._core")]
pub(crate) struct BlockBatch {
    /// None once the result was taken.
    loan: Mutex<Option<Arc<Loan>>>,
    results: Option<Py<PyAny>>,
    memory: Option<Py<PyAny>>,
    files: Vec<BlockFile>,
    shape: Shape,
    return_errors: bool,
    /// It was over when it was submitted.
    at_once: bool,
}

impl BlockBatch {
    /// Make the batch of a request, for Python and for the core; the keeper holds its buffers for the kernel.
    pub(super) fn make<'py>(
        py: Python<'py>,
        request: &Request<'_, 'py>,
        memory: Option<&Bound<'py, PyAny>>,
        return_errors: bool,
    ) -> Result<(Self, Batch, Keeper)> {
        let mut loan = Loan::fresh();
        let own = Arc::get_mut(&mut loan).ok_or_else(|| error::busy("the loan is in use"))?;
        let Made {
            batch,
            results,
            shape,
        } = request.make(py, own)?;
        let this = Self {
            loan: Mutex::new(Some(Arc::clone(&loan))),
            results: results.map(Bound::unbind),
            memory: memory.map(|memory| memory.clone().unbind()),
            files: request.files.to_vec(),
            shape,
            return_errors,
            at_once: false,
        };
        Ok((this, batch, Box::new(KeptLoan::new(loan))))
    }

    /// Note that it was over when it was submitted.
    pub(super) fn end_at_once(&mut self) {
        self.at_once = true;
    }

    fn take(&self) -> Option<Arc<Loan>> {
        self.loan
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// Stop waiting: an arena's block is in quarantine until the kernel has let go.
    pub(super) fn give_up(&self, py: Python<'_>) {
        if let Some(loan) = self.take()
            && let Some(memory) = &self.memory
        {
            quarantine(&loan, memory.bind(py));
        }
    }
}

#[pymethods]
impl BlockBatch {
    /// Whether it was over when it was submitted, as reads from the page cache are.
    #[getter]
    fn done(&self) -> bool {
        self.at_once
    }

    /// What came of a batch that is over; once.
    fn result<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        let Some(loan) = self.take() else {
            return Err(error::stale("the result was taken before"));
        };
        if !self.return_errors
            && let Some(failed) = failure(py, &loan, self.shape, &self.files)
        {
            return Err(failed);
        }
        match &self.results {
            Some(results) => Ok(results.bind(py).clone()),
            None => Ok(loan.own_result().into_pyobject(py)?.into_any()),
        }
    }
}
