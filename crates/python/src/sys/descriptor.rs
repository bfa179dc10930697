//! Descriptors that come from Python as numbers.

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Take ownership of a descriptor that the caller gives away.
pub fn take(number: RawFd) -> PyResult<OwnedFd> {
    if number < 0 {
        return Err(PyValueError::new_err(format!(
            "{number} is no file descriptor"
        )));
    }
    // SAFETY: not negative; the Python caller gives it away, as the documentation of each caller demands.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
