//! Reading the same spans of several windows as one batch.
//!
//! Many small arrays are read often; each numpy assignment costs more than the bytes that it moves.
#![allow(unsafe_code)]
#![allow(clippy::needless_pass_by_value)] // signatures that PyO3 asks for

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;

use super::Window;

/// Spans of several windows: row `n` of each span comes from window `n`.
#[pyclass(frozen, module = "forebay._core")]
pub(crate) struct Rows {
    /// Each with where its part begins.
    windows: Vec<(Py<Window>, usize)>,
    /// Offset in a part, and bytes.
    spans: Vec<(usize, usize)>,
}

#[pymethods]
impl Rows {
    #[new]
    fn new(windows: Vec<(Py<Window>, usize)>, spans: Vec<(usize, usize)>) -> PyResult<Self> {
        for (window, start) in &windows {
            let length = window.get().core.len();
            let fits = |&(offset, bytes): &(usize, usize)| {
                let end = start
                    .checked_add(offset)
                    .and_then(|at| at.checked_add(bytes));
                end.is_some_and(|end| end <= length)
            };
            if !spans.iter().all(fits) {
                return Err(PyValueError::new_err(format!(
                    "a span of {spans:?} lies outside of a window of {length} bytes from {start}"
                )));
            }
        }
        Ok(Self { windows, spans })
    }

    /// Copy each span of each window into its row of one of `targets`.
    fn read(&self, targets: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        if targets.len() != self.spans.len() {
            return Err(PyValueError::new_err("one target for each span is needed"));
        }
        for (target, &(offset, bytes)) in targets.iter().zip(&self.spans) {
            let target = Target::of(target, bytes * self.windows.len())?;
            for (row, (window, start)) in self.windows.iter().enumerate() {
                target.fill(row * bytes, window.get(), start + offset, bytes);
            }
        }
        Ok(())
    }
}

/// Writable, contiguous bytes of a caller's buffer.
struct Target(PyUntypedBuffer);

impl Target {
    /// The memory of `object`, which must have exactly so many bytes.
    fn of(object: &Bound<'_, PyAny>, bytes: usize) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(object)?;
        if buffer.readonly() || !buffer.is_c_contiguous() || buffer.len_bytes() != bytes {
            return Err(PyBufferError::new_err(format!(
                "a target must be {bytes} writable contiguous bytes"
            )));
        }
        Ok(Self(buffer))
    }

    /// Copy `bytes` of a window at `from` to `to`.
    fn fill(&self, to: usize, window: &Window, from: usize, bytes: usize) {
        assert!(to + bytes <= self.0.len_bytes() && from + bytes <= window.core.len());
        // SAFETY: the assertion keeps both ranges inside their memory, which the export and the window hold;
        // they do not overlap, since a window's memory is mapped read-only and a target is writable.
        // The window's owner writes only between a call and its answer, and reading follows the answer;
        // one that breaks this agreement makes a mix of old and new bytes, on which nothing here depends.
        // The target is an array that its maker has not passed on yet.
        unsafe {
            let source = window.core.as_ptr().add(from);
            let target = self.0.buf_ptr().cast::<u8>().add(to);
            forebay_memory::copy(source, target, bytes);
        }
    }
}
