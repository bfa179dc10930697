//! The extension module `forebay._core`: one file per system, no algorithm.
use pyo3::prelude::*;

mod error;
mod memory;

#[pymodule]
mod _core {
    use super::{Bound, PyModule, PyResult};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::memory::register(module)?;
        Ok(())
    }
}
