//! What a region is made from, and the sizes that are decisions.
use crate::backing::Backing;
use crate::error::Error;

/// The unit of mapping, and the alignment of large blocks: a region maps no part of a page.
pub const PAGE_BYTES: u64 = 4096;

/// Blocks from this size up begin at a page, for direct I/O and registration.
/// From here the gap before a page is at most 1/16 of the block.
pub(crate) const LARGE_BYTES: u64 = 64 << 10;

/// Size of a chunk unless a block needs more: untouched pages are free, descriptors and mappings are not.
const CHUNK_BYTES: u64 = 64 << 20;

/// What may be in quarantine is a quarter of the limit unless set:
/// operations that were given up must not take the memory of those that are wanted.
const QUARANTINE_SHARE: u64 = 4;

/// Chunks in which nothing is allocated are kept up to a quarter of the limit unless set:
/// mapping one afresh costs a fault for each of its pages, and registering it again.
const IDLE_SHARE: u64 = 4;

/// What each thread may have on its shelf, and at most so much of the limit.
const SHELF_BYTES_MAX: u64 = 4 << 20;
const SHELF_SHARE: u64 = 64;

/// Threads that may have a shelf of one region; the others take its lock each time.
pub(crate) const SHELVES_MAX: usize = 64;

/// Registrars of a region; each is called for each chunk.
pub(crate) const REGISTRARS_MAX: usize = 64;

const NAME_BYTES_MAX: usize = 100;

/// What a region is made from.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) name: String,
    pub(crate) limit_bytes: u64,
    pub(crate) chunk_bytes: u64,
    pub(crate) quarantine_bytes_max: u64,
    pub(crate) idle_bytes_max: u64,
    pub(crate) shelf_bytes_max: u64,
    pub(crate) backing: Backing,
    pub(crate) populate: bool,
}

impl Config {
    /// A region called `name` that maps at most `limit_bytes` (the limit `arena_bytes_max`).
    pub fn new(name: impl Into<String>, limit_bytes: u64) -> Self {
        Self {
            name: name.into(),
            limit_bytes,
            chunk_bytes: CHUNK_BYTES,
            quarantine_bytes_max: limit_bytes / QUARANTINE_SHARE,
            idle_bytes_max: limit_bytes / IDLE_SHARE,
            shelf_bytes_max: SHELF_BYTES_MAX.min(limit_bytes / SHELF_SHARE),
            backing: Backing::Auto,
            populate: false,
        }
    }

    /// Map at least so much at a time; 64 MiB unless set. Rounded up to 2 MiB, and down at the limit.
    #[must_use]
    pub fn chunk_bytes(mut self, bytes: u64) -> Self {
        self.chunk_bytes = bytes;
        self
    }

    /// Refuse allocations while more than so much is in quarantine (`Lease::quarantine`);
    /// a quarter of the limit unless set.
    #[must_use]
    pub fn quarantine_bytes_max(mut self, bytes: u64) -> Self {
        self.quarantine_bytes_max = bytes;
        self
    }

    /// Keep empty chunks up to so much for what is allocated next; a quarter of the limit unless set.
    /// A chunk that becomes empty beyond it is given back at once; the only empty one is always kept.
    #[must_use]
    pub fn idle_bytes_max(mut self, bytes: u64) -> Self {
        self.idle_bytes_max = bytes;
        self
    }

    /// Let so much that a thread freed lie on its shelf, for its next allocations of the same size;
    /// 4 MiB unless set, or a 64th of the limit if that is less. With 0 there are no shelves, which suits
    /// a region that is one of many, or is used by one thread at a time for blocks of ever different sizes.
    #[must_use]
    pub fn shelf_bytes_max(mut self, bytes: u64) -> Self {
        self.shelf_bytes_max = bytes;
        self
    }

    /// Make chunks of these pages; [`Backing::Auto`] unless set.
    #[must_use]
    pub fn backing(mut self, backing: Backing) -> Self {
        self.backing = backing;
        self
    }

    /// Have the kernel make all pages of a chunk when it is mapped rather than each when it is first touched.
    /// Not so unless set. A first touch costs 17 us for 64 KiB, and the kernel ends a process for which it has no page;
    /// a chunk that cannot be populated is refused with an error.
    #[must_use]
    pub fn populate(mut self, populate: bool) -> Self {
        self.populate = populate;
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
