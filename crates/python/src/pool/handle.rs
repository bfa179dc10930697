//! Which lease of a service is meant.

use forebay_pool::wire::Handle;
use pyo3::prelude::*;

/// A lease of a service: its slot and generation.
#[pyclass(frozen, module = "forebay._core", name = "Handle")]
#[derive(Clone, Copy)]
pub struct PyHandle(pub Handle);

#[pymethods]
impl PyHandle {
    #[getter]
    fn slot(&self) -> u32 {
        self.0.slot
    }

    #[getter]
    fn generation(&self) -> u64 {
        self.0.generation
    }

    /// What travels with calls: the low half.
    #[getter]
    #[allow(clippy::cast_possible_truncation)]
    fn tag(&self) -> u32 {
        self.0.generation as u32
    }
}
