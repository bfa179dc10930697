//! What the lender answers a program.

use super::{Handle, Lent, QuestionId, Row, ServiceEvent, Terms};
use crate::death::{Cause, Death};
use crate::error::Result;
use crate::wire::field::{Reader, UNKNOWN, Writer};

/// Sizes and counters, in an order of their own; see `Lender::status`.
pub const STATUS_FIELDS: usize = 17;

/// To a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To `Hello` and `Status`; the second list is of deaths by cause.
    Status {
        ticket: QuestionId,
        fields: [u64; STATUS_FIELDS],
        deaths: Vec<(Cause, u64)>,
    },
    /// The number of a kind, and what the lender wants of every program.
    Kind {
        ticket: QuestionId,
        key: u32,
        terms: Terms,
    },
    /// A service is lent. Its socket, the holder's end of its own socket where it has one, and its pidfd come along where the
    /// program does not know this process yet; no pidfd where its pid is not known yet.
    Lent { ticket: QuestionId, lent: Lent },
    /// A further lease of a service that the program holds; beside it, what was asked for.
    Joined {
        ticket: QuestionId,
        handle: Handle,
        key: u32,
        group: u32,
    },
    /// The program makes a service: its socket comes along, but for a program that is to be launched.
    /// `leases`: those of its kind so far.
    Start {
        ticket: QuestionId,
        handle: Handle,
        leases: u64,
    },
    /// A service that the program started is lent; its pidfd comes along.
    Started { ticket: QuestionId, pid: i32 },
    /// A service ended.
    Died { ticket: QuestionId, death: Death },
    /// What a service wrote.
    Output { ticket: QuestionId, text: Vec<u8> },
    /// Some of the services; `next` is 0 or where to go on.
    Services {
        ticket: QuestionId,
        rows: Vec<Row>,
        next: u32,
    },
    /// So many services were ended, and so many will be when they come back.
    Drained {
        ticket: QuestionId,
        ended: u32,
        marked: u32,
    },
    /// A named limit was reached.
    Refused {
        ticket: QuestionId,
        limit: Vec<u8>,
        maximum: u64,
        value: u64,
        next: Vec<u8>,
    },
    /// It could not be done.
    Failed { ticket: QuestionId, reason: Vec<u8> },
    /// The newest that a service wrote, and how many bytes it has written in all.
    Written {
        ticket: QuestionId,
        total: u64,
        text: Vec<u8>,
    },
    /// The directory of a service.
    Directory { ticket: QuestionId, path: Vec<u8> },
    /// What happened, and the number of the event after these.
    Events {
        ticket: QuestionId,
        next: u64,
        events: Vec<ServiceEvent>,
    },
}

