//! The TLS machine without I/O: ciphertext in, plaintext out, and back.
//!
//! It is the unbuffered face of rustls. Received records are opened where they lie in the receive
//! buffer, which is shared by all connections of a thread; the buffered face would copy them into
//! a buffer of its own first, 4 KiB at a time, and keep that for every idle connection.

use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus,
};
use rustls::{CommonState, Error};

/// Which side of the handshake this end is.
pub enum Session {
    Client(Box<UnbufferedClientConnection>),
    Server(Box<UnbufferedServerConnection>),
}

/// What to seal once the machine is ready for it.
pub enum Task<'a> {
    Nothing,
    /// Seal these bytes into the buffer, which grows where it is too small.
    Seal(&'a [u8], &'a mut Sealed),
    /// Say `close_notify`.
    Close,
}

/// Initialised memory of which the first `len` bytes are ciphertext.
#[derive(Default)]
pub struct Sealed {
    memory: Vec<u8>,
    len: usize,
}

impl Sealed {
    /// The ciphertext.
    pub fn as_slice(&self) -> &[u8] {
        &self.memory[..self.len]
    }

    /// Forget it, and have room for so much.
    pub fn restart(&mut self, room: usize) {
        self.len = 0;
        if self.memory.len() < room {
            self.memory.resize(room, 0);
        }
    }

    /// Let `write` fill the free part; it is enlarged where `write` says so.
    fn write_with<E>(
        &mut self,
        mut write: impl FnMut(&mut [u8]) -> Result<usize, E>,
        too_small: impl Fn(&E) -> Option<usize>,
    ) -> Result<(), E> {
        loop {
            match write(&mut self.memory[self.len..]) {
                Ok(count) => {
                    self.len += count;
                    return Ok(());
                }
                Err(error) => match too_small(&error) {
                    Some(room) => self.memory.resize(self.len + room, 0),
                    None => return Err(error),
                },
            }
        }
    }
}

/// The state of the machine after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It moved; step again.
    More,
    /// The handshake waits for the peer.
    Handshake,
    /// It waits for bytes of either side, and has done its task.
    Open,
    /// The peer said `close_notify`; said once.
    PeerClosed,
    /// Both sides said it.
    Closed,
}

impl Session {
    /// One step over the received ciphertext; returns how much of its front is done with.
    ///
    /// `queue` takes what the machine has to say by itself; `deliver` takes opened plaintext. All
    /// that was not done with has to be offered again, in front of what comes next.
    pub fn advance(
        &mut self,
        incoming: &mut [u8],
        task: &mut Task<'_>,
        queue: &mut Vec<u8>,
        deliver: &mut dyn FnMut(&[u8]),
    ) -> (usize, Result<Found, Error>) {
        match self {
            Self::Client(side) => step(side.process_tls_records(incoming), task, queue, deliver),
            Self::Server(side) => step(side.process_tls_records(incoming), task, queue, deliver),
        }
    }

    /// What was negotiated so far.
    pub fn common(&self) -> &CommonState {
        match self {
            Self::Client(side) => side,
            Self::Server(side) => side,
        }
    }
}

fn step<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    task: &mut Task<'_>,
    queue: &mut Vec<u8>,
    deliver: &mut dyn FnMut(&[u8]),
) -> (usize, Result<Found, Error>) {
    let mut done = status.discard;
    let state = match status.state {
        Ok(state) => state,
        Err(error) => return (done, Err(error)),
    };
    let found = match state {
        ConnectionState::ReadTraffic(mut records) => loop {
            match records.next_record() {
                Some(Ok(record)) => {
                    deliver(record.payload);
                    done += record.discard;
                }
                Some(Err(error)) => break Err(error),
                None => break Ok(Found::More),
            }
        },
        ConnectionState::EncodeTlsData(mut words) => {
            append(queue, |into| words.encode(into), encode_room)
                .map(|()| Found::More)
                .map_err(|error| Error::General(error.to_string()))
        }
        ConnectionState::TransmitTlsData(words) => {
            words.done(); // the queue has them, and goes out before anything else
            Ok(Found::More)
        }
        ConnectionState::BlockedHandshake => Ok(Found::Handshake),
        ConnectionState::WriteTraffic(mut writer) => {
            let outcome = match std::mem::replace(task, Task::Nothing) {
                Task::Nothing => Ok(()),
                Task::Seal(plain, sealed) => {
                    sealed.write_with(|into| writer.encrypt(plain, into), encrypt_room)
                }
                Task::Close => append(queue, |into| writer.queue_close_notify(into), encrypt_room),
            };
            outcome
                .map(|()| Found::Open)
                .map_err(|error| Error::General(error.to_string()))
        }
        ConnectionState::PeerClosed => Ok(Found::PeerClosed),
        ConnectionState::Closed => Ok(Found::Closed),
        other => Err(Error::General(format!("unexpected state {other:?}"))),
    };
    (done, found)
}

/// Append to the queue what `write` has, which says by its error how much room it needs.
fn append<E>(
    queue: &mut Vec<u8>,
    write: impl FnMut(&mut [u8]) -> Result<usize, E>,
    too_small: impl Fn(&E) -> Option<usize>,
) -> Result<(), E> {
    let mut sealed = Sealed {
        len: queue.len(),
        memory: std::mem::take(queue),
    };
    let outcome = sealed.write_with(write, too_small);
    sealed.memory.truncate(sealed.len);
    *queue = sealed.memory;
    outcome
}

fn encode_room(error: &EncodeError) -> Option<usize> {
    match error {
        EncodeError::InsufficientSize(InsufficientSizeError { required_size }) => {
            Some(*required_size)
        }
        EncodeError::AlreadyEncoded => None,
    }
}

fn encrypt_room(error: &EncryptError) -> Option<usize> {
    match error {
        EncryptError::InsufficientSize(InsufficientSizeError { required_size }) => {
            Some(*required_size)
        }
        EncryptError::EncryptExhausted => None,
    }
}
