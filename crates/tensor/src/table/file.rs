//! The layout of a tensor's rows in a file.
use super::Description;
use crate::error::Error;

/// Consecutive rows are read together up to this size: larger reads are not faster.
const RUN_BYTES_MAX: u64 = 1 << 20;

/// Size of the checksum behind a row.
pub(crate) const CHECKSUM_BYTES: usize = 4;

/// The layout of rows in a file. Rows may be appended concurrently; these must not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRows {
    /// The offset of the first row, in bytes.
    pub offset: u64,
    /// Bytes from the start of a row to the start of the next.
    pub stride_bytes: u64,
    /// The number of the first row in the file: for messages, and covered by checksums.
    pub first: u64,
    /// Each row is followed by the CRC-32C of its bytes and its number, which is checked after each read. Number and
    /// checksum are little endian, as `RecordFile` writes them.
    pub checksums: bool,
}

impl FileRows {
    /// Check the layout against the tensor's description.
    ///
    /// # Errors
    ///
    /// [`Error::Config`].
    pub(super) fn check(&self, description: &Description) -> Result<(), Error> {
        let sum_bytes = if self.checksums {
            CHECKSUM_BYTES as u64
        } else {
            0
        };
        if self.stride_bytes < description.row_bytes().saturating_add(sum_bytes) {
            return Err(Error::Config {
                setting: "stride_bytes",
                value: self.stride_bytes,
                advice: "it must hold a row with its checksum",
            });
        }
        let bytes = description.rows().checked_mul(self.stride_bytes);
        let end = bytes.and_then(|bytes| bytes.checked_add(self.offset));
        if end.is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(Error::Config {
                setting: "the number of rows",
                value: description.rows(),
                advice: "no file can hold so many rows of this stride",
            });
        }
        Ok(())
    }
}

/// A tensor's rows in a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filed {
    /// The driver's number of the file.
    pub(crate) number: u32,
    pub(crate) rows: FileRows,
    /// Bytes of a row without its checksum.
    pub(crate) row_bytes: u64,
}

/// Consecutive rows that are read together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The first row, counted in the tensor.
    pub(crate) first: u64,
    pub(crate) rows: u64,
}

impl Filed {
    /// The offset of a run in the file.
    pub(crate) fn offset(&self, run: Run) -> u64 {
        self.rows.offset + run.first * self.rows.stride_bytes
    }

    /// Bytes of a run.
    pub(crate) fn bytes(&self, run: Run) -> u64 {
        run.rows * self.rows.stride_bytes
    }

    /// Bytes of a row and of its stride, as sizes in memory.
    pub(crate) fn sizes(&self) -> (usize, usize) {
        let size = |bytes: u64| usize::try_from(bytes).expect("it is in memory");
        (size(self.row_bytes), size(self.rows.stride_bytes))
    }

    /// Call `each` for each run of the rows, in order.
    pub(crate) fn each_run(&self, rows: impl Iterator<Item = u64>, mut each: impl FnMut(Run)) {
        let rows_max = (RUN_BYTES_MAX / self.rows.stride_bytes).max(1);
        let mut run = Run { first: 0, rows: 0 };
        for row in rows {
            if run.rows > 0 && run.rows < rows_max && row == run.first + run.rows {
                run.rows += 1;
                continue;
            }
            if run.rows > 0 {
                each(run);
            }
            run = Run {
                first: row,
                rows: 1,
            };
        }
        if run.rows > 0 {
            each(run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(stride_bytes: u64, rows: &[u64]) -> Vec<(u64, u64)> {
        let filed = Filed {
            number: 0,
            rows: FileRows {
                offset: 4096,
                stride_bytes,
                first: 0,
                checksums: false,
            },
            row_bytes: stride_bytes,
        };
        let mut found = Vec::new();
        filed.each_run(rows.iter().copied(), |run| {
            found.push((run.first, run.rows));
        });
        found
    }

    #[test]
    fn rows_that_follow_each_other_are_one_read() {
        assert_eq!(
            runs(512, &[3, 4, 5, 9, 8, 8, 9]),
            [(3, 3), (9, 1), (8, 1), (8, 2)]
        );
        assert_eq!(runs(512, &[]), []);
    }

    #[test]
    fn a_read_ends_at_its_limit_and_a_long_row_is_one() {
        assert_eq!(runs(1 << 19, &[0, 1, 2]), [(0, 2), (2, 1)]);
        assert_eq!(runs(1 << 22, &[0, 1]), [(0, 1), (1, 1)]);
    }
}
