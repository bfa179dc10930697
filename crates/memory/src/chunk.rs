//! A chunk: a memfd, mapped by its owner, then sealed so that all others can only read it.
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::ProtFlags;

use crate::ground::Ground;
use crate::sys::Mapping;

/// One piece of a region. Its memory lives until the chunk and all of its blocks are gone.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// Number in the region, never used again.
    pub(crate) id: u32,
    /// The allocator's name for it.
    pub(crate) root: u32,
    pub(crate) bytes: u64,
    pub(crate) ground: Arc<Ground>,
    descriptor: OwnedFd,
}

/// A chunk that the allocator does not have yet.
#[derive(Debug)]
pub(crate) struct Fresh {
    pub(crate) id: u32,
    pub(crate) bytes: u64,
    pub(crate) ground: Arc<Ground>,
    descriptor: OwnedFd,
}

impl Fresh {
    /// Get `bytes` of zeroed memory from the kernel, a multiple of the page size, for chunk `id` of `region`.
    ///
    /// The order matters: `F_SEAL_FUTURE_WRITE` leaves the mapping that exists writable, and refuses every later one.
    /// On failure: the name of the system call and its error; nothing is left behind.
    pub(crate) fn new(
        name: &str,
        region: u64,
        id: u32,
        bytes: u64,
    ) -> Result<Self, (&'static str, io::Error)> {
        let at =
            |call: &'static str| move |error: rustix::io::Errno| (call, io::Error::from(error));
        let length =
            usize::try_from(bytes).map_err(|_| ("mmap", io::ErrorKind::OutOfMemory.into()))?;
        let descriptor = memfd_create(
            format!("forebay:{name}"),
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )
        .map_err(at("memfd_create"))?;
        ftruncate(&descriptor, bytes).map_err(at("ftruncate"))?;
        let writable = ProtFlags::READ | ProtFlags::WRITE;
        let mapping =
            Mapping::new(descriptor.as_fd(), length, writable).map_err(|error| ("mmap", error))?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        fcntl_add_seals(&descriptor, seals).map_err(at("fcntl(F_ADD_SEALS)"))?;
        Ok(Self {
            id,
            bytes,
            ground: Arc::new(Ground::new(region, id, mapping, length)),
            descriptor,
        })
    }

    /// Make it a chunk with the allocator's `root`.
    pub(crate) fn into_chunk(self, root: u32) -> Chunk {
        let Self {
            id,
            bytes,
            ground,
            descriptor,
        } = self;
        Chunk {
            id,
            root,
            bytes,
            ground,
            descriptor,
        }
    }
}

impl Chunk {
    /// A descriptor for another process, which can map it for reading.
    pub(crate) fn share(&self) -> io::Result<OwnedFd> {
        self.descriptor.try_clone()
    }
}

#[cfg(test)]
mod tests {
    use super::{Fresh, ftruncate};
    use rustix::fs::{SealFlags, fcntl_add_seals};
    use rustix::io::Errno;

    #[test]
    fn a_chunk_cannot_be_resized_written_by_descriptor_or_sealed_further() {
        let chunk = Fresh::new("test", 1, 0, 8192)
            .expect("memory")
            .into_chunk(0);
        assert_eq!(ftruncate(&chunk.descriptor, 4096), Err(Errno::PERM));
        assert_eq!(ftruncate(&chunk.descriptor, 16384), Err(Errno::PERM));
        assert_eq!(rustix::io::write(&chunk.descriptor, b"x"), Err(Errno::PERM));
        assert_eq!(
            fcntl_add_seals(&chunk.descriptor, SealFlags::WRITE),
            Err(Errno::PERM)
        );
        assert_eq!(chunk.bytes, 8192);
    }

    #[test]
    fn a_chunk_that_the_kernel_refuses_names_the_call() {
        let (call, error) = Fresh::new("test", 1, 0, 1 << 62).expect_err("no machine has it");
        assert!(["ftruncate", "mmap"].contains(&call), "{call}: {error}");
    }
}
