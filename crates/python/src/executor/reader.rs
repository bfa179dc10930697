//! The store of a server, read inside of the server's process.
#![allow(clippy::needless_pass_by_value)] // PyO3 passes arguments by value

use std::path::PathBuf;

use forebay_executor::id::RequestId;
use forebay_executor::store::{DatabaseReader, Filter};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::seen;
use super::settings::{lane_of, status_of};
use crate::error::Result;

/// A read-only connection to the database of a state directory.
#[pyclass(name = "StoreReader", module = "forebay._core", frozen)]
pub struct PyStoreReader(DatabaseReader);

#[pymethods]
impl PyStoreReader {
    /// Of the database that this build writes.
    #[classattr]
    const VERSION: i64 = forebay_executor::store::VERSION;

    #[new]
    fn new(py: Python<'_>, directory: PathBuf) -> Result<Self> {
        let reader = py.detach(|| DatabaseReader::open(&directory));
        Ok(reader.map(Self)?)
    }

    fn get<'py>(&self, py: Python<'py>, id: u64) -> Result<Option<Bound<'py, PyDict>>> {
        let found = py.detach(|| self.0.request(RequestId(id)))?;
        let found = found.map(|found| seen::listed(py, &found));
        Ok(found.transpose()?)
    }

    fn newest(&self, py: Python<'_>) -> Result<Option<u64>> {
        let newest = py.detach(|| self.0.newest())?;
        Ok(newest.map(|id| id.0))
    }

    fn beginning_with(
        &self,
        py: Python<'_>,
        text: &str,
        count_max: usize,
    ) -> Result<Option<Vec<u64>>> {
        let Ok(ids) = RequestId::beginning_with(text) else {
            return Ok(None);
        };
        let found = py.detach(|| self.0.among(&ids, count_max))?;
        Ok(Some(found.into_iter().map(|id| id.0).collect()))
    }

    #[pyo3(signature = (count_max, cursor = None, *, status = Vec::new(), name = None, submitter = None, lane = None, since_ms = None, until_ms = None, parent = None))]
    #[allow(clippy::too_many_arguments)] // they are Python's
    fn page<'py>(
        &self,
        py: Python<'py>,
        count_max: usize,
        cursor: Option<u64>,
        status: Vec<String>,
        name: Option<String>,
        submitter: Option<String>,
        lane: Option<String>,
        since_ms: Option<u64>,
        until_ms: Option<u64>,
        parent: Option<u64>,
    ) -> Result<(Vec<Bound<'py, PyDict>>, Option<u64>)> {
        let statuses = status.iter().map(|word| status_of(word));
        let filter = Filter {
            statuses: statuses.collect::<Result<_>>()?,
            name,
            submitter,
            lane: lane.as_deref().map(lane_of).transpose()?,
            since: since_ms,
            until: until_ms,
            parent: parent.map(RequestId),
        };
        let cursor = cursor.map(RequestId);
        let page = py.detach(|| self.0.page(&filter, cursor, count_max))?;
        let rows = page.requests.iter().map(|one| seen::listed(py, one));
        Ok((rows.collect::<PyResult<_>>()?, page.next.map(|id| id.0)))
    }

    fn runs<'py>(
        &self,
        py: Python<'py>,
        id: u64,
        count_max: usize,
    ) -> Result<Vec<Bound<'py, PyDict>>> {
        let runs = py.detach(|| self.0.runs(RequestId(id), count_max))?;
        let runs = runs.iter().map(|run| seen::past_run(py, run));
        Ok(runs.collect::<PyResult<_>>()?)
    }

    fn deliveries<'py>(
        &self,
        py: Python<'py>,
        hook: &str,
        count_max: usize,
    ) -> Result<Vec<Bound<'py, PyDict>>> {
        let found = py.detach(|| self.0.deliveries(hook, count_max))?;
        let found = found.iter().map(|one| seen::delivery(py, one));
        Ok(found.collect::<PyResult<_>>()?)
    }

    fn waiting(&self, py: Python<'_>, hooks: Vec<String>) -> Result<u64> {
        Ok(py.detach(|| self.0.waiting(&hooks))?)
    }

    fn outbox<'py>(&self, py: Python<'py>) -> Result<Vec<Bound<'py, PyDict>>> {
        let found = py.detach(|| self.0.outbox())?;
        let found = found.iter().map(|one| seen::outbox_count(py, one));
        Ok(found.collect::<PyResult<_>>()?)
    }

    fn arguments<'py>(&self, py: Python<'py>, id: u64) -> Result<Option<Bound<'py, PyBytes>>> {
        let found = py.detach(|| self.0.arguments(RequestId(id)))?;
        Ok(found.map(|found| PyBytes::new(py, &found)))
    }

    fn options<'py>(&self, py: Python<'py>, id: u64) -> Result<Option<Bound<'py, PyBytes>>> {
        let found = py.detach(|| self.0.options(RequestId(id)))?;
        Ok(found.map(|found| PyBytes::new(py, &found)))
    }
}
