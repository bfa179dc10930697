//! Mapping memory, and copying it.
#![allow(unsafe_code)]
mod copy;

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

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

    #[cfg(test)]
    pub(crate) fn peek(&self, offset: usize) -> u8 {
        // SAFETY: inside the mapping, which may be read.
        unsafe { self.at(offset, 1).read_volatile() }
    }

    /// Write a byte of a writable mapping.
    #[cfg(test)]
    pub(crate) fn poke(&self, offset: usize, value: u8) {
        // SAFETY: inside the mapping, of which the test has no reference.
        unsafe { self.at(offset, 1).write_volatile(value) }
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
