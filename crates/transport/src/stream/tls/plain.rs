//! The caller's pieces, cut into records.

use std::io::IoSlice;

use crate::limit::RECORD_BYTES;

/// A position in the pieces.
pub struct Plain<'a> {
    pieces: &'a [IoSlice<'a>],
    piece: usize,
    offset: usize,
    taken: usize,
}

impl<'a> Plain<'a> {
    /// At the first byte.
    pub fn new(pieces: &'a [IoSlice<'a>]) -> Self {
        Self {
            pieces,
            piece: 0,
            offset: 0,
            taken: 0,
        }
    }

    /// Bytes given out so far.
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// The next bytes to seal, at most `limit` (at least a record's worth); `None` at the end.
    ///
    /// Whole records come straight out of a piece, and so does the rest of the last one. Only a
    /// record that lies across pieces is joined, in `joined`.
    pub fn next<'b>(&mut self, limit: usize, joined: &'b mut Vec<u8>) -> Option<&'b [u8]>
    where
        'a: 'b,
    {
        let pieces = self.pieces;
        while self.offset == pieces.get(self.piece)?.len() {
            self.piece += 1;
            self.offset = 0;
        }
        let rest = &pieces[self.piece][self.offset..];
        let last = self.piece + 1 == pieces.len();
        if last || rest.len() >= RECORD_BYTES {
            let mut count = rest.len().min(limit);
            if count < rest.len() || !last {
                count -= count % RECORD_BYTES;
            }
            self.offset += count;
            self.taken += count;
            return Some(&rest[..count]);
        }
        joined.clear();
        while joined.len() < RECORD_BYTES
            && let Some(piece) = pieces.get(self.piece)
        {
            let rest = &piece[self.offset..];
            let count = rest.len().min(RECORD_BYTES - joined.len());
            joined.extend_from_slice(&rest[..count]);
            self.offset += count;
            if self.offset == piece.len() {
                self.piece += 1;
                self.offset = 0;
            }
        }
        self.taken += joined.len();
        Some(joined)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything comes out once and in order, in whole records but for the last one.
    #[allow(clippy::cast_possible_truncation)] // any bytes will do
    fn check(lengths: &[usize], limit: usize) -> usize {
        let pieces: Vec<Vec<u8>> = lengths
            .iter()
            .enumerate()
            .map(|(at, &count)| (0..count).map(|i| (i * 7 + at) as u8).collect())
            .collect();
        let slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let mut plain = Plain::new(&slices);
        let (mut joined, mut all, mut copied) = (Vec::new(), Vec::new(), 0);
        loop {
            let cut = all.len() % RECORD_BYTES;
            let place = joined.as_ptr();
            let Some(bytes) = plain.next(limit, &mut joined) else {
                break;
            };
            assert_eq!(cut, 0, "a short record before the end");
            assert!(bytes.len() <= limit && !bytes.is_empty());
            all.extend_from_slice(bytes);
            if bytes.as_ptr() == place
                || !pieces
                    .iter()
                    .any(|p| p.as_ptr_range().contains(&bytes.as_ptr()))
            {
                copied += bytes.len();
            }
        }
        assert_eq!(all, pieces.concat());
        assert_eq!(plain.taken(), all.len());
        copied
    }

    #[test]
    fn long_pieces_are_not_joined() {
        assert_eq!(check(&[1_000_000], 128 << 10), 0);
        assert!(check(&[40, 1_000_000], 128 << 10) <= RECORD_BYTES);
        assert!(check(&[40, 100_000, 0, 100_000], 128 << 10) <= 3 * RECORD_BYTES);
    }

    #[test]
    fn short_pieces_share_a_record() {
        assert_eq!(check(&[10; 64], 128 << 10), 640);
        check(
            &[0, 5, 0, RECORD_BYTES, 1, RECORD_BYTES - 1, 0],
            RECORD_BYTES,
        );
        check(&[], RECORD_BYTES);
    }
}
