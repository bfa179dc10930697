//! Calls of a link that are begun and waited for at once.
use forebay_tensor::stream::{Batch, Until};
use pyo3::prelude::*;

use super::batch::{CoreBatch, allowed, let_go, wait};
use super::link::{KEPT_BYTES_MAX, TensorLink};
use super::request::{Request, bytes_of};
use crate::error;
use crate::sys::kept;

impl TensorLink {
    /// Begin what Python lists, and wait for it.
    pub(super) fn run(
        &self,
        py: Python<'_>,
        mut request: Request,
        timeout: Option<f64>,
        versions: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let count = request.works.len();
        if let Some(versions) = versions
            && !request.exports().take_room(versions, count)?
        {
            return Err(error::config(format!(
                "versions: give a C-contiguous uint64 array of {count} numbers"
            )));
        }
        if bytes_of(&request.works) <= KEPT_BYTES_MAX
            && self.read_near(py, &request, versions.is_some())
        {
            return Ok(());
        }
        let (works, memory) = request.wanted();
        let batch = Batch::new(memory, count);
        let begun = py.detach(|| {
            self.link.begin(&batch, works, allowed(timeout))?;
            self.link.wait(&batch, Until::All, None)
        });
        let ended = match begun {
            Err(forebay_tensor::stream::StreamError::Interrupted) => self.go_on(py, &batch),
            outcome => outcome.map_err(error::stream),
        };
        if ended.is_ok()
            && versions.is_some()
            && let Some(exports) = batch.memory.get()
        {
            batch.versions(&mut |index, version| exports.put(py, index, version));
        }
        let failed = ended.err().or_else(|| failure(&batch));
        let_go(py, batch);
        kept::end_exports(py); // of calls that were given up before, whose late answers came meanwhile
        failed.map_or(Ok(()), Err)
    }

    /// Answer pulls from the owner's memory, all of them or none, with the GIL.
    fn read_near(&self, py: Python<'_>, request: &Request, versions: bool) -> bool {
        let (works, exports) = request.parts();
        self.link.read(works, |index, version| {
            if versions {
                exports.put(py, index, version);
            }
        })
    }

    /// A signal came: its handler may raise, which gives the batch up.
    fn go_on(&self, py: Python<'_>, batch: &CoreBatch) -> PyResult<()> {
        let waited = py
            .check_signals()
            .and_then(|()| wait(py, &self.link, batch, Until::All, None));
        if waited.is_err() {
            py.detach(|| self.link.cancel(batch));
        }
        waited
    }
}

/// The exception of the first operation that failed; where there are several, it says which one it was.
fn failure(batch: &CoreBatch) -> Option<PyErr> {
    let (index, refused) = batch.first_failure()?;
    let raised = error::stream(refused);
    if batch.len() > 1 {
        let note = format!("operation {index} of {}", batch.len());
        // Without the note it is the same error.
        _ = Python::attach(|py| raised.value(py).call_method1("add_note", (note,)).map(drop));
    }
    Some(raised)
}
