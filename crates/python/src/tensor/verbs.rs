//! The RDMA device of the process, for Python.
use std::sync::Arc;

use forebay_verbs::Device;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;

use crate::error::{Result, config};
use crate::memory::Arena;

/// The RDMA devices that can be used: name, port, index of the port's address, whether keys can be taken back; or why
/// there is none, in words. Opens and closes each.
#[pyfunction]
pub(crate) fn rdma_devices(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let described = |found: forebay_verbs::Found| {
        (found.device, found.port, found.gid_index, found.has_windows)
    };
    match py.detach(forebay_verbs::devices) {
        Ok(found) => found
            .into_iter()
            .map(described)
            .collect::<Vec<_>>()
            .into_bound_py_any(py),
        Err(why) => why.into_bound_py_any(py),
    }
}

/// The process's device, attached to the arena; `ConfigError` with what is missing where there is none.
pub(super) fn device_of(py: Python<'_>, arena: &PyRef<'_, Arena>) -> Result<Arc<Device>> {
    let region = arena.region();
    let device = match py.detach(Device::get) {
        Ok(device) => device,
        Err(why) => return Err(config(format!("RDMA verbs cannot be used here: {why}"))),
    };
    match py.detach(|| device.attach(region)) {
        Ok(()) => Ok(device),
        Err(why) => Err(config(why.to_string())),
    }
}
