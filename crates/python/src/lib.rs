//! The extension module `forebay._core`: one file per system, no algorithm.

mod error;
mod executor;
mod memory;
mod pool;
mod sys;
mod transport;

use pyo3::prelude::*;

#[pymodule]
mod _core {
    use super::{Bound, PyModule, PyResult, executor, memory, pool, transport};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        executor::register(module)?;
        memory::register(module)?;
        pool::register(module)?;
        transport::register(module)
    }
}
