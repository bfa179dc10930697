//! The line behind the head that says how much of the middle was discarded.
//!
//! It is the only state of a log, so a log can be read or continued from its file alone. A program that writes exactly
//! this line at exactly this offset misleads only the readers of its own log.

use std::fs::File;
use std::io::{ErrorKind, Result};
use std::os::unix::fs::FileExt;

use crate::limit::LOG_HEAD_BYTES;

const BEFORE: &str = "\n[forebay: ";
const BEHIND: [&str; 2] = [
    " bytes of output were given up here, see max_log_bytes (hole)]\n",
    " bytes of output were given up here, see max_log_bytes (cut) ]\n",
];
/// Digits of the number, aligned to the right.
const DIGITS: usize = 15;
/// Bytes of a marker.
pub const MARKER_BYTES: usize = BEFORE.len() + DIGITS + BEHIND[0].len();
/// [`MARKER_BYTES`], for sums with offsets.
pub const MARKER_SPACE: u64 = MARKER_BYTES as u64;

/// How the discarded part is represented in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As a hole: offsets in the file are those of the stream.
    Hole,
    /// Not at all: what follows it has moved up.
    Cut,
}

/// The discarded bytes of the stream from [`LOG_HEAD_BYTES`] on, including those that the marker covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    pub given_up: u64,
    pub form: Form,
}

impl Marker {
    /// Where the tail begins in the stream.
    pub fn tail(&self) -> u64 {
        LOG_HEAD_BYTES + self.given_up
    }

    /// The offset in the file of an offset of the tail.
    pub fn file_offset(&self, offset: u64) -> u64 {
        match self.form {
            Form::Hole => offset,
            Form::Cut => offset - self.given_up + MARKER_SPACE,
        }
    }

    /// The end in the stream of a file of this size.
    pub fn end(&self, file_bytes: u64) -> u64 {
        match self.form {
            Form::Hole => file_bytes,
            Form::Cut => file_bytes - MARKER_SPACE + self.given_up,
        }
    }

    pub fn text(&self) -> String {
        let behind = BEHIND[usize::from(self.form == Form::Cut)];
        format!("{BEFORE}{:>DIGITS$}{behind}", self.given_up)
    }

    /// The marker of a file of this size.
    pub fn find(file: &File, file_bytes: u64) -> Result<Option<Self>> {
        if file_bytes < LOG_HEAD_BYTES + MARKER_SPACE {
            return Ok(None);
        }
        let mut line = [0; MARKER_BYTES];
        match file.read_exact_at(&mut line, LOG_HEAD_BYTES) {
            Ok(()) => Ok(Self::parse(&line).filter(|marker| marker.fits(file_bytes))),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn parse(line: &[u8]) -> Option<Self> {
        let line = std::str::from_utf8(line).ok()?.strip_prefix(BEFORE)?;
        let (number, behind) = line.split_at_checked(DIGITS)?;
        let form = match BEHIND.iter().position(|&text| text == behind)? {
            0 => Form::Hole,
            _ => Form::Cut,
        };
        let given_up = number.trim_start().parse().ok()?;
        Some(Self { given_up, form })
    }

    /// Whether a file of this size can have it.
    fn fits(&self, file_bytes: u64) -> bool {
        self.given_up >= MARKER_SPACE
            && match self.form {
                Form::Hole => self.tail() <= file_bytes,
                Form::Cut => true,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_read_back_and_keeps_its_length() {
        for form in [Form::Hole, Form::Cut] {
            for given_up in [MARKER_SPACE, 999_999_999_999_999] {
                let marker = Marker { given_up, form };
                let text = marker.text();
                assert_eq!(text.len(), MARKER_BYTES);
                assert_eq!(Marker::parse(text.as_bytes()), Some(marker));
            }
        }
        assert_eq!(Marker::parse(&[b'x'; MARKER_BYTES]), None);
        assert_eq!(Marker::parse(&[0xff; MARKER_BYTES]), None);
    }
}
