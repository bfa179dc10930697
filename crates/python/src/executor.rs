//! The executor for Python: its dispatcher, and the reader of its store.

mod backup;
mod dispatcher;
mod moved;
mod outbox;
mod reader;
mod seen;
mod settings;

use forebay_executor::machine::Cron;
use pyo3::prelude::*;

/// Add the classes to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<dispatcher::PyDispatcher>()?;
    module.add_class::<outbox::PyHookOutbox>()?;
    module.add_class::<reader::PyStoreReader>()?;
    module.add_class::<backup::PyStoreBackup>()?;
    module.add_function(wrap_pyfunction!(backup::copy_log, module)?)?;
    module.add_function(wrap_pyfunction!(backup::sync_file_system, module)?)?;
    module.add_function(wrap_pyfunction!(cron_fault, module)?)
}

/// What is wrong with a cron pattern; `None`: a server takes it.
#[pyfunction]
fn cron_fault(pattern: &str) -> Option<String> {
    Cron::parse(pattern).err()
}
