//! What a pull or a push moves, and where each part of it lies.
use super::request::Rows;
use crate::error::Error;
use crate::sys::span::{Span, Words};
use crate::table::{Key, check_indices, check_slice};
use crate::wire::Kind;

/// Rows between a tensor and the caller's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub(super) kind: Kind,
    pub(super) tensor: Key,
    pub(super) row_bytes: u64,
    pub(super) rows_total: u64,
    pub(super) rows: Rows,
    pub(super) memory: Span,
    pub(super) places: Option<Words>,
}

impl Transfer {
    /// Bytes of the grant, or of a request, that a row takes: the larger of its values and its number.
    pub(super) fn unit(&self) -> u64 {
        match self.rows {
            Rows::Slice { .. } => self.row_bytes,
            Rows::Indices(_) => self.row_bytes.max(8),
        }
    }

    /// Check it against the tensor's shape and the memory's size.
    ///
    /// # Errors
    ///
    /// [`Error::Config`], [`Error::OutOfRange`], [`Error::Limit`].
    pub(super) fn check(&self, grant_bytes: u64) -> Result<(), Error> {
        let wrong = |setting, value, advice| {
            Err(Error::Config {
                setting,
                value,
                advice,
            })
        };
        if self.row_bytes == 0 {
            return wrong("the size of a row", 0, "a row must have at least one byte");
        }
        let count = self.rows.count();
        let bytes = count.checked_mul(self.row_bytes);
        let memory = self.memory.bytes() as u64;
        match self.places {
            None if bytes != Some(memory) => {
                return wrong(
                    "the size of the memory",
                    memory,
                    "it must have as many bytes as the rows",
                );
            }
            Some(places) if places.count() as u64 != count => {
                return wrong(
                    "the number of places",
                    places.count() as u64,
                    "name one for each row",
                );
            }
            Some(places) => {
                if let Err(place) = check_indices(memory / self.row_bytes, places) {
                    return wrong("the place of a row", place, "it must be inside the memory");
                }
            }
            None => {}
        }
        if self.unit() > grant_bytes {
            return Err(Error::Limit {
                limit: "grant_bytes",
                value: self.unit(),
                maximum: grant_bytes,
                advice: "raise the server's grant to one row at least, or use narrower rows",
            });
        }
        let checked = match self.rows {
            Rows::Slice { first, count } => check_slice(self.rows_total, first, count),
            Rows::Indices(words) => check_indices(self.rows_total, words),
        };
        checked.map_err(|row| Error::OutOfRange {
            tensor: Some(self.tensor.id),
            row,
            rows: self.rows_total,
        })
    }

    /// The memory of the rows from `from` on, from byte `offset` to byte `bytes`: all of it without places, else up
    /// to the end of one row.
    #[allow(clippy::cast_possible_truncation)] // bounded by the memory's size, a `usize`
    pub(super) fn place(&self, from: u64, offset: u64, bytes: u64) -> Span {
        let Some(places) = self.places else {
            let start = from * self.row_bytes + offset;
            return self.memory.part(start as usize, (bytes - offset) as usize);
        };
        let row_bytes = self.row_bytes as usize;
        let row = from + offset / self.row_bytes;
        let place = places.get(row as usize) as usize;
        let within = (offset % self.row_bytes) as usize;
        self.memory.part(place * row_bytes, row_bytes).after(within)
    }
}
