//! What a template, or a service that is copied, reports to the keeper.

use super::Handle;
use super::field::{Reader, UNKNOWN, Writer};
use crate::error::Result;

/// From template to keeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// Imports are done.
    Ready,
    /// The application cannot be imported, or has threads.
    Unfit { reason: Vec<u8> },
    /// A service was forked; it is the keeper's child.
    Forked { handle: Handle, pid: i32 },
    /// It could not be.
    NotForked { handle: Handle, errno: i32 },
    /// A spare was forked; 0: it could not be.
    SpareForked { pid: i32 },
    /// A service has something to do before it ends.
    HasExitHooks,
}

impl Report {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let writer = Writer::default();
        match self {
            Self::Ready => writer.u8(1),
            Self::Unfit { reason } => writer.u8(2).bytes(reason),
            Self::Forked { handle, pid } => writer.u8(3).handle(*handle).i32(*pid),
            Self::NotForked { handle, errno } => writer.u8(4).handle(*handle).i32(*errno),
            Self::SpareForked { pid } => writer.u8(5).i32(*pid),
            Self::HasExitHooks => writer.u8(6),
        }
        .0
    }

    /// From bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader(bytes);
        let report = match reader.u8()? {
            1 => Self::Ready,
            2 => Self::Unfit {
                reason: reader.bytes()?,
            },
            3 => Self::Forked {
                handle: reader.handle()?,
                pid: reader.i32()?,
            },
            4 => Self::NotForked {
                handle: reader.handle()?,
                errno: reader.i32()?,
            },
            5 => Self::SpareForked { pid: reader.i32()? },
            6 => Self::HasExitHooks,
            _ => return Err(UNKNOWN),
        };
        reader.end(report)
    }
}
