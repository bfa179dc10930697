//! The messages of a connection: introductions, the requests in slots, the 32 bits of immediate data.
//!
//! Little endian, except for the address of a port, which is bytes.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;

use std::io::{Read, Write};

use forebay_memory::Lease;
use forebay_tensor::{Error, Key};

use crate::sys::bytes::copy_out;
use crate::sys::pair::{Address, RemotePart};

/// Size of a slot: one request, one cache line.
pub(super) const SLOT_BYTES: usize = 64;
/// Bytes of an introduction.
const HELLO_BYTES: usize = 44;
/// Bytes of an inbox's location.
const INBOX_BYTES: usize = 16;
const MAGIC: [u8; 4] = *b"FBVB";
const VERSION: u16 = 1;
/// Largest number of slots: they fit the 12 bits of immediate data.
pub(super) const SLOTS_MAX: u32 = 1024;

/// An end's introduction: its address, and how many requests it sends or accepts at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) address: Address,
    pub(super) slots: u32,
}

impl Hello {
    pub(super) fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.address.lid.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.slots.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.address.number.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.address.sequence.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.address.mtu.to_le_bytes());
        bytes[24..40].copy_from_slice(&self.address.gid);
        bytes
    }

    fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Self, Error> {
        if bytes[0..4] != MAGIC || bytes[4..6] != VERSION.to_le_bytes() {
            return Err(protocol("an introduction of another version than 1"));
        }
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[24..40]);
        let hello = Self {
            address: Address {
                gid,
                lid: u16::from_le_bytes([bytes[6], bytes[7]]),
                number: u32_at(bytes, 12),
                sequence: u32_at(bytes, 16),
                mtu: u32_at(bytes, 20),
            },
            slots: u32_at(bytes, 8),
        };
        if hello.slots == 0 || hello.slots > SLOTS_MAX || !(1..=5).contains(&hello.address.mtu) {
            return Err(protocol("an introduction with invalid numbers"));
        }
        Ok(hello)
    }

    /// Decode the introduction of a peer.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Error> {
        let bytes = bytes.get(..HELLO_BYTES).and_then(|all| all.try_into().ok());
        Self::decode(bytes.ok_or_else(|| protocol("a truncated introduction"))?)
    }

    /// Exchange introductions with the peer. Waits as long as the stream does.
    pub(super) fn exchange(
        &self,
        stream: &mut (impl Read + Write + ?Sized),
    ) -> Result<Self, Error> {
        let mut bytes = [0; HELLO_BYTES];
        exchange_bytes(stream, &self.encode(), &mut bytes)?;
        Self::decode(&bytes)
    }
}

/// Exchange the locations of the inboxes with the peer; the default for an end that accepts no requests.
/// Both ends are connected afterwards.
pub(super) fn exchange_inboxes(
    ours: RemotePart,
    stream: &mut (impl Read + Write + ?Sized),
) -> Result<RemotePart, Error> {
    let mut theirs = [0; INBOX_BYTES];
    exchange_bytes(stream, &encode_inbox(ours), &mut theirs)?;
    Ok(decode_inbox(&theirs))
}

/// An owner's answer to an introduction: its own introduction, and its inbox.
pub(super) fn encode_answer(ours: &Hello, inbox: RemotePart) -> Vec<u8> {
    let mut bytes = ours.encode().to_vec();
    bytes.extend_from_slice(&encode_inbox(inbox));
    bytes
}

pub(super) fn decode_answer(bytes: &[u8]) -> Result<(Hello, RemotePart), Error> {
    let peer = Hello::read(bytes)?;
    let inbox = bytes[HELLO_BYTES..].get(..INBOX_BYTES);
    let inbox = inbox.ok_or_else(|| protocol("a truncated answer"))?;
    Ok((peer, decode_inbox(inbox)))
}

