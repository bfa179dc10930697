//! `Buffer`: a lease of a block for Python, with the buffer protocol, which is where the `unsafe` comes from.
//!
//! # Invariant
//!
//! *A lease is not dropped while its address is in use.*
//! A `memoryview` or an array made from it counts as an export and holds the buffer object itself;
//! while there is one, `free` refuses and the object cannot go.
//! An address read from `__array_interface__` is never given back, so `free` refuses from then on.
//!
//! The lock is taken with the GIL held only, and no Python code runs under it,
//! so a fork, which needs the GIL, never finds it locked.
#![allow(unsafe_code)]
#![allow(clippy::doc_markdown, clippy::needless_pass_by_value)] // Python docstrings; signatures that PyO3 asks for
mod rows;
mod view;
mod window;

use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use forebay_memory::Lease;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use crate::error::{self, Result};
pub(crate) use rows::Rows;
pub(crate) use window::Window;

#[derive(Debug)]
struct Held {
    /// None once freed.
    lease: Option<Lease>,
    /// Live views by the buffer protocol.
    exports: usize,
    /// The address was read from `__array_interface__`.
    address_given: bool,
}

/// Why a buffer refused. Made into an exception after the lock is let go, because that runs Python code.
enum Refusal {
    Freed,
    Exported(usize),
    AddressGiven,
    Memory(forebay_memory::Error),
}

impl From<forebay_memory::Error> for Refusal {
    fn from(error: forebay_memory::Error) -> Self {
        Self::Memory(error)
    }
}

impl From<Refusal> for error::Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Freed => error::stale("the buffer was freed; allocate another one"),
            Refusal::Exported(views) => error::busy(format!(
                "{views} memoryviews or arrays use the buffer; drop them before free()"
            )),
            Refusal::AddressGiven => error::busy(
                "__array_interface__ gave the buffer's address away; drop the buffer instead of free()",
            ),
            Refusal::Memory(refused) => refused.into(),
        }
    }
}

impl Held {
    fn lease(&self) -> Result<&Lease, Refusal> {
        self.lease.as_ref().ok_or(Refusal::Freed)
    }

    /// Address and length, for a user of the memory.
    fn span(&self) -> Result<(*mut u8, usize), Refusal> {
        let lease = self.lease()?;
        lease.check()?;
        Ok((lease.as_ptr().as_ptr(), lease.len()))
    }

    /// The lease, if its memory is not in use.
    fn take(&mut self) -> Result<Option<Lease>, Refusal> {
        self.span()?;
        match self {
            Self { exports: 1.., .. } => Err(Refusal::Exported(self.exports)),
            Self {
                address_given: true,
                ..
            } => Err(Refusal::AddressGiven),
            _ => Ok(self.lease.take()),
        }
    }
}

/// Memory of an arena: a lease of one block, writable through the buffer protocol. Made by `Arena`.
///
/// The block goes back to its arena when its last buffer is gone or freed.
/// A `memoryview` or a numpy array made from a buffer keeps it.
///
/// Threads: any; who writes which bytes is the callers' business, as with a bytearray.
#[pyclass(frozen, weakref, module = "forebay._core")]
pub(crate) struct Buffer {
    held: Mutex<Held>,
}

impl Buffer {
    pub(crate) fn new(lease: Lease) -> Self {
        Self {
            held: Mutex::new(Held {
                lease: Some(lease),
                exports: 0,
                address_given: false,
            }),
        }
    }

    /// A further lease of the block; `None` once freed.
    pub(crate) fn lease(&self) -> Option<Lease> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.lease.clone()
    }

    /// Act on what is held, under the lock.
    fn with<T>(&self, act: impl FnOnce(&mut Held) -> Result<T, Refusal>) -> Result<T> {
        // Every change under the lock is one assignment: a panic leaves nothing half done.
        let acted = act(&mut self.held.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(acted?)
    }

    /// Count a view as gone.
    fn release(&self) {
        self.held
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .exports -= 1;
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let held = self.held.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Some(unused) = held.lease.take().map(Lease::give_back) else {
            return;
        };
        if !unused.is_empty() {
            // To unmap a large chunk takes milliseconds. None: Python ends, and no thread waits for its lock.
            let mut unused = Some(unused);
            Python::try_attach(|py| py.detach(|| drop(unused.take())));
        }
    }
}

