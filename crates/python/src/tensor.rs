//! `forebay._core.TensorShard`, `TensorLink` and what event loops use: the tensor crate for Python.
mod batch;
mod calls;
mod handle;
mod link;
mod plan;
mod port;
mod request;
mod shard;
mod verbs;

use pyo3::prelude::*;

/// Add the classes to the extension module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<shard::TensorShard>()?;
    module.add_class::<handle::TensorHandle>()?;
    module.add_class::<link::TensorLink>()?;
    module.add_class::<batch::TensorBatch>()?;
    module.add_class::<plan::TensorPlan>()?;
    module.add_class::<port::TensorPort>()?;
    module.add_function(wrap_pyfunction!(verbs::rdma_devices, module)?)?;
    module.add_function(wrap_pyfunction!(link::tensor_hello, module)?)
}
