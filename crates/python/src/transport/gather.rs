//! Calls on several connections at once, for Python.
#![allow(clippy::needless_pass_by_value)] // PyO3 passes arguments by value

use forebay_transport::calls::wait_all;
use forebay_transport::calls::{Connection as Core, Outcome, Taker};
use forebay_transport::wire::Codec;
use forebay_transport::{Error, Result as CoreResult};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use super::connection::Connection;
use super::conversion::{Ending, Segments, outcome_to_python, to_codec, to_deadline, to_outgoing};
use super::lend;
use super::wait::{Stop, retry};
use crate::error::{Result, transport};

/// Begin one call on each connection; returns each call's id, or the exception that it ended with.
///
/// Nothing waits: what the kernel does not take at once goes out in `gather`.
#[pyfunction]
fn begin_all<'py>(
    py: Python<'py>,
    connections: Vec<PyRef<'py, Connection>>,
    codec: u8,
    mut messages: Vec<(Bound<'py, PyBytes>, Segments<'py>)>,
    generations: Vec<u32>,
    timeout: Option<f64>,
) -> Result<Bound<'py, PyList>> {
    let begun = PyList::empty(py);
    // All that can fail comes before the first call is sent.
    let calls = messages
        .iter_mut()
        .zip(generations)
        .map(|((head, segments), generation)| {
            to_outgoing(codec, head, segments.take(), timeout, generation)
        })
        .collect::<Result<Vec<_>>>()?;
    for (connection, call) in connections.iter().zip(calls) {
        match lend::start(py, &connection.core, call, Taker::Thread) {
            Ok(id) => begun.append(id)?,
            Err(error) => begun.append(PyErr::from(transport(&error, timeout)))?,
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
) -> Result<Bound<'py, PyList>> {
    let deadline = to_deadline(timeout);
    let cores = connections.iter().map(|connection| &*connection.core);
    let calls: Vec<(&Core, u64)> = cores.zip(ids).collect();
    let mut ended: Vec<Ended> = calls.iter().map(|_| None).collect();
    match retry(py, || wait_all(&calls, &mut ended, deadline, look)) {
        Ok(()) | Err(Stop::Error(Error::Deadline { .. })) => {}
        Err(stop) => return Err(stop.into_error(timeout)),
    }
    let outcomes = PyList::empty(py);
    for ((core, _), ended) in calls.iter().zip(ended) {
        outcomes.append(match ended {
            None => py.None().into_bound(py),
            Some(ended) => ended_to_python(py, core, to_codec(codec), ended, timeout)?,
        })?;
    }
    Ok(outcomes)
}

/// How a call ended; `None`: it goes on.
type Ended = Option<CoreResult<Outcome>>;

fn ended_to_python<'py>(
    py: Python<'py>,
    core: &Core,
    codec: Codec,
    ended: CoreResult<Outcome>,
    timeout: Option<f64>,
) -> Result<Bound<'py, PyAny>> {
    match ended {
        Ok(outcome) => Ok(outcome_to_python(py, core, codec, outcome, timeout)?.into_object(py)),
        Err(error) => Ok(Ending::Raise(transport(&error, timeout).into()).into_object(py)),
    }
}

/// Add the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(begin_all, module)?)?;
    module.add_function(wrap_pyfunction!(gather_all, module)?)
}
