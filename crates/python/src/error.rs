//! The one place where errors of the crates become exceptions of `forebay.errors`.

use forebay_transport::{Delivered, Error as TransportError};
use pyo3::exceptions::{PyInterruptedError, PyOSError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyModule};

/// An exception class of `forebay.errors`, called with a message and attributes.
fn build(
    py: Python<'_>,
    class: &str,
    message: &str,
    attributes: impl FnOnce(&Bound<'_, PyDict>) -> PyResult<()>,
) -> PyErr {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let built = || {
        let module = MODULE.get_or_try_init(py, || {
            PyModule::import(py, "forebay.errors").map(Bound::unbind)
        })?;
        let keywords = PyDict::new(py);
        attributes(&keywords)?;
        module
            .bind(py)
            .getattr(class)?
            .call((message,), Some(&keywords))
    };
    built().map_or_else(|error| error, PyErr::from_value)
}

/// Turn an error of the transport into its exception; `timeout` is what the caller allowed.
pub fn transport_error(py: Python<'_>, error: &TransportError, timeout: Option<f64>) -> PyErr {
    let message = error.to_string();
    let plain = |class| build(py, class, &message, |_| Ok(()));
    match error {
        TransportError::Closed { .. } | TransportError::Forked { .. } => plain("ClosedError"),
        TransportError::Stale { .. } => plain("StaleError"),
        TransportError::Busy { .. } => plain("BusyError"),
        TransportError::Config(_) => plain("ConfigError"),
        TransportError::Broken { delivered, .. } => {
            build(py, "BrokenError", &message, |keywords| {
                keywords.set_item("delivered", delivered_word(*delivered))
            })
        }
        TransportError::Protocol { peer, offset, .. } => {
            build(py, "ProtocolError", &message, |keywords| {
                keywords.set_item("peer", peer)?;
                keywords.set_item("offset", offset)
            })
        }
        TransportError::Limit { limit, value, .. } => {
            build(py, "LimitError", &message, |keywords| {
                keywords.set_item("limit", limit)?;
                keywords.set_item("value", value)
            })
        }
        TransportError::Deadline { .. } => {
            let message =
                timeout.map_or_else(|| message.clone(), |s| format!("{message} (waited {s} s)"));
            build(py, "DeadlineError", &message, |keywords| {
                keywords.set_item("timeout", timeout)
            })
        }
        TransportError::System { errno, .. } => {
            let broken = build(py, "BrokenError", &message, |keywords| {
                keywords.set_item("delivered", delivered_word(Delivered::No))
            });
            broken.set_cause(
                py,
                Some(PyOSError::new_err((errno.raw_os_error(), message.clone()))),
            );
            broken
        }
        TransportError::Interrupted => PyInterruptedError::new_err(message),
        // The enum may grow; an error without a class of its own is a fault of this file.
        _ => plain("InternalError"),
    }
}

fn delivered_word(delivered: Delivered) -> &'static str {
    match delivered {
        Delivered::No => "no",
        Delivered::Maybe => "maybe",
    }
}
