//! Rust errors become the exceptions of `forebay.errors`, here and nowhere else.
#![allow(clippy::needless_pass_by_value)] // so that they fit `map_err`

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};

/// A class of `forebay.errors`.
fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyType>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = MODULE.get_or_try_init(py, || py.import("forebay.errors").map(Bound::unbind))?;
    Ok(module.bind(py).getattr(name)?.cast_into()?)
}

/// An exception of `forebay.errors` with attributes by keyword.
fn raise(name: &str, message: &str, fill: impl FnOnce(&Bound<'_, PyDict>) -> PyResult<()>) -> PyErr {
    Python::attach(|py| {
        let made = class(py, name).and_then(|class| {
            let keywords = PyDict::new(py);
            fill(&keywords)?;
            class.call((message,), Some(&keywords))
        });
        made.map_or_else(|error| error, PyErr::from_value)
    })
}

fn plain(name: &str, message: &str) -> PyErr {
    raise(name, message, |_| Ok(()))
}

/// An error of the pool.
pub fn pool(error: forebay_pool::Error) -> PyErr {
    use forebay_pool::Error;
    let message = error.to_string();
    match error {
        Error::Closed => plain("ClosedError", &message),
        Error::Forked { .. } => plain("ConfigError", &message),
        Error::Limit { maximum, value, .. } => raise("LimitError", &message, |keywords| {
            keywords.set_item("limit", maximum)?;
            keywords.set_item("value", value)
        }),
        Error::Stale { .. } => plain("StaleError", &message),
        Error::KeeperLost => raise("BrokenError", &message, |keywords| keywords.set_item("delivered", "no")),
        Error::System { source, .. } => {
            PyOSError::new_err((source.raw_os_error().unwrap_or(0), message))
        }
        // Malformed and Interrupted never reach Python but by a fault of ours.
        _ => plain("InternalError", &message),
    }
}

/// An error of a completion queue.
pub fn wake(error: forebay_wake::Error) -> PyErr {
    plain("InternalError", &error.to_string())
}