impl Reply {
    /// The question that it answers.
    pub const fn ticket(&self) -> QuestionId {
        match self {
            Self::Status { ticket, .. }
            | Self::Kind { ticket, .. }
            | Self::Lent { ticket, .. }
            | Self::Joined { ticket, .. }
            | Self::Start { ticket, .. }
            | Self::Started { ticket, .. }
            | Self::Died { ticket, .. }
            | Self::Output { ticket, .. }
            | Self::Services { ticket, .. }
            | Self::Drained { ticket, .. }
            | Self::Refused { ticket, .. }
            | Self::Failed { ticket, .. }
            | Self::Written { ticket, .. }
            | Self::Directory { ticket, .. }
            | Self::Events { ticket, .. } => *ticket,
        }
    }

    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let number = self.number();
        let writer = Writer::default().u8(number).u64(self.ticket());
        match self {
            Self::Status { fields, deaths, .. } => {
                let writer = fields
                    .iter()
                    .fold(writer, |writer, field| writer.u64(*field));
                deaths
                    .iter()
                    .fold(writer.length(deaths.len()), |writer, (cause, count)| {
                        writer.u8(cause.code()).u64(*count)
                    })
            }
            Self::Kind { key, terms, .. } => writer.u32(*key).terms(terms),
            Self::Lent { lent, .. } => writer.lent(lent),
            Self::Joined {
                handle, key, group, ..
            } => writer.handle(*handle).u32(*key).u32(*group),
            Self::Start { handle, leases, .. } => writer.handle(*handle).u64(*leases),
            Self::Started { pid, .. } => writer.i32(*pid),
            Self::Died { death, .. } => writer.death(death),
            Self::Output { text, .. } => writer.bytes(text),
            Self::Services { rows, next, .. } => {
                let writer = writer.u32(*next).length(rows.len());
                rows.iter().fold(writer, Writer::row)
            }
            Self::Drained { ended, marked, .. } => writer.u32(*ended).u32(*marked),
            Self::Refused {
                limit,
                maximum,
                value,
                next,
                ..
            } => writer.bytes(limit).u64(*maximum).u64(*value).bytes(next),
            Self::Failed { reason, .. } => writer.bytes(reason),
            Self::Written { total, text, .. } => writer.u64(*total).bytes(text),
            Self::Directory { path, .. } => writer.bytes(path),
            Self::Events { next, events, .. } => {
                let writer = writer.u64(*next).length(events.len());
                events.iter().fold(writer, Writer::event)
            }
        }
        .0
    }

    const fn number(&self) -> u8 {
        match self {
            Self::Status { .. } => 1,
            Self::Kind { .. } => 2,
            Self::Lent { .. } => 3,
            Self::Start { .. } => 4,
            Self::Started { .. } => 5,
            Self::Died { .. } => 6,
            Self::Output { .. } => 7,
            Self::Services { .. } => 8,
            Self::Drained { .. } => 9,
            Self::Refused { .. } => 10,
            Self::Failed { .. } => 11,
            Self::Written { .. } => 12,
            Self::Directory { .. } => 13,
            Self::Events { .. } => 14,
            Self::Joined { .. } => 15,
        }
    }

    /// From bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader(bytes);
        let number = reader.u8()?;
        let ticket = reader.u64()?;
        let reply = match number {
            3 => Self::Lent {
                ticket,
                lent: reader.lent()?,
            },
            4 => Self::Start {
                ticket,
                handle: reader.handle()?,
                leases: reader.u64()?,
            },
            5 => Self::Started {
                ticket,
                pid: reader.i32()?,
            },
            6 => Self::Died {
                ticket,
                death: reader.death()?,
            },
            10 => Self::Refused {
                ticket,
                limit: reader.bytes()?,
                maximum: reader.u64()?,
                value: reader.u64()?,
                next: reader.bytes()?,
            },
            11 => Self::Failed {
                ticket,
                reason: reader.bytes()?,
            },
            15 => Self::Joined {
                ticket,
                handle: reader.handle()?,
                key: reader.u32()?,
                group: reader.u32()?,
            },
            _ => Self::told(number, ticket, &mut reader)?,
        };
        reader.end(reply)
    }

    /// Those that are not about one lease.
    fn told(number: u8, ticket: QuestionId, reader: &mut Reader<'_>) -> Result<Self> {
        Ok(match number {
            1 => {
                let mut fields = [0; STATUS_FIELDS];
                for field in &mut fields {
                    *field = reader.u64()?;
                }
                let mut deaths = Vec::new();
                for _ in 0..reader.u32()? {
                    deaths.push((Cause::from_code(reader.u8()?)?, reader.u64()?));
                }
                Self::Status {
                    ticket,
                    fields,
                    deaths,
                }
            }
            2 => Self::Kind {
                ticket,
                key: reader.u32()?,
                terms: reader.terms()?,
            },
            7 => Self::Output {
                ticket,
                text: reader.bytes()?,
            },
            8 => {
                let next = reader.u32()?;
                let mut rows = Vec::new();
                for _ in 0..reader.u32()? {
                    rows.push(reader.row()?);
                }
                Self::Services { ticket, rows, next }
            }
            9 => Self::Drained {
                ticket,
                ended: reader.u32()?,
                marked: reader.u32()?,
            },
            12 => Self::Written {
                ticket,
                total: reader.u64()?,
                text: reader.bytes()?,
            },
            13 => Self::Directory {
                ticket,
                path: reader.bytes()?,
            },
            14 => {
                let next = reader.u64()?;
                let mut events = Vec::new();
                for _ in 0..reader.u32()? {
                    events.push(reader.event()?);
                }
                Self::Events {
                    ticket,
                    next,
                    events,
                }
            }
            _ => return Err(UNKNOWN),
        })
    }
}
