//! Pulls without the server: a requester on the same host, of the same user, reads tensors where their owner has them.
//!
//! The owner has a memfd of its own for the board and the directory, which say what may be read and where it lies; the
//! welcome tells its process and descriptor. A requester opens that, and the chunks of the arena as it needs them,
//! by `/proc/<pid>/fd`, and maps them for reading. Pushes, names, and whatever cannot be read so go by the stream.
//!
//! # Why by `/proc`
//!
//! `SCM_RIGHTS` needs a Unix socket, and a turn in which both sides expect descriptors beside the transport's frames.
//! `/proc` works beside TCP and TLS too, a chunk is opened when it is first used, and the kernel's check is that of
//! `ptrace`: the same user. Where it is not to be had (another host, another PID namespace) nothing opens, or what opens
//! is not what was announced, by its inode and incarnation; then the stream carries everything.
//! The folder of the process is kept open: after the process has ended it finds nothing, whoever has its number then.
//!
//! | module | what |
//! |---|---|
//! | `directory` | where each tensor lies: descriptor, device, inode, offset, bytes |
//! | `stand` | the owner's memfd: header, board, directory |
//! | `chunks` | descriptors of the chunks in which tensors lie |
//! | `process` | descriptors of another process |
//! | `known` | the requester's windows on chunks, and the tensors that lie in them |
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

/// Where an owner's board is, as its welcome tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexLocation {
    /// Its process.
    pub process: u32,
    /// The number of its descriptor of the board.
    pub descriptor: u32,
    /// What the descriptor is of.
    pub inode: u64,
}

/// The memory of a stand: a header, then the board, then the directory.
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
