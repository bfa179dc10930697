//! The steps in the life of a service that a pool tells of.

use crate::death::Cause;
use crate::error::{Error, Result};

/// What happened to a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// A start began.
    Start,
    /// It was lent.
    Lease,
    /// It came back and is idle.
    Release,
    /// It came back and is being reset.
    Reset,
    /// It is being ended by us.
    End(Cause),
    /// It ended.
    Death(Cause),
}

impl Transition {
    /// The word that users see, and the cause of an end.
    pub const fn words(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Start => ("start", None),
            Self::Lease => ("lease", None),
            Self::Release => ("release", None),
            Self::Reset => ("reset", None),
            Self::End(cause) => ("end", Some(cause.name())),
            Self::Death(cause) => ("death", Some(cause.name())),
        }
    }

    /// For the wire; the cause of an end is 0 where there is none.
    pub const fn codes(self) -> (u8, u8) {
        match self {
            Self::Start => (0, 0),
            Self::Lease => (1, 0),
            Self::Release => (2, 0),
            Self::Reset => (3, 0),
            Self::End(cause) => (4, cause.code()),
            Self::Death(cause) => (5, cause.code()),
        }
    }

    /// From the wire.
    ///
    /// # Errors
    /// `Malformed` for codes that are not given out.
    pub fn from_codes(code: u8, cause: u8) -> Result<Self> {
        Ok(match code {
            0 => Self::Start,
            1 => Self::Lease,
            2 => Self::Release,
            3 => Self::Reset,
            4 => Self::End(Cause::from_code(cause)?),
            5 => Self::Death(Cause::from_code(cause)?),
            _ => {
                return Err(Error::Malformed {
                    what: "an unknown event",
                });
            }
        })
    }
}
