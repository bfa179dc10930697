//! How a program says that it can serve, and what the keeper then reports to its caller.

use regex_lite::Regex;

use crate::error::{Error, Result};

/// How a program is seen to be ready.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Readiness {
    /// The program itself: it writes a byte to its socket, and the keeper has no part in it.
    #[default]
    Itself,
    /// The keeper: a line of its output matches this regular expression.
    Line(Vec<u8>),
    /// The keeper: the file of this name stands in its directory, written and closed or moved there.
    File(Vec<u8>),
    /// The keeper: it runs. Where more is needed its caller looks for that.
    Runs,
}

impl Readiness {
    /// As it travels: a code, and a pattern or a name.
    pub fn parts(&self) -> (u8, &[u8]) {
        match self {
            Self::Itself => (0, &[]),
            Self::Line(pattern) => (1, pattern),
            Self::File(name) => (2, name),
            Self::Runs => (3, &[]),
        }
    }

    /// From the wire.
    pub fn from_parts(code: u8, text: Vec<u8>) -> Result<Self> {
        match code {
            0 => Ok(Self::Itself),
            1 => Ok(Self::Line(text)),
            2 => Ok(Self::File(text)),
            3 => Ok(Self::Runs),
            _ => Err(Error::Malformed {
                what: "unknown readiness",
            }),
        }
    }
}

/// The regular expression for the line of a program that is ready.
///
/// It is matched in linear time, so that no pattern can hold the keeper.
///
/// # Errors
/// `Pattern`: it is invalid, or needs what cannot be matched so.
pub fn pattern_of(pattern: &str) -> Result<Regex> {
    Regex::new(pattern).map_err(|error| Error::Pattern {
        pattern: pattern.to_owned(),
        reason: error.to_string(),
    })
}

/// What the keeper writes to a program's caller: process id, directory, and the line or the file's content.
///
/// Little-endian u32: process id, length of the directory, length of the text; then both. At most
/// `LINE_BYTES_MAX` bytes of text and a path, so that one send takes it whole.
pub fn report(pid: i32, directory: &[u8], text: &[u8]) -> Vec<u8> {
    let length = |part: &[u8]| u32::try_from(part.len()).unwrap_or(u32::MAX).to_le_bytes();
    let (pid, sizes) = (pid.to_le_bytes(), [length(directory), length(text)]);
    [&pid[..], &sizes[0], &sizes[1], directory, text].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_readiness_survives_the_wire() {
        let all = [
            Readiness::Itself,
            Readiness::Line(b"listening on (.*)".to_vec()),
            Readiness::File(b"port".to_vec()),
            Readiness::Runs,
        ];
        for readiness in all {
            let (code, text) = readiness.parts();
            assert_eq!(
                Readiness::from_parts(code, text.to_vec()).expect("known"),
                readiness
            );
        }
        assert!(Readiness::from_parts(4, Vec::new()).is_err());
    }

    #[test]
    fn a_pattern_that_cannot_be_matched_says_why() {
        assert!(pattern_of("listening on (?P<port>[0-9]+)").is_ok());
        let error = pattern_of("ready(?=:)").expect_err("looks ahead");
        assert!(
            error
                .to_string()
                .starts_with("invalid pattern \"ready(?=:)\"")
        );
    }

    #[test]
    fn a_report_says_where_its_parts_end() {
        assert_eq!(
            report(258, b"/d", b"x"),
            b"\x02\x01\0\0\x02\0\0\0\x01\0\0\0/dx"
        );
    }
}
