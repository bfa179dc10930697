//! The pool's client, keeper and template for Python.

mod argument;
mod client;
mod death;
mod handle;
mod keeper;
mod shared;
mod template;
mod wake_queue;

use pyo3::prelude::*;

/// Add the classes and functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<handle::PyHandle>()?;
    module.add_class::<wake_queue::WakeQueue>()?;
    module.add_class::<client::PyPool>()?;
    module.add_class::<template::KeeperLink>()?;
    module.add_class::<template::PreforkLoop>()?;
    shared::register(module)?;
    module.add_function(wrap_pyfunction!(keeper::run_keeper, module)?)
}
