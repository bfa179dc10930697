//! Python buffers that a batch of block I/O uses until it is done.
//!
//! A loan lives in an `Arc` from the start: exporters may point from one field of a view into another, so it never moves.
//! A batch that is handed over holds one reference as its keeper, and the waiting caller another;
//! with the last of them the exports end. In the blocking face one loan for each thread is used again and again.
use std::cell::{Cell, UnsafeCell};
use std::ffi::{CStr, c_int};
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use forebay_blockio::{Lent, Memory, Operation, Results};
use forebay_memory::{Lease, Quarantined};
use pyo3::ffi;
use pyo3::prelude::*;

/// What a buffer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Offsets or operations.
    Items,
    Lengths,
    /// What the kernel reads or writes.
    Memory,
    Results,
}

const ROLES: usize = 4;

/// How an export is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// One run of bytes, to be read.
    Bytes,
    /// One run of bytes, to be written.
    WritableBytes,
    /// Values with their format, to be read.
    Values,
    /// Values with their format, to be written.
    WritableValues,
}

impl Want {
    pub(super) fn flags(self) -> c_int {
        match self {
            Self::Bytes => ffi::PyBUF_SIMPLE,
            Self::WritableBytes => ffi::PyBUF_WRITABLE,
            Self::Values => ffi::PyBUF_ND | ffi::PyBUF_FORMAT,
            Self::WritableValues => ffi::PyBUF_ND | ffi::PyBUF_FORMAT | ffi::PyBUF_WRITABLE,
        }
    }
}

/// Types of which any bytes are a value.
pub trait Plain: Copy {}
impl Plain for u8 {}
impl Plain for u32 {}
impl Plain for u64 {}
impl Plain for i64 {}
impl Plain for Operation {}

thread_local! {
    /// The loan that this thread's blocking calls use, while none of them is running.
    static SPARE: Cell<Option<Arc<Loan>>> = const { Cell::new(None) };
}

/// The buffers of one batch, and room for an operation that Python did not list.
pub struct Loan {
    views: [ffi::Py_buffer; ROLES],
    own: Operation,
    own_result: UnsafeCell<i64>,
    /// Keeps a cancelled batch's block of an arena, and has the arena count it.
    quarantined: OnceLock<Quarantined>,
}

// SAFETY: the exports are plain memory until they are released, which happens with the GIL.
unsafe impl Send for Loan {}
// SAFETY: as above; shared references read plain memory alone, volatile, and `own_result` is only reached through pointers.
unsafe impl Sync for Loan {}

