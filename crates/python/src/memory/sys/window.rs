//! `Window`: another process's chunk for Python, with a read-only buffer protocol, which is where the `unsafe` comes from.
//!
//! A `memoryview` or an array made from a window holds the window, and with it the mapping.
#![allow(unsafe_code)]
#![allow(clippy::doc_markdown, clippy::needless_pass_by_value)] // Python docstrings; signatures that PyO3 asks for
use std::ffi::c_int;
use std::os::fd::RawFd;

use pyo3::ffi;
use pyo3::prelude::*;

use super::view;
use crate::error::Result;
use crate::sys::descriptor;

/// A chunk of another process's arena, mapped read-only. Unmapped when nothing uses it any more.
#[pyclass(frozen, weakref, module = "forebay._core")]
pub(crate) struct Window {
    pub(super) core: forebay_memory::Window,
}

#[pymethods]
impl Window {
    /// Map the chunk behind `descriptor`, which is closed even if this raises.
    #[new]
    fn new(descriptor: RawFd) -> Result<Self> {
        let descriptor = descriptor::take(descriptor)?;
        let core = forebay_memory::Window::open(&descriptor)?;
        Ok(Self { core })
    }

    /// Fill in a view of the whole chunk: bytes, one dimension, read-only.
    ///
    /// # Safety
    ///
    /// Called by Python, with a view to fill or null.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        // SAFETY: Python passes a view to fill or null.
        unsafe { view::clear(view) }?;
        let core = &slf.get().core;
        let span = (core.as_ptr().cast_mut(), core.len());
        // SAFETY: the chunk is mapped for its length while this object lives, to which the view gets a reference here;
        // it is marked read-only, so that no one writes through the address.
        unsafe { view::fill(view, slf.as_any(), span, view::Access::Read, flags) }
    }

    fn __len__(&self) -> usize {
        self.core.len()
    }

    fn __repr__(&self) -> String {
        format!("<forebay.memory.Window of {} bytes>", self.core.len())
    }
}
