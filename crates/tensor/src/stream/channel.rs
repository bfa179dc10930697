//! A stream that was taken over from the transport: a socket, or TLS over one.
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::sync::Arc;

use forebay_transport::Cause;
use forebay_transport::stream::{Socket, Stream, StreamFault, Wire};

use super::error::StreamError;
use super::sys;
use crate::sys::span::Span;

/// Size of the buffer for decrypted bytes of TLS.
const OPENED_BYTES: usize = 64 << 10;

/// One end of a connection that carries tensor frames only.
pub(super) enum Channel {
    Plain(Socket),
    Sealed {
        wire: Box<Wire>,
        opened: Box<[MaybeUninit<u8>]>,
    },
}

impl Channel {
    pub(super) fn new(wire: Wire) -> Result<Self, StreamError> {
        match wire {
            Wire::Socket(socket) => Ok(Self::Plain(socket)),
            Wire::Tls(_) => Ok(Self::Sealed {
                wire: Box::new(wire),
                opened: Box::new_uninit_slice(OPENED_BYTES),
            }),
            Wire::Local(_) | Wire::Shared(_) => {
                let what = "tensors need tcp://, tls:// or unix://".to_owned();
                Err(forebay_transport::Error::Config(what).into())
            }
        }
    }

    /// The socket to wait on.
    pub(super) fn socket(&self) -> &Socket {
        match self {
            Self::Plain(socket) => socket,
            Self::Sealed { wire, .. } => wire.socket(),
        }
    }

    pub(super) fn is_sealed(&self) -> bool {
        matches!(self, Self::Sealed { .. })
    }

    /// Send as many bytes as fit; `None` if it would block.
    pub(super) fn send(&mut self, spans: &[Span]) -> Result<Option<usize>, StreamFault> {
        let sent = match self {
            Self::Plain(socket) => sys::send(socket.as_fd(), spans).map_err(StreamFault::Errno),
            Self::Sealed { wire, .. } => sys::with_slices(spans, |slices| wire.send(slices)),
        };
        unblocked(sent)
    }

    /// Receive directly into the spans; for a plain socket. `None` if it would block, 0 at the end.
    pub(super) fn receive(&mut self, spans: &[Span]) -> Result<Option<usize>, StreamFault> {
        let received = sys::receive(self.socket().as_fd(), spans);
        unblocked(received.map_err(StreamFault::Errno))
    }

    /// Receive and decrypt records; for TLS. `None` if it would block, empty at the end.
    pub(super) fn open(&mut self) -> Result<Option<&[u8]>, StreamFault> {
        match self {
            Self::Plain(_) => Ok(None),
            Self::Sealed { wire, opened } => unblocked(wire.receive(opened).map(|bytes| &*bytes)),
        }
    }

    /// Send what the stream has buffered; returns whether some is left.
    pub(super) fn flush(&mut self) -> Result<bool, StreamFault> {
        match self {
            Self::Plain(_) => Ok(false),
            Self::Sealed { wire, .. } => {
                wire.flush()?;
                Ok(wire.wants_write())
            }
        }
    }

    /// Whether received bytes are buffered here, for which the socket does not become readable.
    pub(super) fn holds_received(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Sealed { wire, .. } => wire.holds_received(),
        }
    }

    /// Shut both directions down, which wakes every thread that sleeps on the socket.
    pub(super) fn hang_up(self) {
        match self {
            Self::Plain(socket) => Wire::Socket(socket).hang_up(),
            Self::Sealed { mut wire, .. } => wire.hang_up(),
        }
    }

    /// Another handle of the socket, to sleep on.
    pub(super) fn watch(&self) -> Socket {
        Arc::clone(self.socket())
    }
}

fn unblocked<T>(outcome: Result<T, StreamFault>) -> Result<Option<T>, StreamFault> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(fault) if fault.is_transient() => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// Why a connection is unusable.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// The peer closed the stream.
    Ended,
    Failed(StreamFault),
    /// Reported by the state machine: the peer violated the protocol, or is silent.
    Peer(crate::Error),
}

impl Fault {
    /// The error that ends outstanding operations.
    pub(super) fn into_error(self) -> crate::Error {
        let why = |cause: Cause| crate::Error::Broken {
            why: cause.to_string(),
        };
        match self {
            Self::Ended => why(Cause::EndOfFile),
            Self::Failed(fault) => why(fault.into()),
            Self::Peer(error) => error,
        }
    }
}

impl From<StreamFault> for Fault {
    fn from(fault: StreamFault) -> Self {
        Self::Failed(fault)
    }
}