fn encode_inbox(inbox: RemotePart) -> [u8; INBOX_BYTES] {
    let mut bytes = [0; INBOX_BYTES];
    bytes[0..8].copy_from_slice(&inbox.address.to_le_bytes());
    bytes[8..12].copy_from_slice(&inbox.key.to_le_bytes());
    bytes
}

fn decode_inbox(bytes: &[u8]) -> RemotePart {
    RemotePart {
        address: u64_at(bytes, 0),
        key: u32_at(bytes, 8),
    }
}

fn exchange_bytes(
    stream: &mut (impl Read + Write + ?Sized),
    sent: &[u8],
    received: &mut [u8],
) -> Result<(), Error> {
    let done = stream
        .write_all(sent)
        .and_then(|()| stream.read_exact(received));
    done.map_err(|error| Error::Broken {
        why: format!("the peer disconnected during the set-up: {error}"),
    })
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// Rows, written into the destination.
    Pull { first: u64, rows: u64 },
    /// A key to read the whole tensor with, written into the destination as an [`Exposed`].
    Expose,
}

/// A request in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) ask: Ask,
    /// The count of uses of the slot, so that a late answer is recognized.
    pub(super) turn: u16,
    pub(super) tensor: Key,
    pub(super) into: RemotePart,
    /// Bytes of the destination.
    pub(super) room: u64,
}

impl Request {
    pub(super) fn encode(&self) -> [u8; SLOT_BYTES] {
        let (kind, first, rows) = match self.ask {
            Ask::Pull { first, rows } => (1_u16, first, rows),
            Ask::Expose => (2, 0, 0),
        };
        let mut bytes = [0; SLOT_BYTES];
        bytes[0..2].copy_from_slice(&kind.to_le_bytes());
        bytes[2..4].copy_from_slice(&self.turn.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.tensor.id.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.tensor.generation.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.into.key.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.into.address.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.room.to_le_bytes());
        bytes[32..40].copy_from_slice(&first.to_le_bytes());
        bytes[40..48].copy_from_slice(&rows.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; SLOT_BYTES]) -> Result<Self, Error> {
        let ask = match u16::from_le_bytes([bytes[0], bytes[1]]) {
            1 => Ask::Pull {
                first: u64_at(bytes, 32),
                rows: u64_at(bytes, 40),
            },
            2 => Ask::Expose,
            _ => return Err(protocol("a request of an unknown kind")),
        };
        Ok(Self {
            ask,
            turn: u16::from_le_bytes([bytes[2], bytes[3]]),
            tensor: Key {
                id: u32_at(bytes, 4),
                generation: u32_at(bytes, 8),
            },
            into: RemotePart {
                key: u32_at(bytes, 12),
                address: u64_at(bytes, 16),
            },
            room: u64_at(bytes, 24),
        })
    }
}

/// A tensor of the peer that can be read without the peer's CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exposed {
    pub(super) part: RemotePart,
    /// Its size.
    pub bytes: u64,
}

impl Exposed {
    /// Size of its encoding.
    pub const BYTES: usize = 24;

    /// Decode what the owner wrote into the block of `Puller::expose`.
    /// With a false description reads fail, and break the connection.
    ///
    /// # Panics
    ///
    /// If the block is shorter than [`Exposed::BYTES`].
    pub fn of(block: &Lease) -> Self {
        let mut bytes = [0; Self::BYTES];
        copy_out(block, 0, &mut bytes);
        Self::decode(&bytes)
    }

    pub(super) fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0..8].copy_from_slice(&self.part.address.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.part.key.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        Self {
            part: RemotePart {
                address: u64_at(bytes, 0),
                key: u32_at(bytes, 16),
            },
            bytes: u64_at(bytes, 8),
        }
    }
}

/// How a request ended at the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Ok = 0,
    Stale = 1,
    OutOfRange = 2,
    /// The destination has another size than the rows.
    Room = 3,
    /// The owner exposes the largest number of tensors already.
    Limit = 4,
    /// The tensor is not in a block that the device can read.
    NotInBlock = 5,
}

