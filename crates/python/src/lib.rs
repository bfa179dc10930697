//! The extension module `forebay._core`: one file per system, no algorithm.

mod blockio;
mod error;
mod executor;
mod fields;
mod memory;
mod pool;
mod sys;
mod tensor;
mod transport;

use pyo3::prelude::*;

#[pymodule]
mod _core {
    use super::{Bound, PyModule, PyResult, blockio, executor, memory, pool, tensor, transport};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        blockio::register(module)?;
        executor::register(module)?;
        memory::register(module)?;
        pool::register(module)?;
        tensor::register(module)?;
        transport::register(module)
    }
}
