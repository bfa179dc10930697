//! Writable Python buffers that the transport receives into.

use std::ptr::NonNull;

use forebay_transport::Buffer;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

/// A writable export of an object's memory, and the object.
pub struct Given {
    object: Py<PyAny>,
    /// In a place of its own: exporters may point from one field into another.
    view: Box<ffi::Py_buffer>,
}

// SAFETY: the export is plain memory until it is released, which `drop` does with the GIL.
unsafe impl Send for Given {}
// SAFETY: as above; nothing is read or written through a shared reference.
unsafe impl Sync for Given {}

impl Given {
    /// Take a writable export of exactly `bytes` bytes.
    pub fn new(object: Bound<'_, PyAny>, bytes: usize) -> PyResult<Self> {
        let mut view = Box::new(ffi::Py_buffer::new());
        // SAFETY: the object is alive, the view is ours; one run of writable bytes is asked for.
        let status = unsafe {
            ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut *view, ffi::PyBUF_WRITABLE)
        };
        if status != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        let given = Self {
            object: object.unbind(),
            view,
        };
        if usize::try_from(given.view.len) != Ok(bytes) {
            return Err(PyBufferError::new_err(format!(
                "memory for a frame of {bytes} bytes has {}; give exactly what is asked for",
                given.view.len
            )));
        }
        Ok(given)
    }

    /// Memory for the transport, which has no other user until this comes back.
    pub fn into_buffer(self) -> Buffer {
        let bytes = usize::try_from(self.view.len).unwrap_or(0);
        let pointer = NonNull::new(self.view.buf.cast()).unwrap_or(NonNull::dangling());
        // SAFETY: the export holds the memory, writable, until `self` is dropped. That no one else uses it meanwhile
        // is the documented duty of the caller; the bytes only go through the kernel, nothing depends on them.
        unsafe { Buffer::given(pointer, bytes, Box::new(self)) }
    }

    /// The object, its export released.
    pub fn into_object(self) -> Py<PyAny> {
        Python::attach(|py| self.object.clone_ref(py))
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        Python::attach(|_| {
            // SAFETY: the view was filled in by PyObject_GetBuffer and is released once.
            unsafe { ffi::PyBuffer_Release(&raw mut *self.view) }
        });
    }
}
