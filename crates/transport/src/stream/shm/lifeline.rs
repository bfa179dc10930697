//! Control records over the Unix socket: the hello, and chunks with their descriptors.
//!
//! A record is 32 bytes and is sent by one call, so that it is received by one.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use forebay_base::packet;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use crate::error::Violation;
use crate::stream::StreamFault;

const RECORD_BYTES: usize = 32;
const MAGIC: [u8; 4] = *b"FBSM";
const VERSION: u8 = 2;

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// The first: where the control block begins in the chunk that comes with it, and its size. A wakeup (an eventfd) and
    /// a pidfd come with it too.
    Hello { chunk: u32, offset: u64, bytes: u64 },
    /// A chunk, which comes with it.
    Chunk(u32),
    /// The sender has given up a chunk.
    Gone(u32),
}

impl Record {
    pub fn encode(self) -> [u8; RECORD_BYTES] {
        let (kind, chunk, offset, bytes) = match self {
            Self::Hello {
                chunk,
                offset,
                bytes,
            } => (1, chunk, offset, bytes),
            Self::Chunk(chunk) => (2, chunk, 0, 0),
            Self::Gone(chunk) => (3, chunk, 0, 0),
        };
        let mut out = [0; RECORD_BYTES];
        out[0..4].copy_from_slice(&MAGIC);
        out[4] = VERSION;
        out[5] = kind;
        out[8..12].copy_from_slice(&chunk.to_le_bytes());
        out[16..24].copy_from_slice(&offset.to_le_bytes());
        out[24..32].copy_from_slice(&bytes.to_le_bytes());
        out
    }

    pub fn decode(bytes: &[u8; RECORD_BYTES]) -> Result<Self, Violation> {
        let [m0, m1, m2, m3, version, kind, ..] = *bytes;
        if [m0, m1, m2, m3] != MAGIC {
            return Err(Violation::Magic([m0, m1, m2, m3]));
        }
        if version != VERSION {
            return Err(Violation::Version(version.into()));
        }
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| bytes[at + index]));
        let chunk = u32::from_le_bytes(std::array::from_fn(|index| bytes[8 + index]));
        match kind {
            1 => Ok(Self::Hello {
                chunk,
                offset: word(16),
                bytes: word(24),
            }),
            2 => Ok(Self::Chunk(chunk)),
            3 => Ok(Self::Gone(chunk)),
            other => Err(Violation::Kind(other)),
        }
    }
}

/// The result of one receive.
#[derive(Debug)]
pub enum Received {
    Record(Record, Vec<OwnedFd>),
    Nothing,
    /// The peer has closed the socket, or has ended.
    End,
}

/// Send a record without waiting.
pub fn send(
    socket: impl AsFd,
    record: Record,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let sent = packet::send(socket, &record.encode(), descriptors, SendFlags::DONTWAIT)?;
    if sent == RECORD_BYTES {
        Ok(())
    } else {
        Err(Errno::MSGSIZE) // a stream socket takes so few bytes whole, or none
    }
}

/// Take the next record, if there is one.
pub fn receive(socket: impl AsFd) -> Result<Received, StreamFault> {
    let mut bytes = [0; RECORD_BYTES];
    let received = match packet::receive(socket, &mut bytes, RecvFlags::DONTWAIT) {
        Err(Errno::AGAIN | Errno::INTR) => return Ok(Received::Nothing),
        // A Unix socket returns this after its peer closed with unread data.
        Err(Errno::CONNRESET) => return Ok(Received::End),
        other => other?,
    };
    if received.bytes == 0 {
        return Ok(Received::End);
    }
    if received.descriptors_lost {
        // Too many came, or this process has no free descriptor: the kernel has closed the others.
        return Err(Violation::Descriptors.into());
    }
    if received.bytes != RECORD_BYTES {
        return Err(Violation::Record(received.bytes).into());
    }
    Ok(Received::Record(
        Record::decode(&bytes)?,
        received.descriptors,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::unix::pair;

    #[test]
    fn records_and_descriptors_arrive_one_by_one() {
        let (left, right) = pair().expect("sockets");
        let hello = Record::Hello {
            chunk: 3,
            offset: 4096,
            bytes: 77,
        };
        send(&left, hello, &[left.as_fd(), right.as_fd()]).expect("room");
        send(&left, Record::Gone(9), &[]).expect("room");
        match receive(&right) {
            Ok(Received::Record(record, descriptors)) => {
                assert_eq!((record, descriptors.len()), (hello, 2));
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(
            receive(&right),
            Ok(Received::Record(Record::Gone(9), _))
        ));
        assert!(matches!(receive(&right), Ok(Received::Nothing)));
        drop(left);
        assert!(matches!(receive(&right), Ok(Received::End)));
    }

    #[test]
    fn something_else_is_refused() {
        let (left, right) = pair().expect("sockets");
        rustix::io::write(&left, &[b'G'; 40]).expect("room");
        assert_eq!(
            receive(&right).expect_err("no record"),
            Violation::Magic(*b"GGGG").into()
        );
        assert_eq!(
            receive(&right).expect_err("the rest of it"),
            Violation::Record(8).into()
        );
    }
}
