//! A file mapped as words that two threads use without a lock.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The beginning of a file as words of 64 bits, shared with the page cache: what is stored outlives this process.
#[derive(Debug)]
pub(crate) struct Words {
    start: NonNull<AtomicU64>,
    count: usize,
    /// Kept open, for the lock on it.
    file: File,
}

// SAFETY: the mapping is valid from any thread until the drop, and is only read and written as atomics.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// Map `count` words of `file`. No process may shorten it, or map it for writing: the caller holds its lock.
    ///
    /// The blocks are obtained first: a full disk is an error here, not a SIGBUS at a store.
    pub(crate) fn map(file: File, count: usize) -> io::Result<Self> {
        let bytes = count * size_of::<AtomicU64>();
        match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes as u64) {
            Ok(()) => {}
            Err(rustix::io::Errno::OPNOTSUPP) => fill(&file, bytes)?,
            Err(errno) => return Err(errno.into()),
        }
        let writable = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: with a null hint and without MAP_FIXED the kernel picks addresses that nothing else uses.
        let start = unsafe {
            mmap(
                ptr::null_mut(),
                bytes,
                writable,
                MapFlags::SHARED,
                file.as_fd(),
                0,
            )?
        };
        let start = NonNull::new(start.cast())
            .ok_or_else(|| io::Error::other("mmap returned address 0"))?;
        Ok(Self { start, count, file })
    }

    /// The file, for its lock.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

/// Write zeros where the file ends early, for file systems without `fallocate`.
fn fill(mut file: &File, bytes: usize) -> io::Result<()> {
    use std::io::{Seek, SeekFrom, Write};

    let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    file.seek(SeekFrom::End(0))?;
    file.write_all(&vec![0; bytes.saturating_sub(length)])
}

impl std::ops::Deref for Words {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has `count` words, is aligned to a page and lives as long as `self`; any bytes are a valid
        // word. Another process that breaks the lock's rule may write too: words stay words.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        let bytes = self.count * size_of::<AtomicU64>();
        // SAFETY: start and size are those that mmap gave; the slices that were lent ended with the borrow of `self`.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), bytes) };
        debug_assert!(unmapped.is_ok(), "munmap: {unmapped:?}");
    }
}
