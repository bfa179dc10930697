//! Copies of a store, for `forebay backup`.
#![allow(clippy::needless_pass_by_value)] // PyO3 passes arguments by value

use std::path::PathBuf;

use forebay_executor::id::RequestId;
use forebay_executor::logs;
use forebay_executor::store::{self, CopyLimits, DatabaseCopy};
use pyo3::prelude::*;

use crate::error::{Result, internal};

/// The database of a backup.
#[pyclass(name = "StoreBackup", module = "forebay._core", frozen)]
pub struct PyStoreBackup(DatabaseCopy);

#[pymethods]
impl PyStoreBackup {
    #[new]
    fn new(py: Python<'_>, directory: PathBuf) -> Result<Self> {
        let copy = py.detach(|| DatabaseCopy::open(&directory));
        Ok(copy.map(Self)?)
    }

    #[staticmethod]
    fn copy(py: Python<'_>, directory: PathBuf, target: PathBuf, told: Py<PyAny>) -> Result<Self> {
        let mut raised = None;
        let mut tell = |done: u64, all: u64| {
            raised = Python::attach(|py| told.call1(py, (done, all)).err());
            raised.is_none()
        };
        let limits = CopyLimits::default();
        let copied = py.detach(|| store::copy_database(&directory, &target, &limits, &mut tell));
        match (raised, copied?) {
            (None, Some(copy)) => Ok(Self(copy)),
            (Some(error), _) => Err(error.into()),
            (None, None) => Err(internal("a copy ended that nobody has stopped")),
        }
    }

    fn contents(&self, py: Python<'_>) -> Result<(i64, u64, u64, Option<u64>)> {
        let found = py.detach(|| self.0.contents())?;
        let newest = found.newest.map(|id| id.0);
        Ok((found.version, found.requests, found.unfinished, newest))
    }

    fn results(&self, py: Python<'_>, behind: u64, count_max: usize) -> Result<Vec<(u64, u64)>> {
        let found = py.detach(|| self.0.results(RequestId(behind), count_max))?;
        Ok(found.into_iter().map(|(id, bytes)| (id.0, bytes)).collect())
    }

    fn has(&self, id: u64) -> Result<bool> {
        Ok(self.0.has(RequestId(id))?)
    }

    fn forget(&self, py: Python<'_>, ids: Vec<u64>) -> Result<()> {
        let ids: Vec<_> = ids.into_iter().map(RequestId).collect();
        Ok(py.detach(|| self.0.forget(&ids))?)
    }

    fn faults(&self, py: Python<'_>) -> Result<Vec<String>> {
        Ok(py.detach(|| self.0.faults())?)
    }
}

/// Copy a log, with its holes; returns the length of the copy.
#[pyfunction]
pub fn copy_log(py: Python<'_>, source: PathBuf, target: PathBuf) -> Result<u64> {
    Ok(py.detach(|| logs::copy_log(&source, &target))?)
}

/// Have all that was written to the file system of a folder on the disk.
#[pyfunction]
pub fn sync_file_system(py: Python<'_>, folder: PathBuf) -> Result<()> {
    Ok(py.detach(|| store::sync_file_system(&folder))?)
}
