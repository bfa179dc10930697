//! What connections run over: calls over a socket or TLS, messages also over shared memory.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use forebay_base::readiness;
use forebay_memory::Lease;
use rustix::event::PollFlags;
use rustix::net::{Shutdown, shutdown};

use crate::share::local::Local;
use crate::stream::shm::NAME_BYTES;
use crate::stream::shm::stream::{SharedStream, Watched};
use crate::stream::tls::{Peer, Tls};
use crate::stream::{Socket, Stream, StreamFault};
use crate::sys::buffer::Buffer;
use crate::totals::Scheme;

/// A stream of any kind.
pub enum Wire {
    Socket(Socket),
    /// A socket that carries descriptors, for calls by reference.
    Local(Box<Local>),
    Tls(Box<Tls<Socket>>),
    Shared(Box<SharedStream>),
}

impl From<OwnedFd> for Wire {
    fn from(socket: OwnedFd) -> Self {
        Self::Socket(Arc::new(socket))
    }
}

impl From<Tls<Socket>> for Wire {
    fn from(stream: Tls<Socket>) -> Self {
        Self::Tls(Box::new(stream))
    }
}

impl From<SharedStream> for Wire {
    fn from(stream: SharedStream) -> Self {
        Self::Shared(Box::new(stream))
    }
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
    /// The same wire, where it is a plain socket, with descriptors beside its bytes.
    #[must_use]
    pub fn with_descriptors(self) -> Self {
        match self {
            Self::Socket(socket) => Self::Local(Box::new(Local::new(socket))),
            other => other,
        }
    }

    /// The socket under it.
    pub fn socket(&self) -> &Socket {
        match self {
            Self::Socket(socket) => socket,
            Self::Local(stream) => stream.socket(),
            Self::Tls(stream) => stream.inner(),
            Self::Shared(stream) => stream.lifeline(),
        }
    }

    /// The descriptor that a loop watches.
    pub fn descriptor(&self) -> RawFd {
        match self {
            Self::Socket(socket) => socket.as_raw_fd(),
            Self::Local(stream) => stream.socket().as_raw_fd(),
            Self::Tls(stream) => stream.inner().as_raw_fd(),
            Self::Shared(stream) => stream.descriptor(),
        }
    }

    /// Whether the watched descriptor has an error, which an epoll set never has.
    pub fn has_error(&self) -> bool {
        let alone = !matches!(self, Self::Shared(_));
        alone && readiness(self.socket(), PollFlags::empty()).contains(PollFlags::ERR)
    }

    /// What a thread sleeps on.
    pub fn watch(&self) -> Watch {
        match self {
            Self::Socket(socket) => Watch::Socket(Arc::clone(socket)),
            Self::Local(stream) => Watch::Socket(Arc::clone(stream.socket())),
            Self::Tls(stream) => Watch::Socket(Arc::clone(stream.inner())),
            Self::Shared(stream) => Watch::Shared(stream.watched()),
        }
    }

    /// What the TLS handshake established, once it has ended.
    pub fn peer(&self) -> Option<Peer> {
        match self {
            Self::Tls(stream) => stream.peer(),
            Self::Socket(_) | Self::Local(_) | Self::Shared(_) => None,
        }
    }

    /// Send TLS's `close_notify`, if it is TLS, and end both directions.
    ///
    /// Wakes the threads that wait on it; the descriptor goes with the last of them.
    pub fn hang_up(&mut self) {
        self.finish();
        let _ = self.flush();
        let _ = shutdown(self.socket().as_fd(), Shutdown::Both);
    }

    fn stream(&self) -> &dyn Stream {
        match self {
            Self::Socket(socket) => socket,
            Self::Local(stream) => &**stream,
            Self::Tls(stream) => &**stream,
            Self::Shared(stream) => &**stream,
        }
    }

    fn stream_mut(&mut self) -> &mut dyn Stream {
        match self {
            Self::Socket(socket) => socket,
            Self::Local(stream) => &mut **stream,
            Self::Tls(stream) => &mut **stream,
            Self::Shared(stream) => &mut **stream,
        }
    }
}

impl Stream for Wire {
    // The two methods of every message are dispatched here, so that they can be inlined.
    fn send(&mut self, pieces: &[IoSlice<'_>]) -> Result<usize, StreamFault> {
        match self {
            Self::Socket(socket) => socket.send(pieces),
            Self::Local(stream) => stream.send(pieces),
            Self::Tls(stream) => stream.send(pieces),
            Self::Shared(stream) => stream.send(pieces),
        }
    }

    fn receive<'a>(
        &mut self,
        into: &'a mut [MaybeUninit<u8>],
    ) -> Result<&'a mut [u8], StreamFault> {
        match self {
            Self::Socket(socket) => socket.receive(into),
            Self::Local(stream) => stream.receive(into),
            Self::Tls(stream) => stream.receive(into),
            Self::Shared(stream) => stream.receive(into),
        }
    }

    fn hung_up(&self) -> bool {
        self.stream().hung_up()
    }

    fn scheme(&self) -> Option<Scheme> {
        Some(match self {
            Self::Socket(socket) => return socket.scheme(),
            Self::Local(_) => Scheme::Unix,
            Self::Tls(_) => Scheme::Tls,
            Self::Shared(_) => Scheme::Shm,
        })
    }

    fn wants_write(&self) -> bool {
        self.stream().wants_write()
    }

    fn takes(&self) -> bool {
        self.stream().takes()
    }

    fn flush(&mut self) -> Result<(), StreamFault> {
        self.stream_mut().flush()
    }

    fn unsent(&self) -> usize {
        self.stream().unsent()
    }

    fn holds_received(&self) -> bool {
        self.stream().holds_received()
    }

    fn finish(&mut self) {
        self.stream_mut().finish();
    }

    fn signals_room_as_input(&self) -> bool {
        self.stream().signals_room_as_input()
    }

    fn woken(&mut self) -> Result<(), StreamFault> {
        self.stream_mut().woken()
    }

    fn share(&mut self, bytes: &[u8], block: Option<&Lease>) -> Option<[u8; NAME_BYTES]> {
        self.stream_mut().share(bytes, block)
    }

    fn open(&mut self, name: &[u8; NAME_BYTES]) -> Result<Buffer, StreamFault> {
        self.stream_mut().open(name)
    }

    fn copied(&self) -> u64 {
        self.stream().copied()
    }

    fn lent(&mut self) -> usize {
        self.stream_mut().lent()
    }

    fn carries_descriptors(&self) -> bool {
        self.stream().carries_descriptors()
    }

    fn ask_for_descriptors(&mut self) {
        self.stream_mut().ask_for_descriptors();
    }

    fn attach(&mut self, descriptors: Vec<OwnedFd>) -> bool {
        self.stream_mut().attach(descriptors)
    }

    fn next_descriptor(&mut self) -> Option<OwnedFd> {
        self.stream_mut().next_descriptor()
    }
}
