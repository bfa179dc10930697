//! The control messages between client, keeper and template.
//!
//! Little-endian fields one after another, texts and bytes behind their u32 length, lists behind their count.
//! Both ends are the same build and the same user; still every length is checked, because a service that
//! scribbles on its template's socket must not take the keeper down with it.

pub mod shared;

use crate::confine::{Confinement, Limits};
use crate::death::{Cause, Death};
use crate::error::{Error, Result};
use crate::readiness::Readiness;

/// A slot and the generation of the lease or start that is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle {
    /// Index of the service's word.
    pub slot: u32,
    /// Generation that the word had.
    pub generation: u64,
}

/// A program to start, as it travels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// Program and arguments.
    pub arguments: Vec<Vec<u8>>,
    /// `NAME=value` pairs.
    pub environment: Vec<(Vec<u8>, Vec<u8>)>,
    /// Working directory; empty: the keeper's.
    pub directory: Vec<u8>,
    /// Who notices that it is ready.
    pub readiness: Readiness,
    /// Whether its caller has to look further: a socket that accepts is announced to nobody.
    pub caller_looks: bool,
    /// The socket of its own that comes along becomes its stdin and stdout, rather than a descriptor.
    pub stdio: bool,
}

/// In arguments, in values of the environment and in the working directory this byte, which none of them can hold,
/// stands for the service's own directory.
pub const OWN_DIRECTORY: u8 = 0;

/// What the keeper holds a service to: deadlines in milliseconds, and what it may use; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deadlines {
    /// From start to ready.
    pub start_ms: u64,
    /// Idle until retired.
    pub idle_ms: u64,
    /// From start until it is retired when it is idle.
    pub lifetime_ms: u64,
    /// What it is interchangeable with: of these so many idle ones stay (`Request::Keep`).
    pub key: u32,
    /// Private bytes until it is not lent again.
    pub private_bytes_max: u64,
    /// What it may use.
    pub limits: Limits,
}

/// From client to keeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
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
    /// Ask for what a service writes, told as soon as it is more than so many bytes in all.
    Follow { handle: Handle, beyond: u64 },
}

/// From keeper to client.
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

/// From keeper to template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// First message: what to import, and the directory of the first service.
    Setup { setup: Vec<u8>, directory: Vec<u8> },
    /// Fork a service; its socket, output and nursery come along. The directory is the one of the next.
    Fork {
        handle: Handle,
        next: Vec<u8>,
        confinement: Option<Confinement>,
    },
    /// Fork a process that will be a service when it is told; its nursery comes along.
    Spare { next: Vec<u8> },
    /// To a spare: be a service; its socket and output come along.
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
    Spared { pid: i32 },
}

/// Append fields to a message.
#[derive(Debug, Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }
    fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }
    fn i32(mut self, value: i32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }
    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }
    fn bytes(self, value: &[u8]) -> Self {
        // Messages are far below 4 GiB: their limit is checked when they are sent.
        let mut written = self.u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
        written.0.extend(value);
        written
    }
    fn handle(self, handle: Handle) -> Self {
        self.u32(handle.slot).u64(handle.generation)
    }
    fn deadlines(self, deadlines: Deadlines) -> Self {
        self.u64(deadlines.start_ms)
            .u64(deadlines.idle_ms)
            .u64(deadlines.lifetime_ms)
            .u32(deadlines.key)
            .u64(deadlines.private_bytes_max)
            .limits(&deadlines.limits)
    }
    fn limits(self, limits: &Limits) -> Self {
        self.u64(limits.memory_bytes)
            .u32(limits.cpu_millis)
            .u32(limits.open_files)
            .u32(limits.processes)
            .u8(limits.advisory.into())
    }
    fn confinement(self, confinement: Option<&Confinement>) -> Self {
        match confinement {
            None => self.u8(0),
            Some(given) => self
                .u8(1)
                .bytes(&given.group)
                .u64(given.data_bytes)
                .u32(given.open_files)
                .u8(given.alone.into()),
        }
    }
    fn launch(self, launch: &Launch) -> Self {
        let mut written = self.u32(u32::try_from(launch.arguments.len()).unwrap_or(u32::MAX));
        for argument in &launch.arguments {
            written = written.bytes(argument);
        }
        written = written.u32(u32::try_from(launch.environment.len()).unwrap_or(u32::MAX));
        for (name, value) in &launch.environment {
            written = written.bytes(name).bytes(value);
        }
        let (code, text) = launch.readiness.parts();
        let written = written.bytes(&launch.directory).u8(code).bytes(text);
        written
            .u8(u8::from(launch.caller_looks))
            .u8(u8::from(launch.stdio))
    }
}

