//! A chunk: a memfd, mapped by its owner, then sealed so that all others can only read it.
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{Advice, ProtFlags};

use crate::backing::{self, Backed, Backing, HUGE_BYTES};
use crate::chunk_mapping::ChunkMapping;
use crate::config::Config;
use crate::error::Error;
use crate::sys::Mapping;

/// One piece of a region. Its memory lives until the chunk and all of its blocks are gone.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// Number in the region, never used again.
    pub(crate) id: u32,
    /// The allocator's name for it.
    pub(crate) root: u32,
    pub(crate) bytes: u64,
    /// What it is made of.
    pub(crate) pages: Backing,
    pub(crate) mapping: Arc<ChunkMapping>,
    descriptor: Arc<OwnedFd>,
}

/// A chunk that the allocator does not have yet.
#[derive(Debug)]
pub(crate) struct Fresh {
    pub(crate) id: u32,
    pub(crate) bytes: u64,
    pub(crate) backed: Backed,
    pub(crate) mapping: Arc<ChunkMapping>,
    descriptor: OwnedFd,
}

/// Chunks that a region has given up; dropping this notifies registrars and unmaps them.
#[derive(Debug)]
#[must_use = "to drop it takes milliseconds for a large chunk"]
pub struct Unused(Vec<Chunk>);

impl Unused {
    pub(crate) fn new(chunks: Vec<Chunk>) -> Self {
        Self(chunks)
    }

    /// Whether there is nothing to unmap.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A system call that failed, and how.
type Failure = (&'static str, io::Error);

impl Fresh {
    /// Get `bytes` of zeroed memory from the kernel, a multiple of the page size, for chunk `id` of `region`.
    ///
    /// On failure nothing is left behind.
    pub(crate) fn new(config: &Config, region: u64, id: u32, bytes: u64) -> Result<Self, Error> {
        let system = |(call, source)| Error::System {
            arena: config.name.clone(),
            call,
            bytes,
            source,
        };
        let (descriptor, mapping, backed) = obtain(config, bytes)?;
        if config.populate {
            let populated = mapping.advise(0, mapping.len(), Advice::LinuxPopulateWrite);
            populated.map_err(|error| system(("madvise(MADV_POPULATE_WRITE)", error)))?;
        }
        Ok(Self {
            id,
            bytes,
            backed,
            mapping: Arc::new(ChunkMapping::new(region, id, mapping)),
            descriptor,
        })
    }

    /// Make it a chunk with the allocator's `root`.
    pub(crate) fn into_chunk(self, root: u32) -> Chunk {
        let Self {
            id,
            bytes,
            backed,
            mapping,
            descriptor,
        } = self;
        Chunk {
            id,
            root,
            bytes,
            pages: backed.pages,
            mapping,
            descriptor: Arc::new(descriptor),
        }
    }
}

impl Chunk {
    /// What another process can map for reading, to be made a copy of without a lock.
    pub(crate) fn descriptor(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.descriptor)
    }
}

/// Map and seal memory of the best pages that are to be had among those that are asked for.
fn obtain(config: &Config, bytes: u64) -> Result<(OwnedFd, Mapping, Backed), Error> {
    let candidates = config.backing.candidates();
    let mut reasons = Vec::new();
    for &pages in candidates {
        let unavailable = match pages {
            Backing::HugeTlb if !bytes.is_multiple_of(HUGE_BYTES) => Some(format!(
                "hugetlb: {bytes} bytes are no multiple of {HUGE_BYTES}"
            )),
            Backing::Transparent => backing::no_transparent(),
            _ => None,
        };
        if let Some(reason) = unavailable {
            reasons.push(reason);
            continue;
        }
        match map(&config.name, bytes, pages) {
            Ok((descriptor, mapping)) => {
                let reason = reasons.join("; ");
                return Ok((descriptor, mapping, Backed { pages, reason }));
            }
            Err((call, source)) if pages == Backing::Pages => {
                return Err(Error::System {
                    arena: config.name.clone(),
                    call,
                    bytes,
                    source,
                });
            }
            Err(failure) => reasons.push(why(pages, bytes, &failure)),
        }
    }
    Err(Error::Backing {
        arena: config.name.clone(),
        backing: config.backing.name(),
        bytes,
        reason: reasons.join("; "),
    })
}

/// What the kernel's refusal means.
fn why(pages: Backing, bytes: u64, (call, error): &Failure) -> String {
    if pages == Backing::HugeTlb && error.kind() == io::ErrorKind::OutOfMemory {
        let count = bytes / HUGE_BYTES;
        return format!(
            "hugetlb: the pool has no {count} free pages of 2 MiB (raise vm.nr_hugepages)"
        );
    }
    format!("{}: {call}: {error}", pages.name())
}

/// Map memory, then seal it.
///
/// The order matters: `F_SEAL_FUTURE_WRITE` leaves the mapping that exists writable, and refuses every later one.
fn map(name: &str, bytes: u64, pages: Backing) -> Result<(OwnedFd, Mapping), Failure> {
    let at = |call: &'static str| move |error: rustix::io::Errno| (call, io::Error::from(error));
    let length = usize::try_from(bytes).map_err(|_| ("mmap", io::ErrorKind::OutOfMemory.into()))?;
    let mut flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    if pages == Backing::HugeTlb {
        flags |= MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    }
    let descriptor = memfd_create(format!("forebay:{name}"), flags).map_err(at("memfd_create"))?;
    ftruncate(&descriptor, bytes).map_err(at("ftruncate"))?;
    let writable = ProtFlags::READ | ProtFlags::WRITE;
    let mapping =
        Mapping::new(descriptor.as_fd(), length, writable).map_err(|error| ("mmap", error))?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
    fcntl_add_seals(&descriptor, seals).map_err(at("fcntl(F_ADD_SEALS)"))?;
    if pages == Backing::Transparent {
        let advised = mapping.advise(0, length, Advice::LinuxHugepage);
        advised.map_err(|error| ("madvise(MADV_HUGEPAGE)", error))?;
    }
    Ok((descriptor, mapping))
}

#[cfg(test)]
mod tests {
    use super::{Fresh, ftruncate};
    use crate::config::Config;
    use crate::error::Error;
    use rustix::fs::{SealFlags, fcntl_add_seals};
    use rustix::io::Errno;

    #[test]
    fn a_chunk_cannot_be_resized_written_by_descriptor_or_sealed_further() {
        let chunk = Fresh::new(&Config::new("test", 1 << 20), 1, 0, 8192)
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
        let refused = Fresh::new(&Config::new("test", 1 << 63), 1, 0, 1 << 62);
        let Err(Error::System { call, .. }) = refused else {
            panic!("no machine has it: {refused:?}");
        };
        assert!(["ftruncate", "mmap"].contains(&call), "{call}");
    }
}
