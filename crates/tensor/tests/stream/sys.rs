//! Memory that machines write while a test looks on.
#![allow(unsafe_code)]
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;

use forebay_memory::Lease;
use forebay_tensor::Span;

/// Bytes at a fixed address, of which no reference is ever made.
pub struct Memory {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: owned, and only read and written by copies.
unsafe impl Send for Memory {}
// SAFETY: as above; a byte that is read while somebody writes it is some byte.
unsafe impl Sync for Memory {}

impl Memory {
    pub fn new(content: &[u8]) -> Arc<Self> {
        let owned = Box::leak(content.to_vec().into_boxed_slice());
        let bytes = owned.len();
        let start = NonNull::from(owned).cast();
        Arc::new(Self { start, bytes })
    }

    pub fn zeros(bytes: usize) -> Arc<Self> {
        Self::new(&vec![0; bytes])
    }

    pub fn span(&self) -> Span {
        // SAFETY: whoever is given the span keeps this memory by an `Arc` of it.
        unsafe { Span::new(self.start, self.bytes) }
    }

    pub fn content(&self) -> Vec<u8> {
        let mut copy = Vec::with_capacity(self.bytes);
        // SAFETY: initialised when it was made; the room was reserved, and is nobody else's.
        unsafe {
            self.start.copy_to_nonoverlapping(
                NonNull::from(copy.spare_capacity_mut()).cast(),
                self.bytes,
            );
            copy.set_len(self.bytes);
        }
        copy
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let slice = NonNull::slice_from_raw_parts(self.start, self.bytes);
        // SAFETY: from a leaked box of this size, and nobody has the memory any more.
        drop(unsafe { Box::from_raw(slice.as_ptr()) });
    }
}

/// The memory of a block, which the test keeps leased.
pub fn of_lease(lease: &Lease) -> Span {
    // SAFETY: the caller gives the lease as the keeper of whatever has the span.
    unsafe { Span::new(lease.as_ptr(), lease.len()) }
}

/// A descriptor that its owner keeps open meanwhile.
pub fn borrow<'a>(number: RawFd) -> BorrowedFd<'a> {
    // SAFETY: the caller holds what owns it.
    unsafe { BorrowedFd::borrow_raw(number) }
}

/// A copy of what a block holds.
pub fn content_of(lease: &Lease) -> Vec<u8> {
    let mut copy = vec![0; lease.len()];
    // SAFETY: a block that is leased, into bytes that are nobody else's. The caller asks once the pull into it has
    // ended, or for a block that its own thread writes.
    unsafe {
        let start = lease.as_ptr().as_ptr();
        start.copy_to_nonoverlapping(copy.as_mut_ptr(), copy.len());
    }
    copy
}

/// Copy bytes between blocks, as a device does; each is named with its first byte.
pub fn copy((from, at): (&Lease, usize), (into, to): (&Lease, usize), bytes: usize) {
    assert!(at + bytes <= from.len() && to + bytes <= into.len());
    // SAFETY: inside of two blocks that are leased. The caller holds the lock of the connection, which a writer of
    // `from` takes in `settle` before it writes, and nobody reads `into` before its pull has ended.
    unsafe {
        let start = from.as_ptr().as_ptr().add(at);
        start.copy_to(into.as_ptr().as_ptr().add(to), bytes);
    }
}
