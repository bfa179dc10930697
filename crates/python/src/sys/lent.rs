//! Python buffers lent to the transport while it sends them.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

/// The bytes of any C-contiguous Python buffer, whatever its format.
///
/// The export is held until this is dropped, so the memory can neither move nor be freed.
/// Dropping takes the GIL if the thread does not hold it.
pub struct Lent {
    buffer: PyUntypedBuffer,
}

impl Lent {
    /// Take an export of `object`.
    pub fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(object)?;
        if !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err(
                "a buffer to send must be C-contiguous",
            ));
        }
        Ok(Self { buffer })
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        let length = self.buffer.len_bytes();
        if length == 0 {
            return &[];
        }
        // SAFETY: the export is contiguous and stays valid while `self` lives. The owner must not
        // write during the send (the documented rule); if it does, the peer gets a mix of old and
        // new bytes: the pointer only goes to the kernel, nothing here depends on the content.
        unsafe { std::slice::from_raw_parts(self.buffer.buf_ptr().cast(), length) }
    }
}
