//! What a responder sends: a header, then rows or the text of a refusal.
use super::{RESPONSE_BYTES, u16_at, u32_at, u64_at};
use crate::error::{Class, Error};

/// Flag of the last response of its slot.
const LAST: u16 = 1;

/// How a pull or push ended at the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Status {
    Ok = 0,
    /// The tensor was dropped or replaced; the version field is its current generation, or 0.
    Stale = 1,
    /// The version field is the row that is out of range.
    OutOfRange = 2,
    Config = 3,
    Limit = 4,
    /// It was canceled before its answer began.
    Canceled = 5,
    Broken = 6,
}

impl Status {
    fn decode(number: u16) -> Option<Self> {
        let all = [
            Self::Ok,
            Self::Stale,
            Self::OutOfRange,
            Self::Config,
            Self::Limit,
            Self::Canceled,
            Self::Broken,
        ];
        all.get(usize::from(number)).copied()
    }

    /// The status of an error.
    pub(crate) fn of(error: &Error) -> Self {
        match error.class() {
            Class::Config => Self::Config,
            Class::Limit => Self::Limit,
            Class::Stale => Self::Stale,
            Class::OutOfRange => Self::OutOfRange,
            _ => Self::Broken,
        }
    }

    /// The class of a refusal with a text.
    pub(crate) fn class(self) -> Class {
        match self {
            Self::Stale => Class::Stale,
            Self::OutOfRange => Class::OutOfRange,
            Self::Config => Class::Config,
            Self::Limit => Class::Limit,
            Self::Ok | Self::Canceled | Self::Broken => Class::Broken,
        }
    }
}

/// The header of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResponseHeader {
    pub(crate) status: Status,
    /// Whether it is the last response of its slot, which is free then.
    pub(crate) last: bool,
    pub(crate) tag: u32,
    /// Bytes of the payload that follows.
    pub(crate) bytes: u64,
    pub(crate) version: u64,
}

impl ResponseHeader {
    pub(crate) fn encode(&self) -> [u8; RESPONSE_BYTES] {
        let mut bytes = [0; RESPONSE_BYTES];
        bytes[0..2].copy_from_slice(&(self.status as u16).to_le_bytes());
        bytes[2..4].copy_from_slice(&u16::from(self.last).to_le_bytes());
        bytes[4..8].copy_from_slice(&self.tag.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.version.to_le_bytes());
        bytes
    }

    /// Decode it from the first bytes of `bytes`.
    ///
    /// # Errors
    ///
    /// What is wrong with it, for an error message.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let number = u16_at(bytes, 0);
        let status = Status::decode(number)
            .ok_or_else(|| format!("a response with unknown status {number}"))?;
        let flags = u16_at(bytes, 2);
        if flags & !LAST != 0 {
            return Err(format!("a response with flags {flags}"));
        }
        Ok(Self {
            status,
            last: flags & LAST != 0,
            tag: u32_at(bytes, 4),
            bytes: u64_at(bytes, 8),
            version: u64_at(bytes, 16),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_as_it_was() {
        for number in 0..7 {
            let status = Status::decode(number).expect("there are seven");
            assert_eq!(status as u16, number);
            let header = ResponseHeader {
                status,
                last: number % 2 == 0,
                tag: 77,
                bytes: 1 << 50,
                version: u64::MAX,
            };
            assert_eq!(ResponseHeader::decode(&header.encode()), Ok(header));
        }
    }

    #[test]
    fn a_header_that_cannot_be_is_refused() {
        for (at, value) in [(0, 7), (1, 1), (2, 2), (3, 1)] {
            let mut bytes = [0; RESPONSE_BYTES];
            bytes[at] = value;
            assert!(ResponseHeader::decode(&bytes).is_err(), "byte {at}");
        }
    }
}
