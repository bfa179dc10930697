//! The header of a frame.

use std::time::Duration;

use crate::error::Violation;
use crate::sys::buffer::Buffer;

/// Length of the header on the wire, before the lengths of the segments.
pub const HEADER_BYTES: usize = 24;
/// Value of the time field for "no deadline".
pub const NO_DEADLINE: u32 = u32::MAX;
const CODEC: u8 = 1;
const ONE_WAY: u8 = 2;
const STREAM: u8 = 4;
const NAMED: u8 = 8;

/// What a frame is for. 9 is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Call = 1,
    Reply = 2,
    Failure = 3,
    Cancel = 4,
    Ping = 5,
    Pong = 6,
    Goodbye = 7,
    /// A message: its segments are its frames.
    Message = 8,
    /// A token, by which its sender is admitted.
    Token = 10,
    /// A message with long frames in shared memory: a table, and the other frames.
    Shared = 11,
    /// One item of a stream, server to caller.
    Item = 12,
    /// How many more items of a stream its caller accepts, in the time field. The first precedes the call.
    Credit = 13,
    /// Its sender borrows long segments; a return table and a pidfd come with it.
    Borrow = 14,
    /// A chunk for segments, named by the id; its descriptor comes with it.
    Chunk = 15,
    /// The sender has dropped a chunk.
    Gone = 16,
    /// From a caller: another process calls from here on, so both ends forget what was lent. From the server: it did.
    Renew = 17,
}

/// How the head is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Codec {
    Msgpack = 0,
    Pickle = 1,
}

/// Why a call was answered with a failure; the time field of a failure frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Reason {
    /// The work raised; the head describes the exception.
    Raised = 0,
    /// Its deadline passed before it was started.
    Expired = 1,
    /// Its generation is older than one already seen.
    Stale = 2,
    /// The server takes no new calls.
    Closing = 3,
    /// It was cancelled while it was running.
    Cancelled = 4,
    /// The work raised, but its description is above the limit of either side; there is no head.
    Undescribed = 5,
}

impl Reason {
    /// Read a time field; a value from a newer peer counts as raised.
    pub fn from_wire(value: u32) -> Self {
        match value {
            1 => Self::Expired,
            2 => Self::Stale,
            3 => Self::Closing,
            4 => Self::Cancelled,
            5 => Self::Undescribed,
            _ => Self::Raised,
        }
    }
}

/// The fixed part of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub head_bytes: u32,
    pub kind: Kind,
    pub codec: Codec,
    pub one_way: bool,
    /// A call that is answered by items, then by an empty reply or a failure.
    pub stream: bool,
    /// Some segments are lent: the first segment is a table, the others are those that are not lent.
    pub named: bool,
    pub segments: u16,
    pub id: u64,
    /// Remaining milliseconds of a call, the [`Reason`] of a failure, or the number of a credit.
    pub time: u32,
    pub generation: u32,
}

impl Header {
    /// A header without head or segments.
    pub fn control(kind: Kind, id: u64) -> Self {
        Self {
            head_bytes: 0,
            kind,
            codec: Codec::Msgpack,
            one_way: false,
            stream: false,
            named: false,
            segments: 0,
            id,
            time: NO_DEADLINE,
            generation: 0,
        }
    }