/// The immediate data of an answer: status, slot, and the slot's count of uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: Status,
    pub(super) slot: u32,
    pub(super) turn: u16,
}

impl Answer {
    pub(super) fn encode(self) -> u32 {
        (self.status as u32) << 28 | self.slot << 16 | u32::from(self.turn)
    }

    pub(super) fn decode(immediate: u32) -> Result<Self, Error> {
        let all = [
            Status::Ok,
            Status::Stale,
            Status::OutOfRange,
            Status::Room,
            Status::Limit,
            Status::NotInBlock,
        ];
        let status = all.get((immediate >> 28) as usize).copied();
        Ok(Self {
            status: status.ok_or_else(|| protocol("an answer with an unknown status"))?,
            slot: immediate >> 16 & 0xfff,
            turn: (immediate & 0xffff) as u16,
        })
    }
}

/// A violation of the protocol by the peer.
pub(super) fn protocol(what: &str) -> Error {
    Error::Protocol {
        what: what.to_owned(),
        offset: 0,
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn what_is_told_comes_back_as_it_was() {
        let part = RemotePart {
            address: 0x0102_0304_0506_0708,
            key: 0x1112_1314,
        };
        let address = Address {
            gid: [9; 16],
            lid: 258,
            number: 77,
            sequence: 0x00ab_cdef,
            mtu: 5,
        };
        let hello = Hello { address, slots: 16 };
        assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        for ask in [
            Ask::Pull {
                first: 5,
                rows: 1 << 40,
            },
            Ask::Expose,
        ] {
            let request = Request {
                ask,
                turn: 65_535,
                tensor: Key {
                    id: 3,
                    generation: 8,
                },
                into: part,
                room: 1 << 33,
            };
            assert_eq!(Request::decode(&request.encode()), Ok(request));
        }
        let answer = encode_answer(&hello, part);
        assert_eq!(decode_answer(&answer), Ok((hello, part)));
        for cut in 0..answer.len() {
            assert!(decode_answer(&answer[..cut]).is_err());
        }
        let exposed = Exposed {
            part,
            bytes: 1 << 35,
        };
        assert_eq!(Exposed::decode(&exposed.encode()), exposed);
        for (slot, turn) in [(0, 0), (SLOTS_MAX - 1, 65_535)] {
            let answer = Answer {
                status: Status::Limit,
                slot,
                turn,
            };
            assert_eq!(Answer::decode(answer.encode()), Ok(answer));
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let hello = Hello {
            address: Address {
                mtu: 5,
                ..Address::default()
            },
            slots: 1,
        };
        for (at, value) in [(0, 0), (4, 2), (8, 0), (10, 1), (20, 6)] {
            let mut bytes = hello.encode();
            bytes[at] = value;
            assert!(Hello::decode(&bytes).is_err(), "byte {at}");
        }
        assert!(Request::decode(&[0; SLOT_BYTES]).is_err());
        assert!(Answer::decode(6 << 28).is_err());
    }

    #[test]
    #[cfg_attr(miri, ignore = "shutdown of a socket pair, which miri has not")]
    fn a_peer_that_disconnects_at_any_byte_of_the_set_up_is_reported() {
        let address = Address {
            mtu: 5,
            ..Address::default()
        };
        let hello = Hello { address, slots: 1 };
        for sent in 0..HELLO_BYTES {
            let (mut ours, mut theirs) = UnixStream::pair().expect("sockets");
            theirs.write_all(&hello.encode()[..sent]).expect("room");
            theirs.shutdown(Shutdown::Write).expect("connected");
            let exchanged = hello.exchange(&mut ours);
            assert!(
                matches!(exchanged, Err(Error::Broken { .. })),
                "{sent} bytes: {exchanged:?}"
            );
        }
        let (mut ours, theirs) = UnixStream::pair().expect("sockets");
        drop(theirs);
        assert!(exchange_inboxes(RemotePart::default(), &mut ours).is_err());
    }
}