/// Take fields from a message.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count).ok_or(Error::Malformed {
            what: "a field is cut short",
        })?;
        self.0 = rest;
        Ok(head)
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }
    fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }
    fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }
    fn i32(&mut self) -> Result<i32> {
        self.array().map(i32::from_le_bytes)
    }
    fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }
    fn bytes(&mut self) -> Result<Vec<u8>> {
        let count = self.u32()? as usize;
        self.take(count).map(<[u8]>::to_vec)
    }
    fn handle(&mut self) -> Result<Handle> {
        Ok(Handle {
            slot: self.u32()?,
            generation: self.u64()?,
        })
    }
    fn deadlines(&mut self) -> Result<Deadlines> {
        Ok(Deadlines {
            start_ms: self.u64()?,
            idle_ms: self.u64()?,
            lifetime_ms: self.u64()?,
            key: self.u32()?,
            private_bytes_max: self.u64()?,
            limits: self.limits()?,
        })
    }
    fn limits(&mut self) -> Result<Limits> {
        Ok(Limits {
            memory_bytes: self.u64()?,
            cpu_millis: self.u32()?,
            open_files: self.u32()?,
            processes: self.u32()?,
            advisory: self.u8()? != 0,
        })
    }
    fn confinement(&mut self) -> Result<Option<Confinement>> {
        if self.u8()? == 0 {
            return Ok(None);
        }
        Ok(Some(Confinement {
            group: self.bytes()?,
            data_bytes: self.u64()?,
            open_files: self.u32()?,
            alone: self.u8()? != 0,
        }))
    }
    fn launch(&mut self) -> Result<Launch> {
        let mut launch = Launch::default();
        for _ in 0..self.u32()? {
            launch.arguments.push(self.bytes()?);
        }
        for _ in 0..self.u32()? {
            launch.environment.push((self.bytes()?, self.bytes()?));
        }
        launch.directory = self.bytes()?;
        launch.readiness = Readiness::from_parts(self.u8()?, self.bytes()?)?;
        launch.caller_looks = self.u8()? != 0;
        launch.stdio = self.u8()? != 0;
        Ok(launch)
    }
    fn end<T>(self, value: T) -> Result<T> {
        if self.0.is_empty() {
            Ok(value)
        } else {
            Err(Error::Malformed {
                what: "bytes after the last field",
            })
        }
    }
}

const UNKNOWN: Error = Error::Malformed {
    what: "unknown message",
};

impl Request {
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
            Self::Died { slot, death } => writer
                .u8(2)
                .u32(*slot)
                .u8(death.cause.code())
                .i32(death.pid)
                .i32(death.code)
                .u64(death.peak_bytes)
                .u64(death.limit_bytes)
                .bytes(&death.text),
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
            2 => {
                let slot = reader.u32()?;
                let cause = Cause::from_code(reader.u8()?)?;
                let death = Death {
                    cause,
                    pid: reader.i32()?,
                    code: reader.i32()?,
                    peak_bytes: reader.u64()?,
                    limit_bytes: reader.u64()?,
                    text: reader.bytes()?,
                };
                Self::Died { slot, death }
            }
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

impl Report {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let writer = Writer::default();
        match self {
            Self::Ready => writer.u8(1),
            Self::Unfit { reason } => writer.u8(2).bytes(reason),
            Self::Forked { handle, pid } => writer.u8(3).handle(*handle).i32(*pid),
            Self::NotForked { handle, errno } => writer.u8(4).handle(*handle).i32(*errno),
            Self::Spared { pid } => writer.u8(5).i32(*pid),
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
            5 => Self::Spared {
                pid: reader.i32()?,
            },
            _ => return Err(UNKNOWN),
        };
        reader.end(report)
    }
}

#[cfg(test)]
mod tests;
