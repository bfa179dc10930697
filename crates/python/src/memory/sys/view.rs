//! Filling in a view of the buffer protocol.
#![allow(unsafe_code)]
use std::ffi::c_int;
use std::ptr;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

/// What the holder of a view may do with the memory.
#[derive(Clone, Copy)]
pub enum Access {
    Read,
    Write,
}

/// Say that a view holds nothing, as Python wants it where it is not filled in.
///
/// # Safety
///
/// `view` is null or Python's, to be filled in.
pub unsafe fn clear(view: *mut ffi::Py_buffer) -> PyResult<()> {
    if view.is_null() {
        return Err(PyBufferError::new_err("a view is needed"));
    }
    // SAFETY: not null, so it is a view of Python's, as the caller says.
    unsafe { (*view).obj = ptr::null_mut() };
    Ok(())
}

/// Fill in a view: bytes, one dimension. It has a reference to `owner` from now on.
///
/// # Safety
///
/// `view` has been cleared. From `start` on `length` bytes are mapped while `owner` lives and has the view, and may be
/// used as `access` says.
pub unsafe fn fill(
    view: *mut ffi::Py_buffer,
    owner: &Bound<'_, PyAny>,
    (start, length): (*mut u8, usize),
    access: Access,
    flags: c_int,
) -> PyResult<()> {
    let length = ffi::Py_ssize_t::try_from(length).expect("mapped memory is below 2^63 bytes");
    let readonly = c_int::from(matches!(access, Access::Read));
    let start = start.cast();
    // SAFETY: the view is Python's to be filled in, and the memory is what the caller says.
    let failed =
        unsafe { ffi::PyBuffer_FillInfo(view, owner.as_ptr(), start, length, readonly, flags) }
            != 0;
    if failed {
        return Err(PyErr::fetch(owner.py()));
    }
    Ok(())
}
