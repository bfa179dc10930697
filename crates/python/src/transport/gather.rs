//! Calls on several connections at once, for Python.
#![allow(clippy::needless_pass_by_value)] // PyO3 passes arguments by value

use std::time::Instant;

use forebay_transport::calls::{Connection as Core, Outcome, Outgoing, Taker};
use forebay_transport::drive::wait_all;
use forebay_transport::{Error, Result as CoreResult};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use super::connection::Connection;
use super::conversion::{Segments, outcome_to_python, to_codec, to_duration, to_head, to_payloads};
use super::lend;
use super::wait::{Stop, raise, retry};
use crate::error::transport_error;

/// Begin one call on each connection; returns each call's id, or the exception that it ended with.
///
/// Nothing waits: what the kernel does not take at once goes out in `gather`.
#[pyfunction]
fn begin_all<'py>(
    py: Python<'py>,
    connections: Vec<PyRef<'py, Connection>>,
    codec: u8,
    messages: Vec<(Bound<'py, PyBytes>, Segments<'py>)>,
    generations: Vec<u32>,
    timeout: Option<f64>,
) -> PyResult<Bound<'py, PyList>> {
    let begun = PyList::empty(py);
    let remaining = to_duration(timeout);
    // All that can fail comes before the first call is sent.
    let messages = messages
        .into_iter()
        .map(|(head, segments)| Ok((head, to_payloads(segments)?)))
        .collect::<PyResult<Vec<_>>>()?;
    for ((connection, (head, segments)), generation) in
        connections.iter().zip(messages).zip(generations)
    {
        let call = Outgoing {
            codec: to_codec(codec),
            one_way: false,
            remaining,
            generation,
            head: to_head(&head),
            segments,
        };
        match lend::start(py, &connection.core, call, Taker::Thread) {
            Ok(id) => begun.append(id)?,
            Err(error) => begun.append(transport_error(py, &error, timeout))?,
        }
    }
    Ok(begun)
}

/// Wait until the calls that were begun have ended, or the timeout.
///
/// With `look` it looks for the answers before it sleeps, which pays where they come soon.
/// Returns each outcome as `Connection.receive` gives it, and `None` for a call that goes on past
/// the timeout. A signal handler's exception is raised, and all calls go on.
#[pyfunction]
fn gather_all<'py>(
    py: Python<'py>,
    connections: Vec<PyRef<'py, Connection>>,
    codec: u8,
    ids: Vec<u64>,
    timeout: Option<f64>,
    look: bool,
) -> PyResult<Bound<'py, PyList>> {
    let deadline = to_duration(timeout).and_then(|allowed| Instant::now().checked_add(allowed));
    let calls: Vec<(&Core, u64)> = connections
        .iter()
        .map(|connection| &*connection.core)
        .zip(ids)
        .collect();
    let mut ended: Vec<Option<CoreResult<Outcome>>> = calls.iter().map(|_| None).collect();
    match retry(py, || wait_all(&calls, &mut ended, deadline, look)) {
        Ok(()) | Err(Stop::Error(Error::Deadline { .. })) => {}
        Err(stop) => return Err(raise(py, stop, timeout)),
    }
    let outcomes = PyList::empty(py);
    for ((core, _), ended) in calls.iter().zip(ended) {
        match ended {
            None => outcomes.append(py.None())?,
            Some(Err(error)) => outcomes.append(transport_error(py, &error, timeout))?,
            Some(Ok(outcome)) => {
                let ending = outcome_to_python(py, core, to_codec(codec), outcome, timeout)?;
                outcomes.append(ending.into_object(py))?;
            }
        }
    }
    Ok(outcomes)
}

/// Add the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(begin_all, module)?)?;
    module.add_function(wrap_pyfunction!(gather_all, module)?)
}
