//! What a program asks of the lender.

use super::{Handle, Kind, Launch, QuestionId};
use crate::death::Cause;
use crate::error::Result;
use crate::wire::field::{Reader, UNKNOWN, Writer};

/// The first number of a message that is about a lease and has no answer.
const NOTICES: u8 = 32;

/// From a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The first message.
    Hello { ticket: QuestionId, version: u32 },
    /// Give a number to a kind of services.
    Kind { ticket: QuestionId, kind: Box<Kind> },
    /// Lend a service of a kind, or a further lease of one that the callers of a group share in this program.
    Ask {
        ticket: QuestionId,
        key: u32,
        group: u32,
    },
    /// A service that the program started is ready: lend it. `report` is for the programs that get it later.
    Lend {
        ticket: QuestionId,
        handle: Handle,
        report: Vec<u8>,
    },
    /// How did a lent service end?
    Death { ticket: QuestionId, handle: Handle },
    /// What did a lent service write?
    Output { ticket: QuestionId, handle: Handle },
    /// Sizes and counters.
    Status { ticket: QuestionId },
    /// The services from a slot on.
    Services { ticket: QuestionId, from: u32 },
    /// End the services of a name, or all: at once, or when they come back.
    Drain { ticket: QuestionId, name: Vec<u8> },
    /// Copy a lent service: its holder tells it to fork, and gets the copy's lease.
    Branch { ticket: QuestionId, handle: Handle },
    /// What does a lent service write beyond the bytes that were seen? Answered once there is some.
    Follow {
        ticket: QuestionId,
        handle: Handle,
        seen: u64,
    },
    /// Where is the directory of a lent service?
    Directory { ticket: QuestionId, handle: Handle },
    /// Start the program whose start was granted. Its own end of a socket comes along where it has `own`, and then the
    /// holder's end of that socket, which later holders get. `port` is the port that it was given; 0: none.
    Launch {
        ticket: QuestionId,
        handle: Handle,
        launch: Box<Launch>,
        port: u16,
        own: bool,
    },
    /// Keep so many idle services of a kind, and have one started by this program: answered once one is missing.
    Refill {
        ticket: QuestionId,
        key: u32,
        min_idle: u32,
    },
    /// Keep a kind ready no longer.
    StopRefill { ticket: QuestionId, key: u32 },
    /// Read events no longer.
    StopEvents { ticket: QuestionId },
    /// What happened from an event on? Answered once there is some; what is beyond the newest is answered at once, with the
    /// number of the next one.
    Events { ticket: QuestionId, from: u64 },
    /// A question was given up; a service that was granted meanwhile goes to the next caller.
    Leave { ticket: QuestionId },
    /// Give a service back. Where it was sent a reset, `unanswered` is the call whose answer the next holder reads.
    Release { handle: Handle, unanswered: u64 },
    /// Leave a start to the next caller: `unanswered` is the call that makes it, 0 where it was answered; `preface_read` says that
    /// the service's preface was read; `report` is as of `Lend`, where it was answered.
    Abandon {
        handle: Handle,
        unanswered: u64,
        preface_read: bool,
        report: Vec<u8>,
    },
    /// Have a service ended: in order with `Returned`, at once with every other cause.
    Discard { handle: Handle, cause: Cause },
    /// Have a service ended whose holder keeps the lease: a call took longer than its limits allow.
    Overdue { handle: Handle },
    /// A lent service has settled: others of the group that it was lent to may share it.
    Open { handle: Handle },
    /// One of the leases of a service ends; after the last, a `Release` or a `Discard` follows. With `closed`, the service
    /// takes no further leases and ends with its last one.
    ReleaseShared { handle: Handle, closed: bool },
}

