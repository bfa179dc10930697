//! The system calls of the fallback: one transfer each, from or to memory that a batch lends.
//!
//! They are made with plain addresses: others may write the memory meanwhile, so there is never a reference to it.
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use libc::{c_int, c_void, off_t};
use rustix::io::Errno;

use crate::batch::LENGTH_BYTES_MAX;
use crate::file::BlockFile;
use crate::flight::Issue;
use crate::operation::Kind;
use crate::sys::lent::Memory;

/// An operation that a thread carries out by itself. It holds as long as its batch, which keeps memory and file, is there:
/// as long as its slot is flying, or memory and file are borrowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    kind: Kind,
    descriptor: RawFd,
    offset: u64,
    address: u64,
    length: u32,
}

impl Transfer {
    pub(crate) fn of(issue: &Issue<'_>) -> Self {
        Self {
            kind: issue.kind,
            descriptor: issue.file.as_fd().as_raw_fd(),
            offset: issue.offset,
            address: issue.address,
            length: issue.length,
        }
    }

    /// A read of as much as there is memory for; `None` where no file reaches so far.
    pub(crate) fn cached(file: &BlockFile, offset: u64, memory: &Memory) -> Option<Self> {
        let length = u32::try_from(memory.bytes()).ok()?;
        let end = offset.checked_add(length.into())?;
        let fits = length <= LENGTH_BYTES_MAX && i64::try_from(end).is_ok();
        fits.then(|| Self {
            kind: Kind::Read,
            descriptor: file.as_fd().as_raw_fd(),
            offset,
            address: memory.address(),
            length,
        })
    }

    /// Read what is in the page cache; `None` where that is not all of it, or is unknown without waiting.
    ///
    /// Source: preadv2(2) on `RWF_NOWAIT`. It stops at the first page that is missing, so a short read is no end of file.
    pub(crate) fn read_now(&self) -> Option<i32> {
        let mut moved = 0;
        while moved < self.length {
            let vector = libc::iovec {
                iov_base: self.memory(moved),
                iov_len: (self.length - moved) as usize,
            };
            let (descriptor, offset) = (self.descriptor, self.position(moved));
            // Not the C library's wrapper, in which a thread can be cancelled: that costs a twentieth of a cached read.
            // The two halves of the offset are one register here, and the second is looked at on 32 bits alone.
            // SAFETY: the batch is there, which keeps the memory mapped and the file open;
            // the batch's check found it writable and within bounds. The kernel alone follows the address.
            let read = unsafe {
                let (high, flags) = (0_usize, libc::RWF_NOWAIT);
                libc::syscall(
                    libc::SYS_preadv2,
                    descriptor,
                    &raw const vector,
                    1_usize,
                    offset,
                    high,
                    flags,
                )
            };
            match u32::try_from(read) {
                Ok(0) => break, // the end of the file
                Ok(bytes) => moved += bytes,
                Err(_) => return None, // the thread that waits finds out why
            }
        }
        Some(moved.cast_signed())
    }

    /// Carry it out, however long it takes; returns bytes, or a negative `errno`.
    ///
    /// What has no offsets, such as a pipe, is read and written where it stands, as a ring does.
    pub(crate) fn carry_out(&self) -> i32 {
        let Self {
            kind, descriptor, ..
        } = *self;
        let (memory, length, offset) = (self.memory(0), self.length as usize, self.position(0));
        match kind {
            Kind::Read => {
                // SAFETY: as in `read_now`.
                let positioned = || unsafe { libc::pread(descriptor, memory, length, offset) };
                // SAFETY: as in `read_now`.
                let plain = || unsafe { libc::read(descriptor, memory, length) };
                moved(positioned, plain)
            }
            Kind::Write => {
                // SAFETY: as in `read_now`, but that the memory is only read.
                let positioned = || unsafe { libc::pwrite(descriptor, memory, length, offset) };
                // SAFETY: as in `read_now`, but that the memory is only read.
                let plain = || unsafe { libc::write(descriptor, memory, length) };
                moved(positioned, plain)
            }
            // SAFETY: touches no memory; the batch keeps the file open.
            Kind::Fsync => outcome(unsafe { libc::fsync(descriptor) } as isize),
            // SAFETY: touches no memory; the batch keeps the file open.
            Kind::Fdatasync => outcome(unsafe { libc::fdatasync(descriptor) } as isize),
        }
    }

    fn memory(&self, moved: u32) -> *mut c_void {
        // The lender of the memory exposed its address.
        let address = usize::try_from(self.address).expect("it was a pointer");
        std::ptr::with_exposed_provenance_mut(address + moved as usize)
    }

    fn position(&self, moved: u32) -> off_t {
        // Checked with the batch: no operation reaches beyond i64::MAX.
        (self.offset + u64::from(moved)).cast_signed()
    }
}

fn moved(positioned: impl Fn() -> isize, plain: impl Fn() -> isize) -> i32 {
    let result = outcome(positioned());
    if result == -Errno::SPIPE.raw_os_error() {
        return outcome(plain());
    }
    result
}

/// What a system call returned, as a completion says it.
fn outcome(returned: isize) -> i32 {
    if returned >= 0 {
        return c_int::try_from(returned).expect("an operation has less than 2^31 bytes");
    }
    let errno = io::Error::last_os_error().raw_os_error();
    -errno.expect("the last error of the system has a number")
}
