//! Request ids, which sort by time.
//!
//! # Design note
//!
//! An id has 60 bits, 12 characters of 5:
//!
//! ```text
//!   44 bits: milliseconds since 2025     10 bits: sequence     6 bits: number of the server
//! ```
//!
//! The server's number is last, so that ids of one server sort by time and sequence as before, ids of several sort by
//! time first, and a sequence that overflows carries into the milliseconds and not into another server's ids: stores of
//! servers with numbers of their own can be merged. 1,024 ids of a millisecond are twenty times what a server accepts;
//! of more, the later ones bear the next milliseconds. 64 servers are as many as a person gives numbers to.
//!
//! Ids of before had 16 bits of sequence and no number. They stay what they are, and sort with the others: a server goes
//! on behind the greatest id of its store, whatever is in its low bits, also after its own number was changed. In such
//! a store ids of the same millisecond as another server's may be equal to them, so it is merged only with ids that are
//! younger than its change.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// 2025-01-01 in milliseconds since 1970, where the ids begin.
pub const EPOCH_MS: u64 = 1_735_689_600_000;
/// Bits below the milliseconds: the sequence, and the number of the server.
pub const SEQUENCE_BITS: u32 = 16;
/// Of these, the lowest: the number of the server.
pub const SERVER_BITS: u32 = 6;
/// The greatest number of a server (`server_number`).
pub const SERVER_NUMBER_MAX: u8 = (1 << SERVER_BITS) - 1;
/// Characters of an id as text.
pub const TEXT_CHARS: usize = 12;

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const CHAR_BITS: u32 = 5;
const LIMIT: u64 = 1 << (CHAR_BITS as usize * TEXT_CHARS);

/// A request's number: milliseconds since 2025, a sequence, and the number of its server.
///
/// As text it is 12 characters of Crockford's base 32 in lower case, which sort as the numbers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

impl RequestId {
    /// The next id of a server at `now_ms` (since 1970), greater than `last` whatever the clock says.
    #[must_use]
    pub fn after(last: Self, now_ms: u64, server: u8) -> Self {
        let server = u64::from(server.min(SERVER_NUMBER_MAX));
        let next = (last.0 >> SERVER_BITS) + 1;
        Self(Self::first_at(now_ms).0.max(next << SERVER_BITS) | server)
    }

    /// The first id of a time, in milliseconds since 1970.
    #[must_use]
    pub fn first_at(at_ms: u64) -> Self {
        Self(at_ms.saturating_sub(EPOCH_MS) << SEQUENCE_BITS)
    }

