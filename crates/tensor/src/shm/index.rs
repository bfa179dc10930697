//! The owner's memfd: header, version table and directory.
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::{Relaxed, Release};

use forebay_memory::{Backing, Config, Lease, Region};
use rustix::fs::fstat;

use super::chunks::ChunkLocation;
use super::directory::{Directory, DirectoryEntry};
use super::{IndexLocation, layout};
use crate::error::Error;
use crate::sys::arena;
use crate::sys::shared_words::SharedWords;
use crate::sys::span::Span;
use crate::version_table::{VERSION_BYTES, VersionTable};

/// What an owner publishes about its tensors. The kernel allocates its pages when they are first written.
#[derive(Debug)]
pub(crate) struct SharedIndex {
    header: SharedWords,
    directory: Directory,
    versions_memory: Span,
    location: IndexLocation,
    // The following fields keep the memory mapped and the descriptor's number valid.
    _descriptor: OwnedFd,
    _memory: Lease,
    _region: Region,
}

impl SharedIndex {
    /// An index for ids below `tensors_max`.
    ///
    /// # Errors
    ///
    /// Why it cannot be made: no memory, or no descriptor.
    pub(crate) fn new(tensors_max: u32, incarnation: u64) -> Result<Self, String> {
        let tensors = tensors_max as usize;
        let bytes = layout::bytes(tensors);
        let limit = bytes.next_multiple_of(layout::HEADER_BYTES) as u64;
        let config = Config::new("tensor-index", limit)
            .chunk_bytes(limit)
            .backing(Backing::Pages)
            .shelf_bytes_max(0);
        let made = Region::new(config).and_then(|region| {
            let memory = region.allocate(bytes)?;
            let descriptor = memory.share_chunk()?;
            Ok((region, memory, descriptor))
        });
        let (region, memory, descriptor) = made.map_err(|error| error.to_string())?;
        let status = fstat(&descriptor).map_err(|errno| errno.to_string())?;
        if memory.reference().offset != 0 {
            return Err("the first block of a chunk is not at its start".to_owned());
        }
        // The first block of a fresh chunk: zeroed by the kernel, and not touched here, so no page is allocated yet.
        let all = arena::of_lease(&memory);
        let versions_bytes = tensors * VERSION_BYTES;
        let unaligned = || "a chunk is not aligned".to_owned();
        let header = SharedWords::new(all.part(0, layout::HEADER_BYTES)).ok_or_else(unaligned)?;
        let rest = all.after(layout::HEADER_BYTES);
        let directory = Directory::new(rest.after(versions_bytes)).ok_or_else(unaligned)?;
        header
            .at(layout::WORD_INCARNATION)
            .store(incarnation, Relaxed);
        header
            .at(layout::WORD_TENSORS)
            .store(tensors as u64, Relaxed);
        header.at(layout::WORD_MAGIC).store(layout::MAGIC, Release);
        Ok(Self {
            header,
            directory,
            versions_memory: rest.part(0, versions_bytes),
            location: IndexLocation {
                process: rustix::process::getpid()
                    .as_raw_nonzero()
                    .get()
                    .unsigned_abs(),
                descriptor: descriptor.as_raw_fd().unsigned_abs(),
                inode: status.st_ino,
            },
            _descriptor: descriptor,
            _memory: memory,
            _region: region,
        })
    }

    /// Its version table, which must not outlive the index.
    ///
    /// # Errors
    ///
    /// As [`VersionTable::new`].
    pub(crate) fn versions(&self) -> Result<VersionTable, Error> {
        VersionTable::new(self.versions_memory)
    }

    /// Where the index is.
    pub(crate) fn location(&self) -> IndexLocation {
        self.location
    }

    /// Set where a tensor is, before the version table publishes it.
    pub(crate) fn set_location(&self, id: u32, location: Option<&ChunkLocation>, bytes: usize) {
        let entry = location.map(|location| DirectoryEntry {
            descriptor: location.descriptor(),
            file: location.file(),
            offset: location.offset,
            bytes: bytes as u64,
        });
        self.directory.set(id, entry);
    }

    /// Mark the owner as closed.
    pub(crate) fn close(&self) {
        self.header.at(layout::WORD_CLOSED).store(1, Release);
    }
}
