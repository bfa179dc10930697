//! Memory that a caller lends for the length of a batch, which others may write meanwhile.
//!
//! No reference to it is ever made: values are copied out, and checked after they were copied.
#[cfg(test)]
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, Ordering};

/// `count` values that are read; other threads and processes may change them at any time.
#[derive(Debug)]
pub struct Lent<T> {
    start: NonNull<T>,
    count: usize,
}

// SAFETY: plain memory, valid from any thread as long as `new` promised.
unsafe impl<T: Send> Send for Lent<T> {}

impl<T: Copy> Lent<T> {
    /// Borrow `count` values at `start`.
    ///
    /// # Safety
    ///
    /// `start` is aligned for `T`, any bytes are a valid `T`,
    /// and the memory stays readable until the batch that it becomes a part of is done.
    pub unsafe fn new(start: NonNull<T>, count: usize) -> Self {
        Self { start, count }
    }

    /// How many values there are.
    pub fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn get(&self, index: usize) -> T {
        assert!(index < self.count, "beyond what was lent");
        // SAFETY: in range, aligned and readable as `new` promised; volatile, so it is read once.
        unsafe { self.start.add(index).read_volatile() }
    }
}

/// Where the results of a batch go, one 64-bit number for each operation.
#[derive(Debug)]
pub struct Results {
    start: NonNull<i64>,
    count: usize,
}

// SAFETY: plain memory, valid from any thread as long as `new` promised.
unsafe impl Send for Results {}

impl Results {
    /// Borrow room for `count` results at `start`.
    ///
    /// # Safety
    ///
    /// `start` is aligned, and the memory stays writable until the batch is done.
    /// A reader gets old or new numbers meanwhile.
    pub unsafe fn new(start: NonNull<i64>, count: usize) -> Self {
        Self { start, count }
    }

    /// How many results there is room for.
    pub fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn put(&self, index: usize, result: i64) {
        assert!(index < self.count, "beyond what was lent");
        // SAFETY: in range, aligned and writable as `new` promised; a concurrent reader reads an atomic too, or is
        // not Rust. Released, so that a reader that sees a result sees the bytes that it stands for.
        unsafe { AtomicI64::from_ptr(self.start.add(index).as_ptr()) }
            .store(result, Ordering::Release);
    }
}

/// The buffer of a batch, which the kernel reads or writes.
#[derive(Debug)]
pub struct Memory {
    start: NonNull<u8>,
    bytes: usize,
    writable: bool,
}

// SAFETY: plain memory, valid from any thread as long as `new` promised.
unsafe impl Send for Memory {}

impl Memory {
    /// Borrow `bytes` at `start`; `writable` says whether reads may go there.
    ///
    /// # Safety
    ///
    /// The memory stays mapped, and writable if it says so, until the batch is done.
    /// No reference to it is used meanwhile.
    pub unsafe fn new(start: NonNull<u8>, bytes: usize, writable: bool) -> Self {
        Self {
            start,
            bytes,
            writable,
        }
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether reads may go there.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// The number of the first byte's address.
    pub fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }
}

/// The parts of a batch over a test's own memory, which outlives it.
#[cfg(test)]
pub(crate) fn whole<T: Copy>(
    operations: &mut [T],
    bytes: &mut [u8],
    results: &mut [i64],
) -> (Lent<T>, Memory, Results) {
    changing(
        Cell::from_mut(operations).as_slice_of_cells(),
        bytes,
        results,
    )
}

/// The same over operations that change meanwhile, as those of a caller may.
#[cfg(test)]
pub(crate) fn changing<T: Copy>(
    operations: &[Cell<T>],
    bytes: &mut [u8],
    results: &mut [i64],
) -> (Lent<T>, Memory, Results) {
    // SAFETY: the tests keep all three until the batch is done, and look at them between their steps only.
    unsafe {
        (
            Lent::new(NonNull::from(operations).cast(), operations.len()),
            Memory::new(NonNull::from(&mut *bytes).cast(), bytes.len(), true),
            Results::new(NonNull::from(&mut *results).cast(), results.len()),
        )
    }
}
