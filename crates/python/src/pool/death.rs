//! How a service ended, as both kinds of pools tell Python.

use forebay_pool::death::Death;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Cause, process id, exit code or signal, text, most memory used, memory allowed.
pub type PyDeath<'py> = (&'static str, i32, i32, Bound<'py, PyBytes>, u64, u64);

pub fn death_to_python<'py>(py: Python<'py>, death: &Death) -> PyDeath<'py> {
    (
        death.cause.name(),
        death.pid,
        death.code,
        PyBytes::new(py, &death.text),
        death.peak_bytes,
        death.limit_bytes,
    )
}
