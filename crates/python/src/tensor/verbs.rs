//! `forebay._core.TensorOffer`: a client's end of a connection over RDMA verbs, before there is one.
#![allow(clippy::doc_markdown)] // the comments are Python docstrings
use std::sync::{Arc, Mutex, PoisonError};

use forebay_tensor::Hello;
use forebay_tensor::verbs::{self, Device, Offer};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error;
use crate::memory::Arena;

/// The RDMA devices that can be used: name, port, index of the port's address, whether keys can be taken back; or why
/// there is none, in words. Opens and closes each.
#[pyfunction]
pub(crate) fn rdma_devices(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let described =
        |found: verbs::Found| (found.device, found.port, found.gid_index, found.has_windows);
    match py.detach(verbs::devices) {
        Ok(found) => found
            .into_iter()
            .map(described)
            .collect::<Vec<_>>()
            .into_bound_py_any(py),
        Err(why) => why.into_bound_py_any(py),
    }
}

/// A queue pair of the process's device, which knows the arena's memory from here on.
#[pyclass(frozen, weakref, module = "forebay._core")]
pub(crate) struct TensorOffer {
    offer: Mutex<Option<Offer>>,
    hello: Vec<u8>,
}

impl TensorOffer {
    pub(super) fn take(&self) -> PyResult<Offer> {
        let mut held = self.offer.lock().unwrap_or_else(PoisonError::into_inner);
        held.take()
            .ok_or_else(|| error::closed("the offer was used".into()))
    }
}

#[pymethods]
impl TensorOffer {
    /// Raises ConfigError with what is missing where there is no device, or it knows nothing of the arena.
    #[new]
    fn new(py: Python<'_>, arena: PyRef<'_, Arena>, slots: u32) -> PyResult<Self> {
        let device = device_of(py, &arena)?;
        let refused = |refused| error::tensor("the RDMA device", &refused);
        let offer = py.detach(|| Offer::new(&device, slots)).map_err(refused)?;
        let hello = Hello::of_lifeline(slots, &offer.introduction());
        Ok(Self {
            offer: Mutex::new(Some(offer)),
            hello,
        })
    }

    /// The message with which its lifeline begins.
    #[getter]
    fn hello<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.hello)
    }
}

/// The process's device, attached to the arena.
pub(super) fn device_of(py: Python<'_>, arena: &PyRef<'_, Arena>) -> PyResult<Arc<Device>> {
    let region = arena.region();
    py.detach(|| {
        let device =
            Device::get().map_err(|why| format!("RDMA verbs cannot be used here: {why}"))?;
        device.attach(region).map_err(|why| why.to_string())?;
        Ok(device)
    })
    .map_err(|why: String| error::config(why))
}
