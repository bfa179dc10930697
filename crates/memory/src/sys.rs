//! Mapping memory and raw bytes: all the `unsafe` of the crate.
#![allow(unsafe_code)]
mod copy;

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::lease::Block;

pub use copy::copy;

/// A chunk's memory, mapped shared until this is dropped; by its owner writable.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is plain memory, valid from any thread until the drop, which needs the last owner;
// this type reads and writes none of it.
unsafe impl Send for Mapping {}
// SAFETY: as above; all methods take `&self` and only compute addresses.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Map `bytes` of `descriptor` for what `protection` says.
    pub(crate) fn new(
        descriptor: BorrowedFd<'_>,
        bytes: usize,
        protection: ProtFlags,
    ) -> io::Result<Self> {
        Self::with_flags(descriptor, bytes, protection, MapFlags::SHARED)
    }

    /// Map `bytes` of `descriptor` for reading, and for writing what this process alone sees.
    ///
    /// Nothing is reserved for the pages that may be written.
    pub(crate) fn private(descriptor: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        let writable = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        Self::with_flags(descriptor, bytes, writable, flags)
    }

    fn with_flags(
        descriptor: BorrowedFd<'_>,
        bytes: usize,
        protection: ProtFlags,
        flags: MapFlags,
    ) -> io::Result<Self> {
        // SAFETY: with a null hint and without MAP_FIXED the kernel picks addresses that nothing else uses.
        let start = unsafe { mmap(ptr::null_mut(), bytes, protection, flags, descriptor, 0)? };
        let start =
            NonNull::new(start.cast()).expect("mmap without MAP_FIXED never returns address 0");
        Ok(Self { start, bytes })
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// Leave it mapped for ever.
    pub(crate) fn forget(&mut self) {
        self.bytes = 0;
    }

    /// Advise the kernel about the pages of a range.
    pub(crate) fn advise(&self, offset: usize, length: usize, advice: Advice) -> io::Result<()> {
        let start = self.at(offset, length);
        // SAFETY: the range lies within the mapping. Of the advices in use, one drops pages that were written here, which
        // the caller's callers have no reference to; one makes pages that read the same as before, one makes them huge.
        unsafe { madvise(start.as_ptr().cast(), length, advice)? };
        Ok(())
    }

    /// The address of the byte at `offset`, with room for `length` bytes behind it.
    pub(crate) fn at(&self, offset: usize, length: usize) -> NonNull<u8> {
        assert!(
            offset <= self.bytes && length <= self.bytes - offset,
            "a block outside of its chunk"
        );
        // SAFETY: the assertion keeps the offset inside the mapping, or one past its end.
        unsafe { self.start.add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return; // forgotten: nothing that is mapped is empty
        }
        // SAFETY: start and size are those that mmap gave; no block has the address any more,
        // because every block that hands it out owns a share of this mapping.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "munmap: {unmapped:?}");
    }
}

/// The bytes of a block, if `holder` is its only lease.
pub(crate) fn sole_bytes(holder: &mut Arc<Block>) -> Option<&mut [u8]> {
    if !holder.is_sole() {
        return None;
    }
    let length = holder.length();
    // SAFETY: the block's memory is mapped while `holder` lives, which the result borrows, and was zeroed by the kernel.
    // This process has no other slice of it: slices come from here alone, to a sole lease, mutably borrowed.
    // A lease that is taken from a reference meanwhile makes two, so it gets none;
    // code that writes through the raw address says in its `SAFETY` line why there is no reader.
    // Other processes can map the chunk for reading only, which the seals see to.
    Some(unsafe { std::slice::from_raw_parts_mut(holder.start().as_ptr(), length) })
}

/// A byte of a window, for tests.
#[cfg(test)]
pub(crate) fn peek(window: &crate::Window, offset: usize) -> u8 {
    assert!(offset < window.len());
    // SAFETY: inside the window, which is mapped.
    unsafe { window.as_ptr().add(offset).read_volatile() }
}

/// Write a byte of a private window, for tests.
#[cfg(test)]
pub(crate) fn poke(window: &crate::Window, offset: usize, value: u8) {
    assert!(offset < window.len());
    // SAFETY: inside the window, which is mapped for writing, and of which the test has no reference.
    unsafe { window.as_ptr().cast_mut().add(offset).write_volatile(value) }
}
