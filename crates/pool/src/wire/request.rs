//! What the client asks of the keeper.

use super::field::{Reader, UNKNOWN, Writer};
use super::{Deadlines, Handle, Launch};
use crate::death::Cause;
use crate::error::Result;

/// From client to keeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeeperRequest {
    /// Describe a template; it is started with the first service that needs it.
    Template {
        template: u32,
        launch: Launch,
        setup: Vec<u8>,
        /// Processes that are kept forked ahead.
        spares: u32,
    },
    /// Fork a service from a template; its socket comes along.
    Fork {
        handle: Handle,
        template: u32,
        deadlines: Deadlines,
    },
    /// Copy a service that is lent; the copy's socket comes along.
    Branch {
        handle: Handle,
        parent: Handle,
        deadlines: Deadlines,
    },
    /// Start a program as a service; its socket comes along.
    Start {
        handle: Handle,
        launch: Launch,
        deadlines: Deadlines,
    },
    /// The service is being reset: end it unless that is done in time.
    Reset { handle: Handle, deadline_ms: u64 },
    /// End a service.
    Kill { handle: Handle, cause: Cause },
    /// Ask for what a service wrote lately.
    Output { handle: Handle },
    /// So many idle services of a key stay, however long they are idle.
    Keep { key: u32, min_idle: u32 },
    /// End everything.
    Shutdown,
    /// Ask for what a service writes, reported as soon as it is more than so many bytes in all.
    Follow { handle: Handle, beyond: u64 },
}

impl KeeperRequest {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let writer = Writer::default();
        match self {
            Self::Template {
                template,
                launch,
                setup,
                spares,
            } => writer
                .u8(1)
                .u32(*template)
                .launch(launch)
                .bytes(setup)
                .u32(*spares),
            Self::Fork {
                handle,
                template,
                deadlines,
            } => writer
                .u8(2)
                .handle(*handle)
                .u32(*template)
                .deadlines(*deadlines),
            Self::Start {
                handle,
                launch,
                deadlines,
            } => writer
                .u8(3)
                .handle(*handle)
                .launch(launch)
                .deadlines(*deadlines),
            Self::Reset {
                handle,
                deadline_ms,
            } => writer.u8(4).handle(*handle).u64(*deadline_ms),
            Self::Kill { handle, cause } => writer.u8(5).handle(*handle).u8(cause.code()),
            Self::Output { handle } => writer.u8(6).handle(*handle),
            Self::Shutdown => writer.u8(7),
            Self::Keep { key, min_idle } => writer.u8(9).u32(*key).u32(*min_idle),
            Self::Branch {
                handle,
                parent,
                deadlines,
            } => writer
                .u8(8)
                .handle(*handle)
                .handle(*parent)
                .deadlines(*deadlines),
            Self::Follow { handle, beyond } => writer.u8(10).handle(*handle).u64(*beyond),
        }
        .0
    }

    /// From bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader(bytes);
        let request = match reader.u8()? {
            1 => Self::Template {
                template: reader.u32()?,
                launch: reader.launch()?,
                setup: reader.bytes()?,
                spares: reader.u32()?,
            },
            2 => Self::Fork {
                handle: reader.handle()?,
                template: reader.u32()?,
                deadlines: reader.deadlines()?,
            },
            3 => Self::Start {
                handle: reader.handle()?,
                launch: reader.launch()?,
                deadlines: reader.deadlines()?,
            },
            4 => Self::Reset {
                handle: reader.handle()?,
                deadline_ms: reader.u64()?,
            },
            5 => Self::Kill {
                handle: reader.handle()?,
                cause: Cause::from_code(reader.u8()?)?,
            },
            6 => Self::Output {
                handle: reader.handle()?,
            },
            7 => Self::Shutdown,
            9 => Self::Keep {
                key: reader.u32()?,
                min_idle: reader.u32()?,
            },
            8 => Self::Branch {
                handle: reader.handle()?,
                parent: reader.handle()?,
                deadlines: reader.deadlines()?,
            },
            10 => Self::Follow {
                handle: reader.handle()?,
                beyond: reader.u64()?,
            },
            _ => return Err(UNKNOWN),
        };
        reader.end(request)
    }
}
