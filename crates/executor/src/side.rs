//! The side sockets: unrequested records of workers, interrupts of their runs.
//!
//! Each worker has one, beside the connection that its requests travel on, because an interrupt must not wait behind a
//! call, and output must not wait for a result. A packet is a record, so there is no framing: `[u8 kind][u64 id][u32
//! attempt][payload]`, little-endian; the first one is `[u8 0][u32 slot][u64 nonce]` with the read end of the worker's
//! output pipe. Recalls and returns name a call of the worker's connection instead of a request: its number tells the
//! worker whether that call has begun, as calls begin in the order of their numbers. A record of figures names none.
//! Nothing here blocks. Sources: unix(7), `SO_PEERCRED` and `SCM_RIGHTS`.

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use forebay_base::packet;
use forebay_base::unix::{Directory, ListenError, Listener};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketType};

use crate::error::{Error, Result};
use crate::id::RequestId;
use crate::limit::SIDE_RECORD_BYTES_MAX;
use crate::request::Slot;

const HELLO_BYTES: usize = 13;
const HEAD_BYTES: usize = 13;
const INTERRUPT: u8 = 1;
const RECALL: u8 = 2;

/// The socket that workers connect to, of this user alone: see [`forebay_base::unix`]. It has no lock, because the
/// socket of clients beside it, or the name of its directory, keeps another server away.
#[derive(Debug)]
pub struct SideListener(Listener);

impl SideListener {
    /// Listen at `path`; a socket of an earlier server is replaced. The directory is made (0700) if it is missing.
    ///
    /// # Errors
    /// `Config` if the path is too long or is not a socket, or if other users may enter its directory; `System`.
    pub fn bind(path: &Path) -> Result<Self> {
        let listener = Listener::bind(path, SocketType::SEQPACKET, Directory::Private);
        listener.map(Self).map_err(cannot_listen)
    }

    /// Whether the socket's file was removed; another file in its place counts as present.
    pub fn is_gone(&self) -> bool {
        self.0.is_gone()
    }

    /// Listen there again, with a new socket, after the file was removed. On failure the old one stays. A selector
    /// must forget the old one before.
    ///
    /// # Errors
    /// Those of [`Self::bind`].
    pub fn bind_again(&mut self) -> Result<()> {
        self.0.bind_again().map_err(cannot_listen)
    }

    /// Accept a worker; `None` if none waits. Another user's process is rejected, and the next one tried.
    ///
    /// # Errors
    /// `System`, for example with EMFILE: pause accepting then.
    pub fn accept(&self) -> Result<Option<Side>> {
        loop {
            let next = self.0.accept_own();
            let Some((socket, peer)) = next.map_err(Error::system("accept a side socket"))? else {
                return Ok(None);
            };
            // A process of another pid namespace is not one of our workers.
            if let Some(pid) = peer.pid {
                return Ok(Some(Side {
                    socket,
                    pid: pid.get(),
                    identified: false,
                }));
            }
        }
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl AsFd for SideListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Why a side socket cannot listen, and what to do.
fn cannot_listen(error: ListenError) -> Error {
    let advice = match error {
        ListenError::System { what, source } => return Error::System { what, source },
        ListenError::Path { .. } => "choose a shorter directory",
        ListenError::NotASocket(_) => "remove it or choose another path",
        _ => "use a directory of your own (0700)",
    };
    Error::Config(format!("side socket: {error}; {advice}"))
}

/// A record of a worker; it borrows from the [`RecordBuffer`].
#[derive(Debug)]
pub enum Record<'a> {
    /// The first record: who the worker is, and the read end of its output, which does not block.
    Hello {
        slot: Slot,
        nonce: u64,
        output: OwnedFd,
    },
    /// Output of one run of the async lane.
    Log {
        id: RequestId,
        attempt: u32,
        bytes: &'a [u8],
    },
    /// A map in msgpack: done, total, message, unit.
    Progress {
        id: RequestId,
        attempt: u32,
        map: &'a [u8],
    },
    /// A recalled call has not begun, and will not.
    Returned { call: u64 },
    /// A warning for the log of its request.
    Warning {
        id: RequestId,
        attempt: u32,
        text: &'a str,
    },
    /// A run waits for its children, or goes on.
    Waits {
        id: RequestId,
        attempt: u32,
        waits: bool,
    },
    /// Figures of this worker: see [`crate::usage`].
    Usage { figures: &'a [u8] },
    /// A run has begun its file of items, or added one: see [`crate::items`].
    Items { id: RequestId, attempt: u32 },
}

/// The result of [`Side::receive`].
#[derive(Debug)]
pub enum Received<'a> {
    Record(Record<'a>),
    Nothing,
    /// The worker closed its end, or died.
    End,
}

/// The buffer for received records: one for all side sockets of a thread.
#[derive(Debug)]
pub struct RecordBuffer(Box<[u8]>);

impl Default for RecordBuffer {
    fn default() -> Self {
        Self(vec![0; SIDE_RECORD_BYTES_MAX].into_boxed_slice())
    }
}

/// The side socket of one worker.
#[derive(Debug)]
pub struct Side {
    socket: OwnedFd,
    pid: i32,
    identified: bool,
}

impl Side {
    /// That of a process which has identified itself to another server.
    pub fn resume(socket: OwnedFd, pid: i32) -> Self {
        Self {
            socket,
            pid,
            identified: true,
        }
    }

    /// The process that connected it, as the kernel reports.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The next record. Bound the number of calls per turn: a worker may send without end.
    ///
    /// # Errors
    /// `Malformed` for an invalid record, or a first one that is not a hello: close the socket; `System`.
    pub fn receive<'a>(&mut self, buffer: &'a mut RecordBuffer) -> Result<Received<'a>> {
        let Some((length, mut descriptors)) = self.packet(buffer)? else {
            return Ok(Received::Nothing);
        };
        let packet = &buffer.0[..length];
        if packet.is_empty() {
            return Ok(Received::End);
        }
        let record = if self.identified {
            read(packet)?
        } else {
            hello(packet, descriptors.pop())?
        };
        self.identified = true;
        Ok(Received::Record(record))
    }

