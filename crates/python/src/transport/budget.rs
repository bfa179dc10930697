//! The limits of this process for all its connections of messages.

use forebay_transport::messages::Budget;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Change limits; those that are `None` stay.
#[pyfunction]
#[pyo3(signature = (bytes_max = None, connections_max = None))]
pub fn limit_process(bytes_max: Option<usize>, connections_max: Option<usize>) {
    Budget::of_process().limit(bytes_max, connections_max);
}

/// Whether this process may have one more connection; a "no" is counted.
#[pyfunction]
pub fn process_has_room() -> bool {
    Budget::of_process().has_room()
}

/// The limits of this process, and what counts against them.
#[pyfunction]
pub fn process_metrics(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let counters = Budget::of_process().counters();
    let metrics = PyDict::new(py);
    metrics.set_item("held_bytes", counters.held_bytes)?;
    metrics.set_item("max_bytes", counters.bytes_max)?;
    metrics.set_item("connections", counters.connections)?;
    metrics.set_item("max_connections", counters.connections_max)?;
    metrics.set_item("held_back", counters.held_back)?;
    metrics.set_item("turned_back", counters.turned_back)?;
    Ok(metrics)
}
