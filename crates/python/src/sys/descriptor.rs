//! Descriptors that come from Python as numbers.

use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Take ownership of a descriptor that the caller gives away.
pub fn take(number: RawFd) -> PyResult<OwnedFd> {
    if number < 0 {
        return Err(PyValueError::new_err(format!(
            "invalid file descriptor: {number}"
        )));
    }
    // SAFETY: not negative; the Python caller gives it away, as the documentation of each caller demands.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// A descriptor that stays the caller's, for as long as the call.
pub fn borrow<'a>(number: RawFd) -> PyResult<BorrowedFd<'a>> {
    if number < 0 {
        return Err(PyValueError::new_err(format!(
            "invalid file descriptor: {number}"
        )));
    }
    // SAFETY: not negative; the caller keeps it open meanwhile; otherwise another file of that number is polled, which does no harm.
    Ok(unsafe { BorrowedFd::borrow_raw(number) })
}
