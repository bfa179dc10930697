//! The extension module `forebay._core`: one file per system, no algorithm.
use pyo3::prelude::*;

#[pymodule]
mod _core {
    use super::{Bound, PyModule, PyResult};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let _ = module;
        Ok(())
    }
}