impl Request {
    /// The ticket of the question; `None` for a message that has no answer.
    pub const fn question_id(&self) -> Option<QuestionId> {
        match self {
            Self::Hello { ticket, .. }
            | Self::Kind { ticket, .. }
            | Self::Ask { ticket, .. }
            | Self::Lend { ticket, .. }
            | Self::Death { ticket, .. }
            | Self::Output { ticket, .. }
            | Self::Status { ticket }
            | Self::Services { ticket, .. }
            | Self::Drain { ticket, .. }
            | Self::Branch { ticket, .. }
            | Self::Follow { ticket, .. }
            | Self::Directory { ticket, .. }
            | Self::Launch { ticket, .. }
            | Self::Refill { ticket, .. }
            | Self::Events { ticket, .. } => Some(*ticket),
            Self::Leave { .. }
            | Self::StopRefill { .. }
            | Self::StopEvents { .. }
            | Self::Release { .. }
            | Self::Abandon { .. }
            | Self::Discard { .. }
            | Self::Overdue { .. }
            | Self::Open { .. }
            | Self::ReleaseShared { .. } => None,
        }
    }

    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let writer = Writer::default();
        match self {
            Self::Hello { ticket, version } => writer.u8(1).u64(*ticket).u32(*version),
            Self::Kind { ticket, kind } => writer.u8(2).u64(*ticket).kind(kind),
            Self::Ask { ticket, key, group } => writer.u8(3).u64(*ticket).u32(*key).u32(*group),
            Self::Lend {
                ticket,
                handle,
                report,
            } => writer.u8(4).u64(*ticket).handle(*handle).bytes(report),
            Self::Death { ticket, handle } => writer.u8(5).u64(*ticket).handle(*handle),
            Self::Output { ticket, handle } => writer.u8(6).u64(*ticket).handle(*handle),
            Self::Status { ticket } => writer.u8(7).u64(*ticket),
            Self::Services { ticket, from } => writer.u8(8).u64(*ticket).u32(*from),
            Self::Drain { ticket, name } => writer.u8(9).u64(*ticket).bytes(name),
            Self::Leave { ticket } => writer.u8(10).u64(*ticket),
            Self::Branch { ticket, handle } => writer.u8(11).u64(*ticket).handle(*handle),
            Self::Follow {
                ticket,
                handle,
                seen,
            } => writer.u8(12).u64(*ticket).handle(*handle).u64(*seen),
            Self::Directory { ticket, handle } => writer.u8(13).u64(*ticket).handle(*handle),
            Self::Launch {
                ticket,
                handle,
                launch,
                port,
                own,
            } => {
                let writer = writer.u8(14).u64(*ticket).handle(*handle);
                let writer = writer.u32((*port).into()).u8(u8::from(*own));
                writer.launch(launch)
            }
            Self::Refill {
                ticket,
                key,
                min_idle,
            } => writer.u8(15).u64(*ticket).u32(*key).u32(*min_idle),
            Self::Events { ticket, from } => writer.u8(16).u64(*ticket).u64(*from),
            Self::StopRefill { ticket, key } => writer.u8(17).u64(*ticket).u32(*key),
            Self::StopEvents { ticket } => writer.u8(18).u64(*ticket),
            Self::Release { handle, unanswered } => writer.u8(32).handle(*handle).u64(*unanswered),
            Self::Abandon {
                handle,
                unanswered,
                preface_read,
                report,
            } => {
                let writer = writer.u8(33).handle(*handle).u64(*unanswered);
                writer.u8(u8::from(*preface_read)).bytes(report)
            }
            Self::Discard { handle, cause } => writer.u8(34).handle(*handle).u8(cause.code()),
            Self::Overdue { handle } => writer.u8(35).handle(*handle),
            Self::Open { handle } => writer.u8(36).handle(*handle),
            Self::ReleaseShared { handle, closed } => {
                writer.u8(37).handle(*handle).u8(u8::from(*closed))
            }
        }
        .0
    }

    /// From bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader(bytes);
        let number = reader.u8()?;
        let request = if number < NOTICES {
            let ticket = reader.u64()?;
            Self::question(number, ticket, &mut reader)?
        } else {
            let handle = reader.handle()?;
            match number {
                32 => Self::Release {
                    handle,
                    unanswered: reader.u64()?,
                },
                33 => Self::Abandon {
                    handle,
                    unanswered: reader.u64()?,
                    preface_read: reader.flag()?,
                    report: reader.report()?,
                },
                34 => Self::Discard {
                    handle,
                    cause: Cause::from_code(reader.u8()?)?,
                },
                35 => Self::Overdue { handle },
                36 => Self::Open { handle },
                37 => Self::ReleaseShared {
                    handle,
                    closed: reader.flag()?,
                },
                _ => return Err(UNKNOWN),
            }
        };
        reader.end(request)
    }

    fn launch(ticket: QuestionId, reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self::Launch {
            ticket,
            handle: reader.handle()?,
            port: reader.port()?,
            own: reader.flag()?,
            launch: Box::new(reader.launch()?),
        })
    }

    fn question(number: u8, ticket: QuestionId, reader: &mut Reader<'_>) -> Result<Self> {
        Ok(match number {
            1 => Self::Hello {
                ticket,
                version: reader.u32()?,
            },
            2 => Self::Kind {
                ticket,
                kind: Box::new(reader.kind()?),
            },
            3 => Self::Ask {
                ticket,
                key: reader.u32()?,
                group: reader.u32()?,
            },
            4 => Self::Lend {
                ticket,
                handle: reader.handle()?,
                report: reader.report()?,
            },
            5 => Self::Death {
                ticket,
                handle: reader.handle()?,
            },
            6 => Self::Output {
                ticket,
                handle: reader.handle()?,
            },
            7 => Self::Status { ticket },
            8 => Self::Services {
                ticket,
                from: reader.u32()?,
            },
            9 => Self::Drain {
                ticket,
                name: reader.bytes()?,
            },
            10 => Self::Leave { ticket },
            11 => Self::Branch {
                ticket,
                handle: reader.handle()?,
            },
            12 => Self::Follow {
                ticket,
                handle: reader.handle()?,
                seen: reader.u64()?,
            },
            13 => Self::Directory {
                ticket,
                handle: reader.handle()?,
            },
            14 => Self::launch(ticket, reader)?,
            15 => Self::Refill {
                ticket,
                key: reader.u32()?,
                min_idle: reader.u32()?,
            },
            16 => Self::Events {
                ticket,
                from: reader.u64()?,
            },
            17 => Self::StopRefill {
                ticket,
                key: reader.u32()?,
            },
            18 => Self::StopEvents { ticket },
            _ => return Err(UNKNOWN),
        })
    }
}
