//! Streams of bytes: the trait that state machines need, and the kinds of streams.
//!
//! Tests script a stream; TLS is one over another.

pub mod listed;
pub mod owner;
pub mod shm;
pub(crate) mod socket;
pub mod tls;
pub mod unix;

pub use socket::{Watch, Wire};

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use forebay_base::readiness;
use forebay_memory::Lease;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::sockopt::socket_domain;
use rustix::net::{AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};

use crate::error::{Cause, Violation};
use crate::stream::shm::NAME_BYTES;
use crate::sys::buffer::Buffer;
use crate::totals::Scheme;
use crate::wire::frame::Kind;

/// Why a stream did not move bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamFault {
    /// What the system call returned; `AGAIN` means that it would block, and nothing is broken.
    #[error("{0}")]
    Errno(Errno),
    /// TLS failed: an alert of the peer, a refused certificate, a damaged record.
    #[error("TLS: {0}")]
    Tls(String),
    /// The stream ended without the `close_notify` of TLS, so that bytes may be missing.
    #[error("the stream ended without a TLS close_notify and may have been cut")]
    Truncated,
    /// The peer broke the protocol of the stream itself.
    #[error("{0}")]
    Violation(Violation),
}

impl From<Violation> for StreamFault {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

impl StreamFault {
    /// Whether nothing is broken and the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Errno(Errno::AGAIN | Errno::INTR))
    }

    /// Whether the peer's receiving side is closed, which says nothing of its sending side.
    pub fn is_closed_to_writes(&self) -> bool {
        matches!(self, Self::Errno(Errno::PIPE))
    }
}

impl From<Errno> for StreamFault {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl From<StreamFault> for Cause {
    fn from(fault: StreamFault) -> Self {
        match fault {
            StreamFault::Errno(errno) => Self::Failed(errno),
            StreamFault::Tls(text) => Self::Tls(text),
            StreamFault::Truncated => Self::Unclosed,
            // States make a fault of their own of it, which names the offset.
            StreamFault::Violation(_) => Self::Failed(Errno::PROTO),
        }
    }
}

/// A nonblocking byte stream. "Would block" is `StreamFault::Errno(Errno::AGAIN)`.
pub trait Stream {
    /// Send as much as fits; returns how many bytes of `pieces` need not be offered again.
    ///
    /// A stream with a queue of its own takes bytes that the kernel does not have yet: see
    /// [`Self::wants_write`].
    fn send(&mut self, pieces: &[IoSlice<'_>]) -> Result<usize, StreamFault>;
    /// Receive what is there; an empty slice is the orderly end of the stream.
    ///
    /// Fewer bytes than `into` has room for mean that the next call would probably block.
    fn receive<'a>(&mut self, into: &'a mut [MaybeUninit<u8>])
    -> Result<&'a mut [u8], StreamFault>;
    /// Whether the peer is gone in both directions.
    fn hung_up(&self) -> bool;
    /// What it counts as among the connections of this process; `None`: as nothing.
    fn scheme(&self) -> Option<Scheme> {
        None
    }
    /// Whether the stream itself has bytes for the kernel: call [`Self::flush`] once the socket
    /// is writable. A plain socket has none.
    fn wants_write(&self) -> bool {
        false
    }
    /// Whether [`Self::send`] takes bytes at all: not while a handshake waits for the peer, which only
    /// a receive changes. Room in the socket is of no use until then.
    fn takes(&self) -> bool {
        true
    }
    /// Hand the stream's own bytes to the kernel, as many as it takes. Blocking is no error.
    fn flush(&mut self) -> Result<(), StreamFault> {
        Ok(())
    }
    /// How many of the bytes that it took are not with the kernel, at most.
    fn unsent(&self) -> usize {
        0
    }
    /// Whether the stream holds received bytes, for which the socket does not become readable:
    /// a caller that stops receiving before it would block must come back by itself. A plain socket has none.
    fn holds_received(&self) -> bool {
        false
    }
    /// Tell the peer that nothing more is sent, if the stream has a record for it; flush afterwards.
    fn finish(&mut self) {}
    /// Whether room for output is signalled as input, so that it is never watched for output.
    fn signals_room_as_input(&self) -> bool {
        false
    }
    /// The watched descriptor was reported ready: called before the stream is used again.
    fn woken(&mut self) -> Result<(), StreamFault> {
        Ok(())
    }
    /// Put a long frame into shared memory; returns its name, to be sent instead. `None`: send its bytes.
    ///
    /// `_block` is that of an arena in which the frame lies, if it does.
    fn share(&mut self, _bytes: &[u8], _block: Option<&Lease>) -> Option<[u8; NAME_BYTES]> {
        None
    }
    /// The frame that a peer's name stands for.
    fn open(&mut self, _name: &[u8; NAME_BYTES]) -> Result<Buffer, StreamFault> {
        Err(Violation::Kind(Kind::Shared as u8).into())
    }
    /// Bytes that were copied into shared memory.
    fn copied(&self) -> u64 {
        0
    }
    /// Frames in shared memory that the peer may still read.
    fn lent(&mut self) -> usize {
        0
    }
    /// Whether descriptors can travel beside the bytes.
    fn carries_descriptors(&self) -> bool {
        false
    }
    /// Keep the descriptors that come from now on; before, they are lost.
    fn ask_for_descriptors(&mut self) {}
    /// Send descriptors along with the next bytes; false, and they are closed, where too many wait.
    fn attach(&mut self, _descriptors: Vec<OwnedFd>) -> bool {
        false
    }
    /// Take the next descriptor that came.
    fn next_descriptor(&mut self) -> Option<OwnedFd> {
        None
    }
}

/// A socket, shared with the threads that sleep on it.
pub type Socket = Arc<OwnedFd>;

/// Whether it is a Unix socket.
fn is_local(socket: &Socket) -> bool {
    socket_domain(socket).is_ok_and(|family| family == AddressFamily::UNIX)
}

impl Stream for Socket {
    fn send(&mut self, pieces: &[IoSlice<'_>]) -> Result<usize, StreamFault> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        loop {
            match sendmsg(&*self, pieces, &mut SendAncillaryBuffer::default(), flags) {
                Err(Errno::INTR) => {}
                outcome => return outcome.map_err(StreamFault::Errno),
            }
        }
    }

    fn receive<'a>(
        &mut self,
        into: &'a mut [MaybeUninit<u8>],
    ) -> Result<&'a mut [u8], StreamFault> {
        // A nonblocking receive is not interrupted; EINTR would be passed on as it is.
        let ((filled, _), _) = recv(self.as_fd(), into, RecvFlags::DONTWAIT)?;
        Ok(filled)
    }

    fn scheme(&self) -> Option<Scheme> {
        Some(if is_local(self) {
            Scheme::Unix
        } else {
            Scheme::Tcp
        })
    }

    fn hung_up(&self) -> bool {
        // TCP reports only the end of one direction, even after the peer has closed both; our ends never close a single one.
        let gone = PollFlags::HUP | PollFlags::ERR;
        let gone = if is_local(self) {
            gone
        } else {
            gone | PollFlags::RDHUP
        };
        readiness(self, gone).intersects(gone)
    }
}
