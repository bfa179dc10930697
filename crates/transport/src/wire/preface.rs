//! The first 32 bytes of each direction.

use crate::error::Violation;
use crate::limit::{Limits, PEER_FRAME_BYTES_MIN};
use crate::wire::role::Role;

/// Length on the wire.
pub const PREFACE_BYTES: usize = 32;
const MAGIC: [u8; 4] = *b"FBAY";
const VERSION: u16 = 1;
/// Feature: this end supports streams of results.
pub const STREAMS: u64 = 1;

/// Feature: long segments may be lent, see [`crate::share`].
pub const LENDS: u64 = 2;

/// What a peer announces before its first frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preface {
    pub role: Role,
    /// Bits of optional features ([`STREAMS`], [`LENDS`]); unknown ones are ignored.
    pub features: u64,
    pub frame_bytes_max: u64,
    pub segments_max: u16,
    /// The language runtime, for codecs bound to one (0x030b for `CPython` 3.11); 0 for none.
    pub runtime: u32,
}

impl Preface {
    /// The preface of an end with these limits.
    pub fn new(role: Role, limits: &Limits, runtime: u32) -> Self {
        Self {
            role,
            features: match role {
                Role::Caller | Role::Server => STREAMS,
                Role::Messenger => 0,
            },
            frame_bytes_max: limits.frame_bytes_max,
            segments_max: limits.segments_max,
            runtime,
        }
    }

    /// Write it out.
    pub fn encode(&self) -> [u8; PREFACE_BYTES] {
        let mut out = [0; PREFACE_BYTES];
        out[0..4].copy_from_slice(&MAGIC);
        out[4..6].copy_from_slice(&VERSION.to_le_bytes());
        out[6] = match self.role {
            Role::Caller => 1,
            Role::Server => 2,
            Role::Messenger => 3,
        };
        out[8..16].copy_from_slice(&self.features.to_le_bytes());
        out[16..24].copy_from_slice(&self.frame_bytes_max.to_le_bytes());
        out[24..26].copy_from_slice(&self.segments_max.to_le_bytes());
        out[28..32].copy_from_slice(&self.runtime.to_le_bytes());
        out
    }

    /// Whether a preface may begin with these bytes.
    ///
    /// # Errors
    /// The violation, once the bytes differ from the magic number.
    pub fn begins_with(bytes: &[u8]) -> Result<(), Violation> {
        match bytes.first_chunk() {
            Some(magic) if *magic != MAGIC => Err(Violation::Magic(*magic)),
            _ => Ok(()),
        }
    }

    /// Read it.
    ///
    /// # Errors
    /// The violation, for a stream that does not start with a preface of this version, and for a peer of calls that
    /// takes frames of less than `PEER_FRAME_BYTES_MIN`.
    pub fn decode(bytes: &[u8; PREFACE_BYTES]) -> Result<Self, Violation> {
        let [m0, m1, m2, m3, v0, v1, role, _, rest @ ..] = *bytes;
        if [m0, m1, m2, m3] != MAGIC {
            return Err(Violation::Magic([m0, m1, m2, m3]));
        }
        let version = u16::from_le_bytes([v0, v1]);
        if version != VERSION {
            return Err(Violation::Version(version));
        }
        let role = match role {
            1 => Role::Caller,
            2 => Role::Server,
            3 => Role::Messenger,
            other => return Err(Violation::Role(other)),
        };
        let [
            f0,
            f1,
            f2,
            f3,
            f4,
            f5,
            f6,
            f7,
            b0,
            b1,
            b2,
            b3,
            b4,
            b5,
            b6,
            b7,
            s0,
            s1,
            _,
            _,
            r @ ..,
        ] = rest;
        let frame_bytes_max = u64::from_le_bytes([b0, b1, b2, b3, b4, b5, b6, b7]);
        if role != Role::Messenger && frame_bytes_max < PEER_FRAME_BYTES_MIN {
            return Err(Violation::PeerFrameBytes {
                limit: PEER_FRAME_BYTES_MIN,
                value: frame_bytes_max,
            });
        }
        Ok(Self {
            role,
            features: u64::from_le_bytes([f0, f1, f2, f3, f4, f5, f6, f7]),
            frame_bytes_max,
            segments_max: u16::from_le_bytes([s0, s1]),
            runtime: u32::from_le_bytes(r),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_the_wire() {
        let preface = Preface::new(Role::Server, &Limits::default(), 0x030b);
        assert_eq!(Preface::decode(&preface.encode()), Ok(preface));
    }

    #[test]
    fn a_peer_of_calls_takes_what_answers_need() {
        for (role, value, refused) in [
            (Role::Caller, 0, true),
            (Role::Server, PEER_FRAME_BYTES_MIN - 1, true),
            (Role::Caller, PEER_FRAME_BYTES_MIN, false),
            (Role::Messenger, 0, false),
        ] {
            let preface = Preface {
                frame_bytes_max: value,
                ..Preface::new(role, &Limits::default(), 0)
            };
            let violation = Violation::PeerFrameBytes {
                limit: PEER_FRAME_BYTES_MIN,
                value,
            };
            let expected = if refused { Err(violation) } else { Ok(preface) };
            assert_eq!(Preface::decode(&preface.encode()), expected);
        }
    }

    #[test]
    fn refuses_other_protocols() {
        let mut bytes = Preface::new(Role::Caller, &Limits::default(), 0).encode();
        bytes[4] = 9;
        assert_eq!(Preface::decode(&bytes), Err(Violation::Version(9)));
        bytes[..4].copy_from_slice(b"GET ");
        assert_eq!(
            Preface::begins_with(b"GET / HTTP"),
            Err(Violation::Magic(*b"GET "))
        );
        assert_eq!(Preface::begins_with(b"FBA"), Ok(()));
        assert_eq!(Preface::begins_with(b"FBAY\x01"), Ok(()));
        assert_eq!(Preface::decode(&bytes), Err(Violation::Magic(*b"GET ")));
    }
}