    /// The ids whose text begins with `text`.
    ///
    /// # Errors
    /// [`NotAnId`]: it is empty, too long, or has a character that no id has.
    pub fn beginning_with(text: &str) -> Result<RangeInclusive<Self>, NotAnId> {
        if text.is_empty() || text.len() > TEXT_CHARS {
            return Err(NotAnId);
        }
        let mut value = 0;
        for byte in text.bytes() {
            let byte = byte.to_ascii_lowercase();
            let digit = ALPHABET.iter().position(|&one| one == byte);
            value = value << CHAR_BITS | digit.ok_or(NotAnId)? as u64;
        }
        #[allow(clippy::cast_possible_truncation)] // at most 12
        let rest = CHAR_BITS * (TEXT_CHARS - text.len()) as u32;
        let first = value << rest;
        debug_assert!(first < LIMIT);
        Ok(Self(first)..=Self(first | ((1 << rest) - 1)))
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
        Self::beginning_with(text).map(|ids| *ids.start())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ids of one millisecond of one server.
    const SEQUENCE_MAX: usize = 1 << (SEQUENCE_BITS - SERVER_BITS);

    fn server_of(id: RequestId) -> u64 {
        id.0 & u64::from(SERVER_NUMBER_MAX)
    }

    fn ms_of(id: RequestId) -> u64 {
        EPOCH_MS + (id.0 >> SEQUENCE_BITS)
    }

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
            let next = RequestId::after(last, now, 0);
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

    #[test]
    fn a_sequence_that_overflows_takes_the_next_millisecond_of_the_same_server() {
        for server in [0, 1, SERVER_NUMBER_MAX] {
            let now = EPOCH_MS + 1_000;
            let mut ids = vec![RequestId::after(RequestId(0), now, server)];
            for _ in 0..2 * SEQUENCE_MAX {
                ids.push(RequestId::after(ids[ids.len() - 1], now, server));
            }
            assert!(ids.is_sorted_by(|one, next| one < next));
            assert!(ids.iter().all(|id| server_of(*id) == u64::from(server)));
            let ms: Vec<_> = ids.iter().map(|id| ms_of(*id) - now).collect();
            assert_eq!(ms[..SEQUENCE_MAX], vec![0; SEQUENCE_MAX]);
            assert_eq!(ms[SEQUENCE_MAX..2 * SEQUENCE_MAX], vec![1; SEQUENCE_MAX]);
            assert_eq!(ms[2 * SEQUENCE_MAX], 2);
            // The clock comes by: the sequence begins anew.
            let later = RequestId::after(ids[ids.len() - 1], now + 3, server);
            assert_eq!(
                later,
                RequestId(RequestId::first_at(now + 3).0 | u64::from(server))
            );
        }
    }

    #[test]
    fn a_clock_that_is_set_back_repeats_no_id() {
        let now = EPOCH_MS + 1_000_000;
        let mut last = RequestId::after(RequestId(0), now, 7);
        for now in [now - 1, now - 900_000, 0] {
            let next = RequestId::after(last, now, 7);
            assert_eq!(next.0, last.0 + (1 << SERVER_BITS));
            last = next;
        }
        assert_eq!(ms_of(last), now);
    }

    #[test]
    fn ids_of_several_servers_differ_and_sort_by_time() {
        let mut all: Vec<RequestId> = Vec::new();
        for server in 0..=SERVER_NUMBER_MAX {
            let mut last = RequestId(0);
            for now in [EPOCH_MS, EPOCH_MS, EPOCH_MS + 1, EPOCH_MS + 1] {
                last = RequestId::after(last, now, server);
                all.push(last);
            }
        }
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count);
        assert!(all.is_sorted_by_key(|id| ms_of(*id)));
    }

    #[test]
    fn a_server_goes_on_behind_an_id_of_before_and_behind_its_earlier_number() {
        let now = EPOCH_MS + 5;
        // Of 16 bits of sequence, with any bits where the number of the server is now.
        for last in [
            (5 << 16) | 0xfffe,
            (5 << 16) | 0xffff,
            (9 << 16) | 1,
            5 << 16,
        ] {
            let last = RequestId(last);
            for server in [0, 3, SERVER_NUMBER_MAX] {
                let next = RequestId::after(last, now, server);
                assert!(next > last);
                assert_eq!(server_of(next), u64::from(server));
                assert!(next.to_string() > last.to_string());
            }
        }
    }

    #[test]
    fn a_beginning_stands_for_all_ids_that_begin_so() {
        let id = RequestId::after(RequestId(0), EPOCH_MS + 12_345_678, 9);
        let text = id.to_string();
        for chars in 1..=TEXT_CHARS {
            let ids = RequestId::beginning_with(&text[..chars]).expect("a beginning");
            assert!(ids.contains(&id));
            assert!(ids.start().to_string().starts_with(&text[..chars]));
            assert!(ids.end().to_string().starts_with(&text[..chars]));
            let beyond = RequestId(ids.end().0 + 1).to_string();
            assert!(!beyond.starts_with(&text[..chars]));
        }
        let upper = RequestId::beginning_with(&text.to_uppercase());
        assert_eq!(upper, Ok(id..=id));
        for text in ["", "u", "a b", "\u{fc}", "0000000000000"] {
            assert_eq!(RequestId::beginning_with(text), Err(NotAnId), "{text}");
        }
    }
}
