//! Where each tensor is, in memory that readers map.
//!
//! An entry is written while the version table has no generation for its id, and read as rows are: between two loads
//! of the version table, so that it belongs to the requested generation.
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::fstat;
use rustix::io::Errno;

use crate::sys::shared_words::SharedWords;
use crate::sys::span::Span;

/// Bytes of an entry.
pub(super) const ENTRY_BYTES: usize = 32;
const ENTRY_WORDS: usize = ENTRY_BYTES / 8;

/// What a descriptor is of: memfds of huge pages and others number their inodes apart, so that the device counts too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct File {
    /// As the kernel has it, in 32 bits.
    pub(super) device: u32,
    pub(super) inode: u64,
}

impl File {
    #[allow(clippy::cast_possible_truncation)] // the kernel's own number has 32 bits (MKDEV)
    pub(super) fn behind(descriptor: &OwnedFd) -> Result<Self, Errno> {
        let status = fstat(descriptor)?;
        Ok(Self {
            device: status.st_dev as u32,
            inode: status.st_ino,
        })
    }
}

/// Where a tensor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DirectoryEntry {
    /// The number of the owner's descriptor of the chunk.
    pub(super) descriptor: u32,
    /// What the descriptor is of.
    pub(super) file: File,
    /// From the chunk's beginning.
    pub(super) offset: u64,
    /// All of the tensor.
    pub(super) bytes: u64,
}

/// An entry for each id.
#[derive(Debug)]
pub(super) struct Directory {
    words: SharedWords,
}

impl Directory {
    /// `None` if the memory is not aligned.
    pub(super) fn new(memory: Span) -> Option<Self> {
        SharedWords::new(memory).map(|words| Self { words })
    }

    /// Set where a tensor is; `None` if it cannot be mapped.
    pub(super) fn set(&self, id: u32, entry: Option<DirectoryEntry>) {
        let Some(at) = self.position(id) else {
            return;
        };
        let words = entry.map_or([0; ENTRY_WORDS], |entry| {
            // One more than the number, since 0 is a descriptor too. All are below 2^31.
            let descriptor = u64::from(entry.descriptor) + 1;
            let first = u64::from(entry.file.device) << 32 | descriptor;
            [first, entry.file.inode, entry.offset, entry.bytes]
        });
        for (index, word) in (at..).zip(words) {
            self.words.at(index).store(word, Relaxed);
        }
    }

    /// Where the tensor is; valid only if the version table has its generation both before and after the call.
    pub(super) fn get(&self, id: u32) -> Option<DirectoryEntry> {
        let at = self.position(id)?;
        let word = |word: usize| self.words.at(at + word).load(Relaxed);
        let first = word(0);
        let half = |word: u64| u32::try_from(word & u64::from(u32::MAX)).ok();
        Some(DirectoryEntry {
            descriptor: half(first)?.checked_sub(1)?,
            file: File {
                device: half(first >> 32)?,
                inode: word(1),
            },
            offset: word(2),
            bytes: word(3),
        })
    }

    fn position(&self, id: u32) -> Option<usize> {
        let at = id as usize * ENTRY_WORDS;
        (at + ENTRY_WORDS <= self.words.count()).then_some(at)
    }
}
