//! `forebay._core.BlockFile`, `BlockQueue` and what event loops use: the blockio crate for Python.
mod arrays;
mod batch;
mod checksum;
mod file;
mod outcome;
mod port;
mod queue;
mod request;
mod totals;

pub(crate) use file::BlockFile;
use pyo3::prelude::*;

/// Add the classes to the extension module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<batch::BlockBatch>()?;
    module.add_class::<file::BlockFile>()?;
    module.add_class::<port::BlockPort>()?;
    module.add_class::<queue::BlockQueue>()?;
    module.add_function(wrap_pyfunction!(totals::blockio_totals, module)?)?;
    module.add_function(wrap_pyfunction!(checksum::record_checksums, module)?)
}
