//! Request ids, which sort by time.

use std::fmt;
use std::str::FromStr;

/// 2025-01-01 in milliseconds since 1970, where the ids begin.
pub const EPOCH_MS: u64 = 1_735_689_600_000;
/// Bits below the milliseconds, for requests of one millisecond.
pub const SEQUENCE_BITS: u32 = 16;
/// Characters of an id as text.
pub const TEXT_CHARS: usize = 12;

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const CHAR_BITS: u32 = 5;
const LIMIT: u64 = 1 << (CHAR_BITS as usize * TEXT_CHARS);

/// A request's number: 44 bits of milliseconds since 2025, and 16 of sequence.
///
/// As text it is 12 characters of Crockford's base 32 in lower case, which sort as the numbers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

impl RequestId {
    /// The next id at `now_ms` (since 1970), greater than `last` whatever the clock says.
    #[must_use]
    pub fn after(last: Self, now_ms: u64) -> Self {
        let first = now_ms.saturating_sub(EPOCH_MS) << SEQUENCE_BITS;
        Self(first.max(last.0 + 1))
    }
}

impl RequestId {
    /// The time of its millisecond, since 1970.
    #[must_use]
    pub fn millis(self) -> u64 {
        (self.0 >> SEQUENCE_BITS) + EPOCH_MS
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [b'0'; TEXT_CHARS];
        let mut rest = self.0;
        for digit in text.iter_mut().rev() {
            *digit = ALPHABET[(rest & 31) as usize];
            rest >>= CHAR_BITS;
        }
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

/// The text is not an id: another length, or a character outside the alphabet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a request's id has 12 characters of 0-9 and a-z without i, l, o and u")]
pub struct NotAnId;

impl FromStr for RequestId {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Self, NotAnId> {
        if text.len() != TEXT_CHARS {
            return Err(NotAnId);
        }
        let digit = |byte: u8| ALPHABET.iter().position(|&one| one == byte);
        let mut value = 0;
        for byte in text.bytes() {
            let digit = digit(byte.to_ascii_lowercase()).ok_or(NotAnId)?;
            value = value << CHAR_BITS | digit as u64;
        }
        debug_assert!(value < LIMIT);
        Ok(Self(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_sorts_as_the_numbers_do_and_comes_back() {
        let mut last = RequestId(0);
        let mut text = last.to_string();
        for now in [
            0,
            EPOCH_MS,
            EPOCH_MS,
            EPOCH_MS + 5,
            EPOCH_MS + 4,
            EPOCH_MS + 60_000_000_000,
        ] {
            let next = RequestId::after(last, now);
            assert!(next > last);
            assert!(next.to_string() > text);
            assert_eq!(next.to_string().parse(), Ok(next));
            (last, text) = (next, next.to_string());
        }
    }

    #[test]
    fn what_is_no_id_is_refused() {
        for text in ["", "0", "00000000000u", "0000000000000"] {
            assert_eq!(text.parse::<RequestId>(), Err(NotAnId), "{text}");
        }
    }
}
