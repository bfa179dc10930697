//! The extension module `forebay._core`: one file per system, no algorithm.
use pyo3::prelude::*;

mod error;
mod sys;
mod transport;

#[pymodule]
mod _core {
    use super::{Bound, PyModule, PyResult, transport};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        transport::register(module)?;
        Ok(())
    }
}
