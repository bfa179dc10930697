//! Python buffers lent to the transport while it sends them.

use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;

/// The bytes of any C-contiguous Python buffer, whatever its format.
///
/// The export is held until this is dropped, so the memory can neither move nor be freed.
/// Dropping takes the GIL if the thread does not hold it.
pub struct Lent {
    /// In a place of its own: exporters may point from one field into another.
    view: Box<ffi::Py_buffer>,
}

// SAFETY: the export is plain memory until it is released, which `drop` does with the GIL.
unsafe impl Send for Lent {}
// SAFETY: as above; shared references read bytes alone.
unsafe impl Sync for Lent {}

impl Lent {
    /// Take an export of `object`. Raises `BufferError` where it is not C-contiguous, `TypeError` where it has no buffer.
    pub fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let mut view = Box::new(ffi::Py_buffer::new());
        // SAFETY: the object is alive, the view is ours; PyBUF_SIMPLE asks for one run of bytes.
        let status =
            unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut *view, ffi::PyBUF_SIMPLE) };
        if status == 0 {
            return Ok(Self { view });
        }
        let error = PyErr::fetch(object.py());
        if error.is_instance_of::<PyTypeError>(object.py()) {
            return Err(error);
        }
        let kind = object.get_type().name()?; // numpy raises ValueError, others BufferError
        Err(PyBufferError::new_err(format!(
            "this {kind} cannot be sent as it is ({}); make it C-contiguous, as numpy.ascontiguousarray does",
            error.value(object.py())
        )))
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        let length = usize::try_from(self.view.len).unwrap_or(0);
        if length == 0 {
            return &[];
        }
        // SAFETY: the export is contiguous and stays valid while `self` lives. The owner must not
        // write during the send (the documented rule); if it does, the peer gets a mix of old and
        // new bytes: the pointer only goes to the kernel, nothing here depends on the content.
        unsafe { std::slice::from_raw_parts(self.view.buf.cast(), length) }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        Python::attach(|_| {
            // SAFETY: the view was filled in by PyObject_GetBuffer and is released once.
            unsafe { ffi::PyBuffer_Release(&raw mut *self.view) }
        });
    }
}
