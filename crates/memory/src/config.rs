//! What a region is made from, and the sizes that are decisions.
use crate::error::Error;

/// The unit of mapping, and the alignment of large blocks.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// Blocks from this size up begin at a page, for direct I/O and registration.
/// From here the gap before a page is at most 1/16 of the block.
pub(crate) const LARGE_BYTES: u64 = 64 << 10;

/// Size of a chunk unless a block needs more: untouched pages are free, descriptors and mappings are not.
const CHUNK_BYTES: u64 = 64 << 20;

/// What may be in quarantine is a quarter of the limit unless set:
/// operations that were given up must not take the memory of those that are wanted.
const QUARANTINE_SHARE: u64 = 4;

/// Who may be told of a region's chunks; each is called for each chunk.
pub(crate) const REGISTRARS_MAX: usize = 64;

const NAME_BYTES_MAX: usize = 100;

/// What a region is made from.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) name: String,
    pub(crate) limit_bytes: u64,
    pub(crate) chunk_bytes: u64,
    pub(crate) quarantine_bytes_max: u64,
}

impl Config {
    /// A region called `name` that maps at most `limit_bytes` (the limit `arena_bytes_max`).
    pub fn new(name: impl Into<String>, limit_bytes: u64) -> Self {
        Self {
            name: name.into(),
            limit_bytes,
            chunk_bytes: CHUNK_BYTES,
            quarantine_bytes_max: limit_bytes / QUARANTINE_SHARE,
        }
    }

    /// Map at least so much at a time; 64 MiB unless set. Rounded up to 2 MiB, and down at the limit.
    #[must_use]
    pub fn chunk_bytes(mut self, bytes: u64) -> Self {
        self.chunk_bytes = bytes;
        self
    }

    /// Refuse allocations while more than so much is in [quarantine](crate::Lease::quarantine);
    /// a quarter of the limit unless set.
    #[must_use]
    pub fn quarantine_bytes_max(mut self, bytes: u64) -> Self {
        self.quarantine_bytes_max = bytes;
        self
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let name = &self.name;
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(char::is_control) {
            return Err(Error::Name { name: name.clone() });
        }
        if self.limit_bytes < PAGE_BYTES {
            return Err(Error::Config {
                arena: name.clone(),
                setting: "arena_bytes_max is",
                value: self.limit_bytes,
                advice: "give at least 4096 bytes, a page",
            });
        }
        Ok(())
    }
}
