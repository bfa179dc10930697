//! What the keeper reports to the client.

use super::Handle;
use super::field::{Reader, UNKNOWN, Writer};
use crate::death::Death;
use crate::error::Result;

/// From keeper to client. 6 is reserved for the answer about an heir.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A service's process exists; its pidfd comes along.
    Started {
        handle: Handle,
        pid: i32,
        directory: Vec<u8>,
    },
    /// A service ended, or never started.
    Died { slot: u32, death: Death },
    /// What a service wrote lately.
    Output { handle: Handle, text: Vec<u8> },
    /// A leased service has more private memory than its pool keeps: it is not to be lent again.
    Heavy { slot: u32 },
    /// What a service has written: the newest bytes that are kept, and how many there were in all.
    Written {
        handle: Handle,
        total: u64,
        text: Vec<u8>,
    },
}

impl Event {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let writer = Writer::default();
        match self {
            Self::Started {
                handle,
                pid,
                directory,
            } => writer.u8(1).handle(*handle).i32(*pid).bytes(directory),
            Self::Died { slot, death } => writer.u8(2).u32(*slot).death(death),
            Self::Output { handle, text } => writer.u8(3).handle(*handle).bytes(text),
            Self::Heavy { slot } => writer.u8(4).u32(*slot),
            Self::Written {
                handle,
                total,
                text,
            } => writer.u8(5).handle(*handle).u64(*total).bytes(text),
        }
        .0
    }

    /// From bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader(bytes);
        let event = match reader.u8()? {
            1 => Self::Started {
                handle: reader.handle()?,
                pid: reader.i32()?,
                directory: reader.bytes()?,
            },
            2 => Self::Died {
                slot: reader.u32()?,
                death: reader.death()?,
            },
            3 => Self::Output {
                handle: reader.handle()?,
                text: reader.bytes()?,
            },
            4 => Self::Heavy {
                slot: reader.u32()?,
            },
            5 => Self::Written {
                handle: reader.handle()?,
                total: reader.u64()?,
                text: reader.bytes()?,
            },
            _ => return Err(UNKNOWN),
        };
        reader.end(event)
    }
}
