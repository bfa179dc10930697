//! Pulls without the server: a requester on the same host, of the same user, maps the owner's memory and reads it.
//!
//! The owner keeps the version table and the directory in a memfd, the shared index; the welcome names its process and
//! descriptor. A requester opens the index, and chunks of the arena as it needs them, through `/proc/<pid>/fd`, and
//! maps them for reading. Pushes, look-ups and everything that cannot be read this way use the stream.
//!
//! # Why by `/proc`
//!
//! `SCM_RIGHTS` needs a Unix socket, and a turn in which both sides expect descriptors beside the transport's frames.
//! `/proc` works beside TCP and TLS too, a chunk is opened when it is first used, and the kernel's check is that of
//! `ptrace`: the same user. On another host or in another PID namespace the open fails, or finds a
//! file with another inode or incarnation; then the stream carries everything.
//! The folder of the process is kept open: once the process has ended it is empty, even if its number is reused.
//!
//! # Why not as the transport shares memory
//!
//! `forebay_transport::share` lends: a ledger keeps each block until its one reader releases it. Here nothing is lent, and
//! the owner learns of no reader: who reads checks the version before and after. So nobody announces a chunk or says that
//! it is gone. A window belongs to all connections to an owner, by inode, for as long as a tensor in it is known; there
//! to one connection, by number, until the peer takes it back. Only `Window` is common, and is in `forebay_memory`.
//!
//! | module | what |
//! |---|---|
//! | `directory` | where each tensor is: descriptor, device, inode, offset, bytes |
//! | `index` | the owner's memfd: header, version table, directory |
//! | `chunks` | descriptors of the chunks that hold tensors |
//! | `process` | descriptors of another process |
//! | `mapped` | the requester's windows on chunks, and the tensors in them |
//! | `reader` | the requester: pulls |
mod chunks;
mod directory;
mod index;
mod mapped;
mod process;
mod reader;
#[cfg(test)]
mod tests;

pub(crate) use chunks::{ChunkLocation, Chunks};
pub(crate) use index::SharedIndex;

pub use reader::{Reader, ShmCounters};

/// Where an owner's shared index is; part of its welcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexLocation {
    /// The owner's process.
    pub process: u32,
    /// The number of its descriptor.
    pub descriptor: u32,
    /// The inode of its memfd.
    pub inode: u64,
}

/// The memory of a shared index: a header, then the version table, then the directory.
mod layout {
    use super::directory::ENTRY_BYTES;
    use crate::version_table::VERSION_BYTES;

    /// "FBTN", and the version of this layout.
    pub(super) const MAGIC: u64 = 0x4642_544e_0000_0002;
    pub(super) const HEADER_BYTES: usize = 4096;
    /// Words of the header.
    pub(super) const WORD_MAGIC: usize = 0;
    pub(super) const WORD_INCARNATION: usize = 1;
    /// How many tensors there is room for.
    pub(super) const WORD_TENSORS: usize = 2;
    /// Not 0 once the owner has closed. On a cache line that is written once.
    pub(super) const WORD_CLOSED: usize = 8;

    pub(super) const fn bytes(tensors: usize) -> usize {
        HEADER_BYTES + tensors * (VERSION_BYTES + ENTRY_BYTES)
    }
}