impl Loan {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            views: std::array::from_fn(|_| ffi::Py_buffer::new()),
            own: Operation::default(),
            own_result: UnsafeCell::new(0),
            quarantined: OnceLock::new(),
        })
    }

    /// A loan without exports; this thread's spare one where there is one.
    pub fn spare() -> Arc<Self> {
        SPARE.take().unwrap_or_else(Self::new)
    }

    /// A loan without exports, for a batch that is handed over.
    pub fn fresh() -> Arc<Self> {
        Self::new()
    }

    /// End the exports, and keep the loan for the thread's next call.
    pub fn put_back(mut loan: Arc<Self>, py: Python<'_>) {
        if let Some(own) = Arc::get_mut(&mut loan) {
            own.end(py);
            SPARE.set(Some(loan));
        }
    }

    /// Take an export of `object`; the error is the exporter's own.
    pub fn take(&mut self, role: Role, object: &Bound<'_, PyAny>, want: Want) -> PyResult<()> {
        let flags = want.flags();
        let view = &mut self.views[role as usize];
        release(view, object.py());
        // SAFETY: the object is alive; the view is empty, ours, and does not move, being in an Arc.
        let status = unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), view, flags) };
        if status == 0 {
            return Ok(());
        }
        *view = ffi::Py_buffer::new(); // whatever the exporter left there
        Err(PyErr::fetch(object.py()))
    }

    /// Let a buffer go again, before the batch is made.
    pub fn give_up(&mut self, role: Role, py: Python<'_>) {
        release(&mut self.views[role as usize], py);
    }

    pub fn bytes(&self, role: Role) -> usize {
        usize::try_from(self.views[role as usize].len).unwrap_or(0)
    }

    /// The format of its values, as the module `struct` writes it.
    pub fn format(&self, role: Role) -> &[u8] {
        let view = &self.views[role as usize];
        if view.obj.is_null() || view.format.is_null() {
            return b"B"; // the default of the buffer protocol
        }
        // SAFETY: a filled view's format is a string that lives as long as the export.
        unsafe { CStr::from_ptr(view.format) }.to_bytes()
    }

    /// How many dimensions its values have, where values were asked for.
    pub fn dimensions(&self, role: Role) -> usize {
        usize::try_from(self.views[role as usize].ndim).unwrap_or(0)
    }

    /// Whether its values are one behind the other, each of the size of a `T`.
    pub fn is_row_of<T: Plain>(&self, role: Role) -> bool {
        let item_bytes = self.views[role as usize].itemsize;
        self.dimensions(role) == 1 && usize::try_from(item_bytes) == Ok(size_of::<T>())
    }

    /// The buffer as values of `T`, unless their size or address is another's.
    fn values<T: Plain>(&self, role: Role) -> Option<(NonNull<T>, usize)> {
        let bytes = self.bytes(role);
        if bytes == 0 {
            return Some((NonNull::dangling(), 0));
        }
        let start = NonNull::new(self.views[role as usize].buf.cast::<T>())?;
        (start.is_aligned() && bytes.is_multiple_of(size_of::<T>()))
            .then_some((start, bytes / size_of::<T>()))
    }

    /// Values that the batch reads.
    pub fn lent<T: Plain>(&self, role: Role) -> Option<Lent<T>> {
        let (start, count) = self.values(role)?;
        // SAFETY: aligned and so many, as looked at; any bytes are a `T`. The export is held by the loan, and the loan by
        // the batch's keeper, or by the blocking call.
        Some(unsafe { Lent::new(start, count) })
    }

    /// Where the batch's results go.
    pub fn results(&self) -> Option<Results> {
        let (start, count) = self.values(Role::Results)?;
        // SAFETY: as in `lent`; the export was asked for as writable.
        Some(unsafe { Results::new(start, count) })
    }

    /// The batch's buffer; none is no bytes.
    pub fn memory(&self) -> Memory {
        let view = &self.views[Role::Memory as usize];
        let start = NonNull::new(view.buf.cast()).unwrap_or(NonNull::dangling());
        let writable = view.readonly == 0 && !view.obj.is_null();
        // SAFETY: as in `lent`. That no Rust reference to the bytes exists is the documented duty of the lender; they
        // only go through the kernel, nothing depends on them.
        unsafe { Memory::new(start, self.bytes(Role::Memory), writable) }
    }

    /// An operation of ours, and room for its result.
    pub fn own(&mut self, operation: Operation) -> (Lent<Operation>, Results) {
        self.own = operation;
        let result = NonNull::new(self.own_result.get()).unwrap_or(NonNull::dangling());
        // SAFETY: both are fields of the loan, which the batch's keeper or the blocking call holds.
        unsafe {
            (
                Lent::new(NonNull::from(&self.own), 1),
                Results::new(result, 1),
            )
        }
    }

    /// What came of our own operation.
    pub fn own_result(&self) -> i64 {
        // SAFETY: a field of ours; volatile, because the core writes it through a pointer.
        unsafe { self.own_result.get().read_volatile() }
    }

    /// Our own operation.
    pub fn own_operation(&self) -> Operation {
        self.own
    }

    /// Value `index` of a buffer, for a message.
    pub fn get<T: Plain>(&self, role: Role, index: usize) -> Option<T> {
        let (start, count) = self.values::<T>(role)?;
        // SAFETY: in range, aligned, and readable while the export is held.
        (index < count).then(|| unsafe { start.add(index).read_volatile() })
    }

    /// The first result below zero: its index, and its value.
    pub fn first_failure(&self) -> Option<(usize, i64)> {
        let (start, count) = self.values::<i64>(Role::Results)?;
        (0..count).find_map(|index| {
            // SAFETY: in range, aligned, and readable while the export is held.
            let result = unsafe { start.add(index).read_volatile() };
            (result < 0).then_some((index, result))
        })
    }

    /// Keep the block of an arena until the loan ends.
    pub fn quarantine(&self, lease: &Lease) {
        _ = self.quarantined.set(lease.quarantine());
    }

    /// End the exports.
    fn end(&mut self, py: Python<'_>) {
        for view in &mut self.views {
            release(view, py);
        }
        self.quarantined.take();
    }
}

/// Lend the bytes of a writable buffer for the length of `using`, with the GIL held; `None` where `object` has no such.
pub fn lend_once<T>(object: &Bound<'_, PyAny>, using: impl FnOnce(&Memory) -> T) -> Option<T> {
    let mut view = ffi::Py_buffer::new();
    // SAFETY: the object is alive; the view is empty, ours, and stays where it is.
    let status =
        unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut view, ffi::PyBUF_WRITABLE) };
    if status != 0 {
        drop(PyErr::take(object.py()));
        return None;
    }
    let start = NonNull::new(view.buf.cast()).unwrap_or(NonNull::dangling());
    let bytes = usize::try_from(view.len).unwrap_or(0);
    // SAFETY: the export is held until it is released below; as in `Loan::memory`.
    let memory = unsafe { Memory::new(start, bytes, true) };
    let used = using(&memory);
    release(&mut view, object.py());
    Some(used)
}

pub(super) fn release(view: &mut ffi::Py_buffer, _py: Python<'_>) {
    if !view.obj.is_null() {
        // SAFETY: filled in by PyObject_GetBuffer; released once, because that empties `obj`. The GIL is held.
        unsafe { ffi::PyBuffer_Release(view) }
        *view = ffi::Py_buffer::new(); // its address and length stay there otherwise
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if self.views.iter().any(|view| !view.obj.is_null()) {
            Python::attach(|py| self.end(py));
        }
    }
}
