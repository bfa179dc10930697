//! Received bytes as a writable Python buffer.
#![allow(clippy::needless_pass_by_value)] // PyO3 passes `self` by value

use std::ffi::c_int;

use forebay_transport::Buffer;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

/// Bytes of a received frame; numpy arrays may be made over it without a copy and written to.
///
/// The memory is freed with the last buffer made from it. It is aligned to 64 bytes.
/// A long frame of a message that came through shared memory is read-only; it goes back to its sender, as does a segment
/// of a call that was lent, which may be written and whose written pages are this process's alone.
#[pyclass(frozen, module = "forebay._core")]
pub struct Frame {
    buffer: Buffer,
}

impl Frame {
    pub fn new(buffer: Buffer) -> Self {
        Self { buffer }
    }
}

#[pymethods]
impl Frame {
    fn __len__(&self) -> usize {
        self.buffer.len()
    }

    /// Lend the bytes out.
    ///
    /// # Safety
    /// The interpreter passes a view to fill in, as the buffer protocol says.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let buffer = &slf.get().buffer;
        let Ok(length) = isize::try_from(buffer.len()) else {
            return Err(PyBufferError::new_err("the frame is too long for a buffer"));
        };
        // SAFETY: the view comes from the interpreter; it takes a reference to `slf`, which keeps
        // the memory. Rust reads the bytes no more once they are a Frame, so that writes through
        // the view meet no shared reference. What another process owns is lent for reading only.
        let status = unsafe {
            ffi::PyBuffer_FillInfo(
                view,
                slf.as_ptr(),
                buffer.pointer().cast(),
                length,
                c_int::from(buffer.is_read_only()),
                flags,
            )
        };
        if status == 0 {
            Ok(())
        } else {
            Err(PyErr::fetch(slf.py()))
        }
    }
}
