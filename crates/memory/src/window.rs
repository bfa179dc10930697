//! A window: another process's chunk, mapped for reading.
//!
//! A mapping of memory that somebody else can shrink ends in SIGBUS, so a window is opened only on a
//! memfd whose size is sealed, and only on one of the same user. What its owner writes can be seen
//! through it at any time: a reader needs an agreement with the writer about when to look, such as
//! an answer that is sent after the last write.
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::mm::ProtFlags;

use crate::error::Error;
use crate::sys::Mapping;

/// What a chunk must be sealed against: then its size is fixed and nobody but its owner can write it.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// Memory of another process, mapped read-only for as long as this lives, whatever becomes of its owner.
#[derive(Debug)]
pub struct Window {
    mapping: Mapping,
    bytes: usize,
}

impl Window {
    /// Map the chunk behind `descriptor`, which is not needed any more afterwards.
    ///
    /// # Errors
    ///
    /// [`Error::Unsafe`] where it is no memfd of a sealed size, can still be written through new
    /// mappings, or belongs to another user; [`Error::System`] if the kernel refuses.
    pub fn open(descriptor: &OwnedFd) -> Result<Self, Error> {
        let system = |call| {
            move |source: io::Error| Error::System {
                arena: "of another process".into(),
                call,
                bytes: 0,
                source,
            }
        };
        let seals = fcntl_get_seals(descriptor).map_err(|_| Error::Unsafe {
            reason: "it is no memfd that can be sealed",
        })?;
        if !seals.contains(SEALS) {
            return Err(Error::Unsafe {
                reason: "its size is not sealed, so that reading it could end this process",
            });
        }
        if !seals.intersects(SealFlags::FUTURE_WRITE | SealFlags::WRITE) {
            return Err(Error::Unsafe {
                reason: "it is not sealed against being written by others than its owner",
            });
        }
        let status = fstat(descriptor).map_err(|errno| system("fstat")(errno.into()))?;
        if status.st_uid != rustix::process::geteuid().as_raw() {
            return Err(Error::Unsafe {
                reason: "it belongs to another user",
            });
        }
        let bytes = usize::try_from(status.st_size).map_err(|_| Error::Unsafe {
            reason: "it has no size that can be mapped",
        })?;
        let mapping =
            Mapping::new(descriptor.as_fd(), bytes, ProtFlags::READ).map_err(system("mmap"))?;
        Ok(Self { mapping, bytes })
    }

    /// Where it begins. The bytes may change at any time, and may only be read.
    pub fn as_ptr(&self) -> *const u8 {
        self.mapping.at(0, self.bytes).as_ptr()
    }

    /// Its size, which never changes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether it holds nothing; a chunk never is.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

    use super::Window;
    use crate::error::Error;

    fn memfd(seals: SealFlags) -> OwnedFd {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let descriptor = memfd_create("test", flags).expect("memory");
        ftruncate(&descriptor, 4096).expect("room");
        fcntl_add_seals(&descriptor, seals).expect("seals");
        descriptor
    }

    fn refused(descriptor: &OwnedFd) -> &'static str {
        match Window::open(descriptor) {
            Err(Error::Unsafe { reason }) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn memory_whose_size_may_change_is_refused() {
        assert!(refused(&memfd(SealFlags::FUTURE_WRITE)).contains("size"));
        assert!(refused(&memfd(SealFlags::FUTURE_WRITE | SealFlags::GROW)).contains("size"));
    }

    #[test]
    fn memory_that_others_may_write_is_refused() {
        assert!(refused(&memfd(SealFlags::SHRINK | SealFlags::GROW)).contains("written"));
    }

    #[test]
    fn a_file_is_refused() {
        let file = std::fs::File::open("/proc/self/exe").expect("this program");
        assert!(refused(&file.into()).contains("memfd"));
    }

    #[test]
    fn a_sealed_memfd_is_mapped() {
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE;
        let window = Window::open(&memfd(seals)).expect("mapped");
        assert_eq!((window.len(), window.is_empty()), (4096, false));
    }
}