#[pymethods]
impl Buffer {
    /// Fill in a view of the whole block: bytes, one dimension, writable.
    ///
    /// # Safety
    ///
    /// Called by Python, with a view to fill or null.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> Result<()> {
        // SAFETY: Python passes a view to fill or null.
        unsafe { view::clear(view) }?;
        let span = slf.get().with(|held| {
            let span = held.span()?;
            held.exports += 1;
            Ok(span)
        })?;
        // SAFETY: the block is mapped for its length while the lease lives; the count taken above keeps `free` away,
        // and the view's reference to this object, taken here, keeps the drop away.
        let filled = unsafe { view::fill(view, slf.as_any(), span, view::Access::Write, flags) };
        Ok(filled.inspect_err(|_| slf.get().release())?)
    }

    /// Count a view as gone.
    ///
    /// # Safety
    ///
    /// Called by Python, once for each view that was filled in.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.release();
    }

    fn __len__(&self) -> Result<usize> {
        self.with(|held| Ok(held.lease()?.len()))
    }

    /// The size in bytes.
    #[getter]
    fn nbytes(&self) -> Result<usize> {
        self.__len__()
    }

    /// The block's name for a message: a `forebay.memory.Reference`.
    ///
    /// It keeps nothing alive; `Arena.view` makes a buffer of it while the block lives, and raises `StaleError` after.
    #[getter]
    fn reference<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let reference = self.with(|held| Ok(held.lease()?.reference()))?;
        let class = CLASS.get_or_try_init(py, || {
            py.import("forebay.memory._reference")?
                .getattr("Reference")
                .map(Bound::unbind)
        })?;
        let forebay_memory::Reference {
            region,
            chunk,
            offset,
            length,
            generation,
        } = reference;
        let class = class.bind(py);
        Ok(class.call1((region, chunk, offset, length, generation))?)
    }

    /// The memory as numpy's array interface, version 3.
    ///
    /// Reading it gives the address away for good: `free` refuses from then on,
    /// and the memory goes back when this object is gone. Prefer the buffer protocol, as `numpy.asarray` does.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let (start, length) = self.with(|held| {
            let span = held.span()?;
            held.address_given = true;
            Ok(span)
        })?;
        let interface = PyDict::new(py);
        interface.set_item("shape", (length,))?;
        interface.set_item("typestr", "|u1")?;
        interface.set_item("data", (start.expose_provenance(), false))?;
        interface.set_item("version", 3)?;
        Ok(interface)
    }

    /// The memory as a DLPack capsule: bytes, one dimension, on the CPU, not copied.
    ///
    /// The capsule, and what is made of it, keeps the block as an array does. Made by numpy, which takes the same
    /// keywords: `stream`, `max_version`, `dl_device`, `copy`.
    #[pyo3(signature = (**keywords))]
    fn __dlpack__<'py>(
        slf: &Bound<'py, Self>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let array = slf.py().import("numpy")?.call_method1("asarray", (slf,))?;
        array.call_method("__dlpack__", (), keywords)
    }

    /// The device of the memory in DLPack's terms: 1, the CPU, and its number 0.
    #[allow(clippy::unused_self)] // the protocol asks the object
    fn __dlpack_device__(&self) -> (i32, i32) {
        (1, 0)
    }

    /// Give the lease back now rather than when this object is gone.
    ///
    /// The block is free unless another buffer (from `Arena.view`) holds it.
    ///
    /// Raises:
    ///     BusyError: a memoryview or an array still uses the memory; nothing has changed.
    ///     StaleError: it was freed before.
    fn free(&self, py: Python<'_>) -> Result<()> {
        let lease = self.with(Held::take)?;
        py.detach(|| drop(lease));
        Ok(())
    }

    fn __repr__(&self) -> Result<String> {
        self.with(|held| {
            Ok(match &held.lease {
                Some(lease) => format!("<forebay.memory.Buffer of {} bytes>", lease.len()),
                None => "<forebay.memory.Buffer, freed>".into(),
            })
        })
    }
}