    /// Write it out.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[0..4].copy_from_slice(&self.head_bytes.to_le_bytes());
        out[4] = self.kind as u8;
        out[5] = self.codec as u8
            | u8::from(self.one_way) << 1
            | u8::from(self.stream) << 2
            | u8::from(self.named) << 3;
        out[6..8].copy_from_slice(&self.segments.to_le_bytes());
        out[8..16].copy_from_slice(&self.id.to_le_bytes());
        out[16..20].copy_from_slice(&self.time.to_le_bytes());
        out[20..24].copy_from_slice(&self.generation.to_le_bytes());
        out
    }

    /// Read it.
    ///
    /// # Errors
    /// The violation, for an unknown kind or flag.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, Violation> {
        let [
            h0,
            h1,
            h2,
            h3,
            kind,
            flags,
            s0,
            s1,
            i0,
            i1,
            i2,
            i3,
            i4,
            i5,
            i6,
            i7,
            t0,
            t1,
            t2,
            t3,
            g @ ..,
        ] = *bytes;
        let kind = match kind {
            1 => Kind::Call,
            2 => Kind::Reply,
            3 => Kind::Failure,
            4 => Kind::Cancel,
            5 => Kind::Ping,
            6 => Kind::Pong,
            7 => Kind::Goodbye,
            8 => Kind::Message,
            10 => Kind::Token,
            11 => Kind::Shared,
            12 => Kind::Item,
            13 => Kind::Credit,
            14 => Kind::Borrow,
            15 => Kind::Chunk,
            16 => Kind::Gone,
            17 => Kind::Renew,
            other => return Err(Violation::Kind(other)),
        };
        let misplaced = flags & STREAM != 0 && (kind != Kind::Call || flags & ONE_WAY != 0);
        if flags & !(CODEC | ONE_WAY | STREAM | NAMED) != 0 || misplaced {
            return Err(Violation::Flags(flags));
        }
        Ok(Self {
            head_bytes: u32::from_le_bytes([h0, h1, h2, h3]),
            kind,
            codec: if flags & CODEC == 0 {
                Codec::Msgpack
            } else {
                Codec::Pickle
            },
            one_way: flags & ONE_WAY != 0,
            stream: flags & STREAM != 0,
            named: flags & NAMED != 0,
            segments: u16::from_le_bytes([s0, s1]),
            id: u64::from_le_bytes([i0, i1, i2, i3, i4, i5, i6, i7]),
            time: u32::from_le_bytes([t0, t1, t2, t3]),
            generation: u32::from_le_bytes(g),
        })
    }
}

/// A received frame.
#[derive(Debug)]
pub struct Incoming {
    pub header: Header,
    pub head: Buffer,
    pub segments: Vec<Buffer>,
}

impl Incoming {
    /// Bytes of its head and segments.
    pub fn bytes(&self) -> usize {
        self.head.len() + self.segments.iter().map(Buffer::len).sum::<usize>()
    }
}

/// Remaining time on the wire, rounded up so that a deadline never passes early.
pub fn time_to_wire(remaining: Option<Duration>) -> u32 {
    let Some(remaining) = remaining else {
        return NO_DEADLINE;
    };
    let milliseconds = remaining.as_nanos().div_ceil(1_000_000);
    u32::try_from(milliseconds)
        .unwrap_or(NO_DEADLINE - 1)
        .min(NO_DEADLINE - 1)
}

/// The reverse of [`time_to_wire`].
pub fn time_from_wire(time: u32) -> Option<Duration> {
    (time != NO_DEADLINE).then(|| Duration::from_millis(u64::from(time)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_the_wire() {
        let header = Header {
            head_bytes: 7,
            codec: Codec::Pickle,
            one_way: true,
            named: true,
            segments: 3,
            time: 1500,
            generation: 9,
            ..Header::control(Kind::Call, u64::MAX - 1)
        };
        assert_eq!(Header::decode(&header.encode()), Ok(header));
    }

    #[test]
    fn reserved_kinds_and_flags_are_refused() {
        let mut bytes = Header::control(Kind::Ping, 1).encode();
        bytes[4] = 9;
        assert_eq!(Header::decode(&bytes), Err(Violation::Kind(9)));
        bytes[4] = 5;
        bytes[5] = 0x80;
        assert_eq!(Header::decode(&bytes), Err(Violation::Flags(0x80)));
        // A stream is a call, and its caller waits.
        bytes[5] = STREAM;
        assert_eq!(Header::decode(&bytes), Err(Violation::Flags(STREAM)));
        bytes[4] = Kind::Call as u8;
        assert!(Header::decode(&bytes).is_ok_and(|header| header.stream));
        bytes[5] = STREAM | ONE_WAY;
        assert_eq!(
            Header::decode(&bytes),
            Err(Violation::Flags(STREAM | ONE_WAY))
        );
    }

    #[test]
    fn remaining_time_rounds_up_and_saturates() {
        assert_eq!(time_to_wire(Some(Duration::from_micros(1))), 1);
        assert_eq!(
            time_to_wire(Some(Duration::from_secs(1 << 40))),
            NO_DEADLINE - 1
        );
        assert_eq!(time_from_wire(time_to_wire(None)), None);
    }
}
