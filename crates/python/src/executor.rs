//! The executor for Python: its dispatcher, and the reader of its store.

mod dispatcher;
mod options;
mod reader;
mod seen;
mod settings;

use pyo3::prelude::*;

/// Add the classes to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<dispatcher::PyDispatcher>()?;
    module.add_class::<reader::PyStoreReader>()
}
