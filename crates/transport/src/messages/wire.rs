//! What a message connection runs over.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use forebay_memory::Lease;

use crate::connection::Socket;
use crate::shm::NAME_BYTES;
use crate::shm::stream::{SharedStream, Watched};
use crate::stream::{Stream, StreamFault};
use crate::sys::buffer::Buffer;

/// A stream of any kind.
#[derive(Debug)]
pub enum Wire {
    Socket(Socket),
    Shared(Box<SharedStream>),
}

/// What a thread sleeps on; it stays open meanwhile.
#[derive(Debug)]
pub enum Watch {
    Socket(Socket),
    Shared(Arc<Watched>),
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Socket(socket) => socket.as_fd(),
            Self::Shared(watched) => watched.as_fd(),
        }
    }
}

impl Wire {
    /// The socket under it.
    pub fn socket(&self) -> &Socket {
        match self {
            Self::Socket(socket) => socket,
            Self::Shared(stream) => stream.lifeline(),
        }
    }

    /// The descriptor that a loop watches.
    pub fn descriptor(&self) -> RawFd {
        match self {
            Self::Socket(socket) => socket.as_raw_fd(),
            Self::Shared(stream) => stream.descriptor(),
        }
    }

    /// What a thread sleeps on.
    pub fn watch(&self) -> Watch {
        match self {
            Self::Socket(socket) => Watch::Socket(Arc::clone(socket)),
            Self::Shared(stream) => Watch::Shared(stream.watched()),
        }
    }

    fn stream(&self) -> &dyn Stream {
        match self {
            Self::Socket(socket) => socket,
            Self::Shared(stream) => &**stream,
        }
    }
}

impl Stream for Wire {
    fn send(&mut self, pieces: &[IoSlice<'_>]) -> Result<usize, StreamFault> {
        match self {
            Self::Socket(socket) => socket.send(pieces),
            Self::Shared(stream) => stream.send(pieces),
        }
    }

    fn receive<'a>(
        &mut self,
        into: &'a mut [MaybeUninit<u8>],
    ) -> Result<&'a mut [u8], StreamFault> {
        match self {
            Self::Socket(socket) => socket.receive(into),
            Self::Shared(stream) => stream.receive(into),
        }
    }

    fn hung_up(&self) -> bool {
        self.stream().hung_up()
    }

    fn wants_write(&self) -> bool {
        self.stream().wants_write()
    }

    fn flush(&mut self) -> Result<(), StreamFault> {
        match self {
            Self::Socket(socket) => socket.flush(),
            Self::Shared(stream) => stream.flush(),
        }
    }

    fn holds_received(&self) -> bool {
        self.stream().holds_received()
    }

    fn takes(&self) -> bool {
        self.stream().takes()
    }

    fn finish(&mut self) {
        match self {
            Self::Socket(socket) => socket.finish(),
            Self::Shared(stream) => stream.finish(),
        }
    }

    fn tells_room_as_input(&self) -> bool {
        matches!(self, Self::Shared(_))
    }

    fn woken(&mut self) -> Result<(), StreamFault> {
        match self {
            Self::Socket(_) => Ok(()),
            Self::Shared(stream) => stream.woken(),
        }
    }

    fn share(&mut self, bytes: &[u8], block: Option<&Lease>) -> Option<[u8; NAME_BYTES]> {
        match self {
            Self::Socket(_) => None,
            Self::Shared(stream) => stream.share(bytes, block),
        }
    }

    fn open(&mut self, name: &[u8; NAME_BYTES]) -> Result<Buffer, StreamFault> {
        match self {
            Self::Socket(socket) => socket.open(name),
            Self::Shared(stream) => stream.open(name),
        }
    }

    fn copied(&self) -> u64 {
        self.stream().copied()
    }

    fn lent(&mut self) -> usize {
        match self {
            Self::Socket(_) => 0,
            Self::Shared(stream) => stream.lent(),
        }
    }
}
