//! What the machine looks like, as dicts.

use forebay_executor::error::Refusal;
use forebay_executor::feed::{Distribution, Exposition, Labels, Sample};
use forebay_executor::id::RequestId;
use forebay_executor::machine::{Cordon, Figures, ScheduleView, Why, WorkerView};
use forebay_executor::store::{Delivery, Listed, OutboxCount, PastRun, Pruned};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::fields::set_items;

/// Counts, with a dict for each lane by its name under `lanes`.
pub fn figures<'py>(py: Python<'py>, seen: &Figures) -> PyResult<Bound<'py, PyDict>> {
    let lanes = PyDict::new(py);
    for lane in &seen.lanes {
        let one = PyDict::new(py);
        set_items!(one, lane; ready running waiting workers_starting workers_up workers_idle);
        lanes.set_item(lane.lane.word(), one)?;
    }
    let dict = PyDict::new(py);
    dict.set_item("lanes", lanes)?;
    dict.set_item("parked", seen.waits.total())?;
    let oldest = seen.oldest_ready_ms.iter().flatten().max();
    dict.set_item("oldest_ready_ms", oldest)?;
    set_items!(
        dict, seen;
        unfinished
        accepted refused succeeded failed cancelled dead deaths
        store_in_flight store_kept
        resident_bytes promised_bytes memory_limit_bytes low_resource
        held
    );
    let cordon = seen.cordon.as_ref().map(|one| cordon(py, one));
    dict.set_item("cordon", cordon.transpose()?)?;
    Ok(dict)
}

/// Who let the server take no submissions, and since when, in milliseconds since 1970.
fn cordon<'py>(py: Python<'py>, seen: &Cordon) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("by", &*seen.by)?;
    dict.set_item("reason", &*seen.reason)?;
    dict.set_item("at_ms", seen.at)?;
    set_items!(dict, seen; dispatches);
    dict.set_item("text", seen.text())?;
    Ok(dict)
}

/// Metrics: lists of `[name, labels, number]`, and of `[name, labels, buckets, sum, count]`.
pub fn metrics<'py>(py: Python<'py>, seen: &Exposition) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("counters", samples(py, &seen.counters)?)?;
    dict.set_item("gauges", samples(py, &seen.gauges)?)?;
    let histograms = seen.histograms.iter().map(|one| histogram(py, one));
    dict.set_item("histograms", histograms.collect::<PyResult<Vec<_>>>()?)?;
    Ok(dict)
}

fn samples<'py>(py: Python<'py>, seen: &[Sample]) -> PyResult<Vec<Bound<'py, PyList>>> {
    let list = seen.iter().map(|one| {
        let list = PyList::empty(py);
        list.append(one.name)?;
        list.append(labels(py, &one.labels)?)?;
        list.append(one.value)?;
        Ok(list)
    });
    list.collect()
}

fn histogram<'py>(py: Python<'py>, seen: &Distribution) -> PyResult<Bound<'py, PyList>> {
    let buckets = seen.buckets.iter();
    let buckets = buckets.map(|(bound, count)| (*bound, *count).into_pyobject(py));
    let list = PyList::empty(py);
    list.append(seen.name)?;
    list.append(labels(py, &seen.labels)?)?;
    list.append(buckets.collect::<PyResult<Vec<_>>>()?)?;
    list.append(seen.sum)?;
    list.append(seen.count)?;
    Ok(list)
}

fn labels<'py>(py: Python<'py>, seen: &Labels) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in seen {
        dict.set_item(name, value)?;
    }
    Ok(dict)
}

/// One worker.
pub fn worker<'py>(py: Python<'py>, seen: &WorkerView) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("slot", seen.slot)?;
    dict.set_item("lane", seen.lane.word())?;
    set_items!(dict, seen; state burst);
    let running = seen.running.iter().map(ToString::to_string);
    dict.set_item("running", PyList::new(py, running.collect::<Vec<_>>())?)?;
    set_items!(dict, seen; age_ms uses private_bytes);
    Ok(dict)
}

/// Why a request is where it is.
pub fn why<'py>(py: Python<'py>, seen: &Why) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("status", seen.status.word())?;
    set_items!(dict, seen; reason next decisions);
    Ok(dict)
}

/// One schedule; times in milliseconds since 1970.
pub fn schedule<'py>(py: Python<'py>, seen: &ScheduleView) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("name", &*seen.name)?;
    dict.set_item("pattern", &*seen.pattern)?;
    set_items!(dict, seen; next_at fired_at paused skipped);
    dict.set_item("last", seen.last.map(|id| id.to_string()))?;
    dict.set_item("said", &seen.said)?;
    Ok(dict)
}

/// What became of a retry: queued again, or refused.
pub fn retried<'py>(
    py: Python<'py>,
    id: RequestId,
    refused: Option<&Refusal>,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("id", id.to_string())?;
    match refused {
        Some(refusal) => {
            dict.set_item("refused", refusal.to_string())?;
            let members = PyDict::new(py);
            set_items!(members, refusal; code message object limit value next);
            dict.set_item("refusal", members)?;
        }
        None => dict.set_item("status", "queued")?,
    }
    Ok(dict)
}

/// A request as it is stored; times in milliseconds since 1970, the failure as JSON.
pub fn listed<'py>(py: Python<'py>, seen: &Listed) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("id", seen.id.0)?;
    dict.set_item("lane", seen.lane.word())?;
    dict.set_item("status", seen.status.word())?;
    set_items!(
        dict, seen;
        name code submitter priority attempts deaths retried
        accepted_at claimed_at ended_at wake_at peak_bytes result_bytes failure
    );
    Ok(dict)
}

/// A run that did not end its request; times and failure as of a request.
pub fn past_run<'py>(py: Python<'py>, seen: &PastRun) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    set_items!(dict, seen; attempt began_at ended_at failure);
    Ok(dict)
}

/// What a prune gave up.
pub fn pruned<'py>(py: Python<'py>, done: &Pruned) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("pruned", done.count)?;
    dict.set_item("bytes", done.bytes)?;
    Ok(dict)
}

/// A call of a hook that waits.
pub fn delivery<'py>(py: Python<'py>, seen: &Delivery) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("request", seen.request.map(|id| id.0))?;
    set_items!(dict, seen; number token event at name attempt detail tries due_at);
    Ok(dict)
}

/// How many calls of a hook there are.
pub fn outbox_count<'py>(py: Python<'py>, seen: &OutboxCount) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    set_items!(dict, seen; hook waiting given_up error);
    Ok(dict)
}
