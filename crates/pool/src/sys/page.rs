//! A page of atomic words that client and keeper both map.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::error::{Error, Result};
use crate::limit::SERVICES_MAX;

/// What is kept per service; both fields change by atomic operations alone.
#[repr(C)]
#[derive(Debug)]
pub struct Cell {
    /// State and generation, see `word`.
    pub word: AtomicU64,
    /// Monotonic milliseconds at which the service went idle.
    pub since_ms: AtomicU64,
}

/// One more than services: that of a slot above the limit, in which nothing is ever started.
const CELLS: usize = SERVICES_MAX as usize + 1;
const BYTES: usize = CELLS * size_of::<Cell>();

/// A shared mapping of a cell for each service.
#[derive(Debug)]
pub struct Page {
    start: NonNull<Cell>,
}

// SAFETY: the mapping is plain memory of atomics that lives as long as the value.
unsafe impl Send for Page {}
// SAFETY: as above; all access goes through atomics.
unsafe impl Sync for Page {}

impl Page {
    /// Make a new page and the descriptor that hands it to the keeper.
    pub fn create() -> Result<(Self, OwnedFd)> {
        let fd = rustix::fs::memfd_create(
            "forebay-pool",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )
        .map_err(Error::system("memfd_create"))?;
        rustix::fs::ftruncate(&fd, BYTES as u64).map_err(Error::system("ftruncate"))?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(Error::system("fcntl(F_ADD_SEALS)"))?;
        Ok((Self::map(&fd)?, fd))
    }

    /// Map the page behind a descriptor.
    pub fn map(fd: impl AsFd) -> Result<Self> {
        let size = rustix::fs::fstat(&fd)
            .map_err(Error::system("fstat"))?
            .st_size;
        if usize::try_from(size).ok() != Some(BYTES) {
            return Err(Error::Malformed {
                what: "the shared page has another size",
            });
        }
        // SAFETY: a fresh mapping chosen by the kernel; the file is sealed against shrinking, so no access can fault.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd,
                0,
            )
        }
        .map_err(Error::system("mmap"))?;
        let start = NonNull::new(start.cast()).ok_or(Error::Malformed {
            what: "mapped at null",
        })?;
        Ok(Self { start })
    }

    /// The cell of a slot. All slots above the limit have one together: room that was granted there is given back
    /// with an error, and no service and no lease comes of it.
    pub fn cell(&self, slot: u32) -> &Cell {
        let index = slot.min(SERVICES_MAX) as usize;
        // SAFETY: in bounds by the minimum; zeroed memory is a valid Cell; the mapping lives as long as self.
        unsafe { self.start.add(index).as_ref() }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: start and length are those of the mapping made above; no reference outlives self.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), BYTES) };
    }
}
