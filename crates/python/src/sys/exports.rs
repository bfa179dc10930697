//! Python buffers that pulls and pushes use until no transfer reads or writes them any more.
use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use forebay_memory::{Lease, Quarantined};
use forebay_tensor::{Span, Words};
use pyo3::ffi;
use pyo3::prelude::*;

use super::loan::{Want, release};
use crate::memory::block_under;

/// Any number of exports, which end with it.
pub struct Exports {
    /// Never grown beyond its first room: exporters may point from one field of a view into another.
    views: Vec<ffi::Py_buffer>,
    /// Keeps arena blocks that are still in use after their caller gave up, and has the arenas count them.
    quarantined: Mutex<Vec<Quarantined>>,
}

// SAFETY: the exports are plain memory until they are released, which happens with the GIL.
unsafe impl Send for Exports {}
// SAFETY: as above; nothing is read or written through a shared reference but by `put`, which needs the GIL.
unsafe impl Sync for Exports {}

impl Exports {
    /// Room for `count` of them.
    pub fn with_room(count: usize) -> Self {
        Self {
            views: Vec::with_capacity(count),
            quarantined: Mutex::default(),
        }
    }

    /// Take an export; the error is the exporter's own.
    ///
    /// # Panics
    ///
    /// Where there is no room.
    pub fn take(&mut self, object: &Bound<'_, PyAny>, want: Want) -> PyResult<Span> {
        assert!(
            self.views.len() < self.views.capacity(),
            "more exports than there is room for"
        );
        self.views.push(ffi::Py_buffer::new());
        let view = self.views.last_mut().expect("pushed above");
        // SAFETY: the object is alive; the view is empty, ours, and does not move.
        let status = unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), view, want.flags()) };
        if status != 0 {
            self.views.pop(); // whatever the exporter left there
            return Err(PyErr::fetch(object.py()));
        }
        Ok(span(view))
    }

    /// Take an export of row numbers: one row of 64-bit integers.
    ///
    /// None where it has others, or another shape.
    pub fn take_words(&mut self, object: &Bound<'_, PyAny>) -> PyResult<Option<Words>> {
        let taken = self.take(object, Want::Values)?;
        let view = self.views.last().expect("taken above");
        let fits = view.ndim == 1 && view.itemsize == 8 && is_integer(view);
        Ok(fits.then(|| Words::new(taken)))
    }

    /// Take an export of room for `count` numbers of 64 bits; whether it is that.
    pub fn take_room(&mut self, object: &Bound<'_, PyAny>, count: usize) -> PyResult<bool> {
        self.take(object, Want::WritableValues)?;
        let view = self.views.last().expect("taken above");
        Ok(view.itemsize == 8 && is_integer(view) && usize::try_from(view.len) == Ok(count * 8))
    }

    /// The caller gave up while bytes may still move here: have arenas count their blocks until the exports end.
    pub fn quarantine(&self, py: Python<'_>) {
        let of = |view: &ffi::Py_buffer| {
            // SAFETY: a filled view holds a reference to its object, which is alive while the export is held.
            let object = unsafe { Bound::from_borrowed_ptr_or_opt(py, view.obj) }?;
            block_under(&object).and_then(|buffer| buffer.get().lease())
        };
        let written = self.views.iter().filter(|view| view.readonly == 0);
        let leases: Vec<_> = written.filter_map(of).collect();
        let mut quarantined = self
            .quarantined
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        quarantined.extend(leases.iter().map(Lease::quarantine));
    }

    /// Write number `index` of the export that was taken last.
    pub fn put(&self, _py: Python<'_>, index: usize, value: u64) {
        let Some(view) = self.views.last() else {
            return;
        };
        let room = usize::try_from(view.len).unwrap_or(0) / 8;
        if view.readonly == 0 && index < room {
            // SAFETY: in range; the export is held and writable. At any alignment.
            unsafe { view.buf.cast::<u64>().add(index).write_unaligned(value) };
        }
    }
}

/// The memory of an export.
fn span(view: &ffi::Py_buffer) -> Span {
    let start = NonNull::new(view.buf.cast()).unwrap_or(NonNull::dangling());
    let bytes = usize::try_from(view.len).unwrap_or(0);
    // SAFETY: the export holds the memory until it is released, which is when the machine that got the span has handed its
    // keeper back. It was asked for as writable where it is a destination or a tensor; that no one else uses it meanwhile is
    // the documented duty of the lender, and nothing depends on what the bytes are.
    unsafe { Span::new(start, bytes) }
}

/// Whether the values of a view are 64-bit integers in the machine's order. `l` is of that size here, as `itemsize` says.
fn is_integer(view: &ffi::Py_buffer) -> bool {
    if view.format.is_null() {
        return false;
    }
    // SAFETY: a filled view's format is a string that lives as long as the export.
    let format = unsafe { CStr::from_ptr(view.format) }.to_bytes();
    match format {
        [code] | [b'@' | b'=' | b'<', code] => b"qQlL".contains(code),
        _ => false,
    }
}

impl Drop for Exports {
    fn drop(&mut self) {
        if !self.views.is_empty() {
            Python::attach(|py| {
                for view in &mut self.views {
                    release(view, py);
                }
            });
        }
    }
}
