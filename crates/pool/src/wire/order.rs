//! What the keeper has a template, or one of its children, do.

use super::Handle;
use super::field::{Reader, UNKNOWN, Writer};
use crate::confine::Confinement;
use crate::error::Result;

/// From keeper to template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// First message: what to import, and the directory of the first service.
    Setup { setup: Vec<u8>, directory: Vec<u8> },
    /// Fork a service; its socket, output and keeper link come along. The directory is the one of the next.
    Fork {
        handle: Handle,
        next: Vec<u8>,
        confinement: Option<Confinement>,
    },
    /// Fork a spare, which waits to become a service; its keeper link comes along.
    Spare { next: Vec<u8> },
    /// To a spare: become a service; its socket and output come along.
    Serve {
        handle: Handle,
        confinement: Option<Confinement>,
    },
    /// To a service: fork a copy of itself; the same comes along. The directory is the copy's.
    Branch {
        handle: Handle,
        directory: Vec<u8>,
        confinement: Option<Confinement>,
    },
    /// To a service: a copy that was asked for is not to be made.
    Skip { handle: Handle },
}

impl Order {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let writer = Writer::default();
        match self {
            Self::Setup { setup, directory } => writer.u8(1).bytes(setup).bytes(directory),
            Self::Fork {
                handle,
                next,
                confinement,
            } => writer
                .u8(2)
                .handle(*handle)
                .bytes(next)
                .confinement(confinement.as_ref()),
            Self::Branch {
                handle,
                directory,
                confinement,
            } => writer
                .u8(3)
                .handle(*handle)
                .bytes(directory)
                .confinement(confinement.as_ref()),
            Self::Skip { handle } => writer.u8(4).handle(*handle),
            Self::Spare { next } => writer.u8(5).bytes(next),
            Self::Serve {
                handle,
                confinement,
            } => writer
                .u8(6)
                .handle(*handle)
                .confinement(confinement.as_ref()),
        }
        .0
    }

    /// From bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader(bytes);
        let order = match reader.u8()? {
            1 => Self::Setup {
                setup: reader.bytes()?,
                directory: reader.bytes()?,
            },
            2 => Self::Fork {
                handle: reader.handle()?,
                next: reader.bytes()?,
                confinement: reader.confinement()?,
            },
            3 => Self::Branch {
                handle: reader.handle()?,
                directory: reader.bytes()?,
                confinement: reader.confinement()?,
            },
            4 => Self::Skip {
                handle: reader.handle()?,
            },
            5 => Self::Spare {
                next: reader.bytes()?,
            },
            6 => Self::Serve {
                handle: reader.handle()?,
                confinement: reader.confinement()?,
            },
            _ => return Err(UNKNOWN),
        };
        reader.end(order)
    }
}
