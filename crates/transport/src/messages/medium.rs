//! What a connection runs over: a socket, or TLS over one.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::connection::Socket;
use crate::stream::{Stream, StreamFault};
use crate::tls::{Peer, Tls};

/// A connected stream socket, sealed or not.
pub enum Medium {
    Plain(Socket),
    Tls(Box<Tls<Socket>>),
}

impl Medium {
    /// The socket, for a selector.
    pub fn socket(&self) -> &Socket {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => stream.inner(),
        }
    }

    /// What a handshake of TLS found out, once it has ended.
    pub fn peer(&self) -> Option<Peer> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(stream) => stream.peer(),
        }
    }
}

impl From<OwnedFd> for Medium {
    fn from(socket: OwnedFd) -> Self {
        Self::Plain(Arc::new(socket))
    }
}

impl From<Tls<Socket>> for Medium {
    fn from(stream: Tls<Socket>) -> Self {
        Self::Tls(Box::new(stream))
    }
}

impl Stream for Medium {
    fn send(&mut self, pieces: &[IoSlice<'_>]) -> Result<usize, StreamFault> {
        match self {
            Self::Plain(socket) => socket.send(pieces),
            Self::Tls(stream) => stream.send(pieces),
        }
    }

    fn receive<'a>(
        &mut self,
        into: &'a mut [MaybeUninit<u8>],
    ) -> Result<&'a mut [u8], StreamFault> {
        match self {
            Self::Plain(socket) => socket.receive(into),
            Self::Tls(stream) => stream.receive(into),
        }
    }

    fn hung_up(&self) -> bool {
        self.socket().hung_up()
    }

    fn wants_write(&self) -> bool {
        matches!(self, Self::Tls(stream) if stream.wants_write())
    }

    fn takes(&self) -> bool {
        !matches!(self, Self::Tls(stream) if !stream.takes())
    }

    fn flush(&mut self) -> Result<(), StreamFault> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Tls(stream) => stream.flush(),
        }
    }

    fn unsent(&self) -> usize {
        match self {
            Self::Plain(_) => 0,
            Self::Tls(stream) => stream.unsent(),
        }
    }

    fn holds_received(&self) -> bool {
        matches!(self, Self::Tls(stream) if stream.holds_received())
    }

    fn finish(&mut self) {
        if let Self::Tls(stream) = self {
            stream.finish();
        }
    }
}
