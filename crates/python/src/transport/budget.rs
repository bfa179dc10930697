//! The limits of this process for all its connections of messages.

use forebay_transport::messages::Budget;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::fields::set_items;

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
    set_items!(metrics, counters; held_bytes connections held_back turned_back);
    metrics.set_item("max_bytes", counters.bytes_max)?;
    metrics.set_item("max_connections", counters.connections_max)?;
    Ok(metrics)
}
