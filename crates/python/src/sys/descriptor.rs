//! Descriptors handed over by Python code.

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Take over a descriptor; from here on Rust closes it.
pub fn take(descriptor: RawFd) -> PyResult<OwnedFd> {
    if descriptor < 0 {
        return Err(PyValueError::new_err(format!(
            "{descriptor} is no descriptor"
        )));
    }
    // SAFETY: the number is not -1, and the Python caller gives the descriptor away, as the
    // documentation of every constructor that takes one says.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}
