//! What the machine looks like, as dicts.

use forebay_executor::id::RequestId;
use forebay_executor::machine::{Figures, ScheduleView, Why, WorkerView};
use forebay_executor::store::Pruned;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use super::dispatcher::lane_of;

/// Counts, with a dict for each lane by its name under `lanes`.
pub fn figures<'py>(py: Python<'py>, seen: &Figures) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let lanes = PyDict::new(py);
    for lane in &seen.lanes {
        let one = PyDict::new(py);
        one.set_item("ready", lane.ready)?;
        one.set_item("running", lane.running)?;
        one.set_item("workers_starting", lane.workers_starting)?;
        one.set_item("workers_up", lane.workers_up)?;
        one.set_item("workers_idle", lane.workers_idle)?;
        lanes.set_item(lane_of(lane.lane), one)?;
    }
    dict.set_item("lanes", lanes)?;
    dict.set_item("unfinished", seen.unfinished)?;
    dict.set_item("parked", seen.parked)?;
    dict.set_item("oldest_ready_ms", seen.oldest_ready_ms)?;
    dict.set_item("accepted", seen.accepted)?;
    dict.set_item("refused", seen.refused)?;
    dict.set_item("succeeded", seen.succeeded)?;
    dict.set_item("failed", seen.failed)?;
    dict.set_item("cancelled", seen.cancelled)?;
    dict.set_item("dead", seen.dead)?;
    dict.set_item("deaths", seen.deaths)?;
    dict.set_item("store_in_flight", seen.store_in_flight)?;
    dict.set_item("store_kept", seen.store_kept)?;
    dict.set_item("resident_bytes", seen.resident_bytes)?;
    dict.set_item("promised_bytes", seen.promised_bytes)?;
    dict.set_item("memory_limit_bytes", seen.memory_limit_bytes)?;
    dict.set_item("low_resource", seen.low_resource)?;
    dict.set_item("held", seen.held.as_deref())?;
    Ok(dict)
}

/// One worker.
pub fn worker<'py>(py: Python<'py>, seen: &WorkerView) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("slot", seen.slot)?;
    dict.set_item("lane", lane_of(seen.lane))?;
    dict.set_item("state", seen.state)?;
    dict.set_item("burst", seen.burst)?;
    let running = seen.running.iter().map(ToString::to_string);
    dict.set_item("running", PyList::new(py, running.collect::<Vec<_>>())?)?;
    dict.set_item("age_ms", seen.age_ms)?;
    dict.set_item("uses", seen.uses)?;
    dict.set_item("private_bytes", seen.private_bytes)?;
    Ok(dict)
}

/// Why a request is where it is.
pub fn why<'py>(py: Python<'py>, seen: &Why) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("status", format!("{:?}", seen.status).to_lowercase())?;
    dict.set_item("reason", &seen.reason)?;
    dict.set_item("next", &seen.next)?;
    dict.set_item("decisions", seen.decisions.clone())?;
    Ok(dict)
}

/// One schedule; times in milliseconds since 1970.
pub fn schedule<'py>(py: Python<'py>, seen: &ScheduleView) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("name", &*seen.name)?;
    dict.set_item("pattern", &*seen.pattern)?;
    dict.set_item("next_at", seen.next_at)?;
    dict.set_item("fired_at", seen.fired_at)?;
    dict.set_item("paused", seen.paused)?;
    dict.set_item("skipped", seen.skipped)?;
    dict.set_item("last", seen.last.map(|id| id.to_string()))?;
    dict.set_item("said", &seen.said)?;
    Ok(dict)
}

/// What became of a retry: queued again, or refused.
pub fn retried<'py>(
    py: Python<'py>,
    id: RequestId,
    refused: Option<&String>,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("id", id.to_string())?;
    match refused {
        Some(why) => dict.set_item("refused", why)?,
        None => dict.set_item("status", "queued")?,
    }
    Ok(dict)
}

/// What a prune gave up.
pub fn pruned<'py>(py: Python<'py>, done: &Pruned) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("pruned", done.count)?;
    dict.set_item("bytes", done.bytes)?;
    Ok(dict)
}
