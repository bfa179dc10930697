//! A peer made of bytes: it sends them a few at a time, and then ends.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use forebay_memory::{Config, Lease, Region};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use crate::error::Violation;
use crate::stream::shm::NAME_BYTES;
use crate::stream::{Stream, StreamFault};
use crate::sys::buffer::{Buffer, SEGMENT_ALIGN};
use crate::sys::filling::Filling;

/// Bytes of the chunk that represents the peer's memory.
pub const CHUNK_BYTES: usize = 16 << 10;

/// Memory of another process, as a descriptor; it stays while the lease does.
pub fn chunk() -> (Lease, OwnedFd) {
    let region = Region::new(Config::new("a peer", CHUNK_BYTES as u64)).expect("a region");
    let lease = region.allocate(CHUNK_BYTES).expect("room");
    let memory = lease.share_chunk().expect("a descriptor");
    (lease, memory)
}

thread_local! {
    static CHUNK: (Lease, OwnedFd) = chunk();
}

/// The stream of an end that receives an input; bytes that it sends are counted.
pub struct Speaker {
    said: Vec<u8>,
    at: usize,
    step: usize,
    /// Descriptors arrive with its bytes.
    hands: bool,
    heard: usize,
}

impl Speaker {
    /// Say `said`, at most `step` bytes at a time.
    pub fn new(said: Vec<u8>, step: usize, hands: bool) -> Self {
        Self {
            said,
            at: 0,
            step: step.max(1),
            hands,
            heard: 0,
        }
    }
}

impl Stream for Speaker {
    fn send(&mut self, pieces: &[IoSlice<'_>]) -> Result<usize, StreamFault> {
        let count = pieces.iter().map(|piece| piece.len()).sum();
        self.heard += count;
        Ok(count)
    }

    fn receive<'a>(
        &mut self,
        into: &'a mut [MaybeUninit<u8>],
    ) -> Result<&'a mut [u8], StreamFault> {
        let rest = &self.said[self.at..];
        let count = rest.len().min(self.step).min(into.len());
        let mut filling = Filling::new(into);
        filling.append(&rest[..count]);
        self.at += count;
        Ok(filling.finish()) // empty once all is said, which is its end
    }

    fn hung_up(&self) -> bool {
        self.at == self.said.len()
    }

    /// A name is as many bytes as its last byte says, or is invalid.
    fn open(&mut self, name: &[u8; NAME_BYTES]) -> Result<Buffer, StreamFault> {
        let bytes = usize::from(name[NAME_BYTES - 8]) << 8;
        let made = Buffer::with_capacity(bytes, SEGMENT_ALIGN);
        let mut buffer = made.ok_or(StreamFault::Errno(Errno::NOMEM))?;
        if name[0] & 0x80 != 0 {
            return Err(Violation::Table(bytes).into());
        }
        buffer.append(&vec![name[0]; bytes]);
        Ok(buffer)
    }

    fn carries_descriptors(&self) -> bool {
        self.hands
    }

    fn attach(&mut self, _descriptors: Vec<OwnedFd>) -> bool {
        self.hands
    }

    fn next_descriptor(&mut self) -> Option<OwnedFd> {
        if !self.hands {
            return None;
        }
        if self.at.is_multiple_of(5) {
            return pidfd_open(getpid(), PidfdFlags::empty()).ok();
        }
        CHUNK.with(|(_, memory)| memory.try_clone().ok())
    }
}
