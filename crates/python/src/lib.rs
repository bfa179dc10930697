//! The extension module `forebay._core`: one file per system, no algorithm.

mod error;
mod gather;
mod memory;
mod pool;
mod sys;
mod transport;

use pyo3::prelude::*;

#[pymodule]
mod _core {
    use super::{Bound, PyModule, PyResult, gather, memory, pool, transport};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        memory::register(module)?;
        pool::register(module)?;
        gather::register(module)?;
        transport::register(module)
    }
}
