//! The executor's dispatcher for Python.

mod dispatcher;
mod options;
mod seen;
mod settings;

use pyo3::prelude::*;

/// Add the class to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<dispatcher::PyDispatcher>()
}
