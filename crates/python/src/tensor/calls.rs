//! Calls of a link that are begun and waited for at once.
use forebay_base::signals;
use forebay_tensor::stream::{Batch, Submission, Until};
use pyo3::prelude::*;

use super::batch::{CoreBatch, allowed, let_go, wait};
use super::link::TensorLink;
use super::request::{KEPT_BYTES_MAX, Request, bytes_of};
use crate::error::{Error, Result, config};
use crate::sys::kept;

impl TensorLink {
    /// Begin what Python lists, and wait for it.
    pub(super) fn run(
        &self,
        py: Python<'_>,
        mut request: Request,
        timeout: Option<f64>,
        versions: Option<&Bound<'_, PyAny>>,
    ) -> Result<()> {
        let count = request.works.len();
        take_versions(&mut request, versions)?;
        if bytes_of(&request.works) <= KEPT_BYTES_MAX
            && self.read_shared(py, &request, versions.is_some())
        {
            return Ok(());
        }
        let (works, memory) = request.wanted();
        let batch = Batch::new(memory, count);
        let ended = self.begin_and_wait(py, &batch, works, timeout);
        if ended.is_ok()
            && versions.is_some()
            && let Some(exports) = batch.memory.get()
        {
            batch.versions(&mut |index, version| exports.put(py, index, version));
        }
        let ended = ended.and_then(|()| failure(&batch).map_or(Ok(()), Err));
        let_go(py, batch);
        kept::end_exports(py); // of calls that were given up before, whose late answers came meanwhile
        ended
    }

    fn begin_and_wait(
        &self,
        py: Python<'_>,
        batch: &CoreBatch,
        works: Vec<Submission>,
        timeout: Option<f64>,
    ) -> Result<()> {
        signals::watch();
        let begun = py.detach(|| {
            self.link.begin(batch, works, allowed(timeout))?;
            self.link.wait(batch, Until::All, None)
        });
        match begun {
            Err(forebay_tensor::stream::StreamError::Interrupted) => self.go_on(py, batch),
            outcome => Ok(outcome?),
        }
    }

    /// Answer pulls from the owner's memory, all of them or none, with the GIL.
    fn read_shared(&self, py: Python<'_>, request: &Request, versions: bool) -> bool {
        let (works, exports) = request.parts();
        self.link.read(works, |index, version| {
            if versions {
                exports.put(py, index, version);
            }
        })
    }

    /// A signal came: its handler may raise, which gives the batch up.
    fn go_on(&self, py: Python<'_>, batch: &CoreBatch) -> Result<()> {
        let waited = match py.check_signals() {
            Ok(()) => wait(py, &self.link, batch, Until::All, None),
            Err(raised) => Err(raised.into()),
        };
        if waited.is_err() {
            py.detach(|| self.link.cancel(batch));
        }
        waited
    }
}

/// Take the array for the operations' versions, if one was given.
fn take_versions(request: &mut Request, versions: Option<&Bound<'_, PyAny>>) -> Result<()> {
    let count = request.works.len();
    match versions {
        Some(versions) if !request.exports().take_room(versions, count)? => Err(config(format!(
            "versions: give a C-contiguous uint64 array of {count} numbers"
        ))),
        _ => Ok(()),
    }
}

/// The exception of the first operation that failed; where there are several, it says which one it was.
fn failure(batch: &CoreBatch) -> Option<Error> {
    let (index, refused) = batch.first_failure()?;
    let raised = PyErr::from(Error::from(refused));
    if batch.len() > 1 {
        let note = format!("operation {index} of {}", batch.len());
        // Without the note it is the same error.
        _ = Python::attach(|py| raised.value(py).call_method1("add_note", (note,)).map(drop));
    }
    Some(raised.into())
}