    /// Name the run to interrupt. False if the socket is full: the worker does not read, try again later.
    ///
    /// # Errors
    /// `System`: the worker has gone.
    pub fn interrupt(&self, id: RequestId, attempt: u32) -> Result<bool> {
        self.send(INTERRUPT, id.0, attempt)
    }

    /// Name a call to return unless it has begun. False if the socket is full, as above.
    ///
    /// # Errors
    /// `System`: the worker has gone.
    pub fn recall(&self, call: u64) -> Result<bool> {
        self.send(RECALL, call, 0)
    }

    fn send(&self, kind: u8, number: u64, attempt: u32) -> Result<bool> {
        let mut record = [0; HEAD_BYTES];
        record[0] = kind;
        record[1..9].copy_from_slice(&number.to_le_bytes());
        record[9..].copy_from_slice(&attempt.to_le_bytes());
        match packet::send(&self.socket, &record, &[], SendFlags::DONTWAIT) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(errno) => Err(Error::system("send to a side socket")(errno)),
        }
    }

    /// A packet with its descriptors; a length of 0 is the end.
    fn packet(&self, buffer: &mut RecordBuffer) -> Result<Option<(usize, Vec<OwnedFd>)>> {
        let received = loop {
            match packet::receive(&self.socket, &mut buffer.0, RecvFlags::DONTWAIT) {
                Ok(received) => break received,
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(Errno::CONNRESET) => return Ok(Some((0, Vec::new()))),
                Err(errno) => return Err(Error::system("receive from a side socket")(errno)),
            }
        };
        if received.cut {
            return Err(malformed("a record longer than side_record_bytes_max"));
        }
        Ok(Some((received.bytes, received.descriptors)))
    }
}

impl AsFd for Side {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn malformed(what: &'static str) -> Error {
    Error::Malformed { what, offset: 0 }
}

fn hello(packet: &[u8], output: Option<OwnedFd>) -> Result<Record<'static>> {
    let (0, HELLO_BYTES) = (packet[0], packet.len()) else {
        return Err(malformed("a side socket begins with a hello"));
    };
    let output = output.ok_or(malformed("a hello without the output's descriptor"))?;
    let what = fstat(&output).map_err(Error::system("fstat the output"))?;
    // Anything else might block, or be readable for ever.
    if FileType::from_raw_mode(what.st_mode) != FileType::Fifo {
        return Err(malformed("a hello whose descriptor is not a pipe"));
    }
    let flags = fcntl_getfl(&output).map_err(Error::system("fcntl"))?;
    fcntl_setfl(&output, flags | OFlags::NONBLOCK).map_err(Error::system("fcntl"))?;
    Ok(Record::Hello {
        slot: u32::from_le_bytes(number(&packet[1..5])),
        nonce: u64::from_le_bytes(number(&packet[5..])),
        output,
    })
}

fn read(packet: &[u8]) -> Result<Record<'_>> {
    let Some((head, payload)) = packet.split_at_checked(HEAD_BYTES) else {
        return Err(malformed("a record without its head"));
    };
    let id = RequestId(u64::from_le_bytes(number(&head[1..9])));
    let attempt = u32::from_le_bytes(number(&head[9..]));
    Ok(match head[0] {
        1 => Record::Log {
            id,
            attempt,
            bytes: payload,
        },
        2 => Record::Progress {
            id,
            attempt,
            map: payload,
        },
        3 => Record::Warning {
            id,
            attempt,
            text: std::str::from_utf8(payload)
                .map_err(|_| malformed("a warning that is not UTF-8"))?,
        },
        4 => Record::Returned { call: id.0 },
        5 => Record::Usage { figures: payload },
        6 => Record::Items { id, attempt },
        kind @ (7 | 8) => Record::Waits {
            id,
            attempt,
            waits: kind == 7,
        },
        _ => return Err(malformed("a record of an unknown kind")),
    })
}

fn number<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut number = [0; N];
    number.copy_from_slice(bytes);
    number
}

#[cfg(test)]
#[path = "side_tests.rs"]
mod tests;
