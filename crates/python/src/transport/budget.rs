//! The limits of this process for all its connections of messages.

use forebay_transport::Scheme;
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

/// What all connections of this process have moved, and how many there are, by their scheme.
#[pyfunction]
pub fn transport_totals(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let totals = forebay_transport::totals();
    let connections = PyDict::new(py);
    for (scheme, open) in Scheme::ALL.into_iter().zip(totals.connections) {
        connections.set_item(scheme.name(), open)?;
    }
    let dict = PyDict::new(py);
    set_items!(dict, totals; sent_bytes received_bytes);
    dict.set_item("connections", connections)?;
    Ok(dict)
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
