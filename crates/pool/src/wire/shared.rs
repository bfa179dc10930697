//! What the programs of one user and the process that lends them services say to each other.
//!
//! A *ticket* is the program's number for one question; every question gets one answer with its
//! ticket. Descriptors come along where it is said. Both ends are the same user, and the first message says which
//! version of this they speak.

use super::{Handle, Launch, Reader, UNKNOWN, Writer};
use crate::confine::Limits;
use crate::death::{Cause, Death};
use crate::error::Result;

/// Grows when a message changes; both ends must speak the same.
pub const VERSION: u32 = 1;

/// The program's number for one question.
pub type Ticket = u64;

/// What makes services interchangeable, and how one is started. Who starts it also makes it, over its own socket: what
/// it is made with does not travel here, but the digest covers it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kind {
    /// Of everything that makes two services interchangeable.
    pub digest: Vec<u8>,
    /// Stands in messages.
    pub name: Vec<u8>,
    /// Of everything that the template is started with; empty for a program.
    pub template: Vec<u8>,
    /// The template, or the program itself.
    pub launch: Launch,
    /// What the template is told first.
    pub setup: Vec<u8>,
    /// What each process may use.
    pub limits: Limits,
}

/// From a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The first message.
    Hello { ticket: Ticket, version: u32 },
    /// Give a number to a kind of services.
    Kind { ticket: Ticket, kind: Box<Kind> },
    /// Lend a service of a kind.
    Ask { ticket: Ticket, key: u32 },
    /// A service that the program started is ready: lend it.
    Lend { ticket: Ticket, handle: Handle },
    /// How did a lent service end?
    Death { ticket: Ticket, handle: Handle },
    /// What did a lent service write?
    Output { ticket: Ticket, handle: Handle },
    /// Sizes and counters.
    Status { ticket: Ticket },
    /// The services from a slot on.
    Services { ticket: Ticket, from: u32 },
    /// End the services of a name, or all: at once, or when they come back.
    Drain { ticket: Ticket, name: Vec<u8> },
    /// A question was given up; what it was granted meanwhile goes to the next.
    Leave { ticket: Ticket },
    /// Give a service back. Where it was sent a reset, `owed` is the call whose answer the next holder reads.
    Release { handle: Handle, owed: u64 },
    /// Leave a start to whoever comes next: `owed` is the call that makes it, 0 where it was answered; `met` says that
    /// the service's preface was read.
    Abandon {
        handle: Handle,
        owed: u64,
        met: bool,
    },
    /// Have a service ended.
    Discard { handle: Handle },
    /// Have a service ended whose holder keeps the lease: a call took longer than its limits allow.
    Overdue { handle: Handle },
}

/// Sizes and counters, in an order of their own; see `Lender::status`.
pub const STATUS_FIELDS: usize = 12;

/// One service, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Its place in the pool.
    pub slot: u32,
    /// Its process; 0 until it is known.
    pub pid: i32,
    /// Its kind.
    pub name: Vec<u8>,
    /// Starting, idle, leased or settling.
    pub state: Place,
    /// The program that holds it; 0 for none.
    pub holder: i32,
    /// Since when it is in this state, in milliseconds.
    pub age_ms: u64,
}

/// What a service is doing, for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Place {
    /// Ready and nobody's.
    #[default]
    Idle = 0,
    /// Not yet ready.
    Starting = 1,
    /// Lent.
    Leased = 2,
    /// Owes an answer: started or reset.
    Settling = 3,
}

impl Place {
    /// The word that users see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Starting => "starting",
            Self::Leased => "leased",
            Self::Settling => "settling",
        }
    }
}

/// To a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To `Hello` and `Status`; the second list is of deaths by cause.
    Status {
        ticket: Ticket,
        fields: [u64; STATUS_FIELDS],
        deaths: Vec<(Cause, u64)>,
    },
    /// The number of a kind.
    Kind { ticket: Ticket, key: u32 },
    /// A service is lent. Its socket and pidfd come along where the program does not know this process yet; the
    /// socket alone where the pid is 0, that is not known yet, which `Lend` mends.
    Lent {
        ticket: Ticket,
        handle: Handle,
        pid: i32,
        owed: u64,
        met: bool,
    },
    /// The program makes a service: its socket comes along.
    Start { ticket: Ticket, handle: Handle },
    /// A service that the program started is lent; its pidfd comes along.
    Met { ticket: Ticket, pid: i32 },
    /// A service ended.
    Died { ticket: Ticket, death: Death },
    /// What a service wrote.
    Output { ticket: Ticket, text: Vec<u8> },
    /// Some of the services; `next` is 0 or where to go on.
    Services {
        ticket: Ticket,
        rows: Vec<Row>,
        next: u32,
    },
    /// So many services were ended, and so many will be when they come back.
    Drained {
        ticket: Ticket,
        ended: u32,
        marked: u32,
    },
    /// A named limit was reached.
    Refused {
        ticket: Ticket,
        limit: Vec<u8>,
        maximum: u64,
        value: u64,
        next: Vec<u8>,
    },
    /// It could not be done.
    Failed { ticket: Ticket, reason: Vec<u8> },
}

impl Writer {
    fn kind(self, kind: &Kind) -> Self {
        self.bytes(&kind.digest)
            .bytes(&kind.name)
            .bytes(&kind.template)
            .launch(&kind.launch)
            .bytes(&kind.setup)
            .limits(&kind.limits)
    }
    fn row(self, row: &Row) -> Self {
        self.u32(row.slot)
            .i32(row.pid)
            .bytes(&row.name)
            .u8(row.state as u8)
            .i32(row.holder)
            .u64(row.age_ms)
    }
    fn length(self, count: usize) -> Self {
        self.u32(u32::try_from(count).unwrap_or(u32::MAX))
    }
}

impl Reader<'_> {
    fn kind(&mut self) -> Result<Kind> {
        Ok(Kind {
            digest: self.bytes()?,
            name: self.bytes()?,
            template: self.bytes()?,
            launch: self.launch()?,
            setup: self.bytes()?,
            limits: self.limits()?,
        })
    }
    fn flag(&mut self) -> Result<bool> {
        Ok(self.u8()? != 0)
    }
    fn row(&mut self) -> Result<Row> {
        Ok(Row {
            slot: self.u32()?,
            pid: self.i32()?,
            name: self.bytes()?,
            state: match self.u8()? {
                1 => Place::Starting,
                2 => Place::Leased,
                3 => Place::Settling,
                _ => Place::Idle,
            },
            holder: self.i32()?,
            age_ms: self.u64()?,
        })
    }
    fn death(&mut self) -> Result<Death> {
        Ok(Death {
            cause: Cause::from_code(self.u8()?)?,
            pid: self.i32()?,
            code: self.i32()?,
            peak_bytes: self.u64()?,
            limit_bytes: self.u64()?,
            text: self.bytes()?,
        })
    }
}

impl Request {
    /// Whether it expects an answer.
    pub const fn is_question(&self) -> bool {
        !matches!(
            self,
            Self::Leave { .. }
                | Self::Release { .. }
                | Self::Abandon { .. }
                | Self::Discard { .. }
                | Self::Overdue { .. }
        )
    }

    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let writer = Writer::default();
        match self {
            Self::Hello { ticket, version } => writer.u8(1).u64(*ticket).u32(*version),
            Self::Kind { ticket, kind } => writer.u8(2).u64(*ticket).kind(kind),
            Self::Ask { ticket, key } => writer.u8(3).u64(*ticket).u32(*key),
            Self::Lend { ticket, handle } => writer.u8(4).u64(*ticket).handle(*handle),
            Self::Death { ticket, handle } => writer.u8(5).u64(*ticket).handle(*handle),
            Self::Output { ticket, handle } => writer.u8(6).u64(*ticket).handle(*handle),
            Self::Status { ticket } => writer.u8(7).u64(*ticket),
            Self::Services { ticket, from } => writer.u8(8).u64(*ticket).u32(*from),
            Self::Drain { ticket, name } => writer.u8(9).u64(*ticket).bytes(name),
            Self::Leave { ticket } => writer.u8(10).u64(*ticket),
            Self::Release { handle, owed } => writer.u8(11).handle(*handle).u64(*owed),
            Self::Abandon { handle, owed, met } => {
                let writer = writer.u8(12).handle(*handle).u64(*owed);
                writer.u8(u8::from(*met))
            }
            Self::Discard { handle } => writer.u8(13).handle(*handle),
            Self::Overdue { handle } => writer.u8(14).handle(*handle),
        }
        .0
    }

    /// From bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader(bytes);
        let number = reader.u8()?;
        let request = if number <= 10 {
            let ticket = reader.u64()?;
            Self::question(number, ticket, &mut reader)?
        } else {
            let handle = reader.handle()?;
            match number {
                11 => Self::Release {
                    handle,
                    owed: reader.u64()?,
                },
                12 => Self::Abandon {
                    handle,
                    owed: reader.u64()?,
                    met: reader.flag()?,
                },
                13 => Self::Discard { handle },
                14 => Self::Overdue { handle },
                _ => return Err(UNKNOWN),
            }
        };
        reader.end(request)
    }

    fn question(number: u8, ticket: Ticket, reader: &mut Reader<'_>) -> Result<Self> {
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
            },
            4 => Self::Lend {
                ticket,
                handle: reader.handle()?,
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
            _ => return Err(UNKNOWN),
        })
    }
}

impl Reply {
    /// The question that it answers.
    pub const fn ticket(&self) -> Ticket {
        match self {
            Self::Status { ticket, .. }
            | Self::Kind { ticket, .. }
            | Self::Lent { ticket, .. }
            | Self::Start { ticket, .. }
            | Self::Met { ticket, .. }
            | Self::Died { ticket, .. }
            | Self::Output { ticket, .. }
            | Self::Services { ticket, .. }
            | Self::Drained { ticket, .. }
            | Self::Refused { ticket, .. }
            | Self::Failed { ticket, .. } => *ticket,
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
            Self::Kind { key, .. } => writer.u32(*key),
            Self::Lent {
                handle,
                pid,
                owed,
                met,
                ..
            } => {
                let writer = writer.handle(*handle).i32(*pid).u64(*owed);
                writer.u8(u8::from(*met))
            }
            Self::Start { handle, .. } => writer.handle(*handle),
            Self::Met { pid, .. } => writer.i32(*pid),
            Self::Died { death, .. } => {
                let writer = writer.u8(death.cause.code()).i32(death.pid);
                let writer = writer.i32(death.code).u64(death.peak_bytes);
                writer.u64(death.limit_bytes).bytes(&death.text)
            }
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
        }
        .0
    }

    const fn number(&self) -> u8 {
        match self {
            Self::Status { .. } => 1,
            Self::Kind { .. } => 2,
            Self::Lent { .. } => 3,
            Self::Start { .. } => 4,
            Self::Met { .. } => 5,
            Self::Died { .. } => 6,
            Self::Output { .. } => 7,
            Self::Services { .. } => 8,
            Self::Drained { .. } => 9,
            Self::Refused { .. } => 10,
            Self::Failed { .. } => 11,
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
                handle: reader.handle()?,
                pid: reader.i32()?,
                owed: reader.u64()?,
                met: reader.flag()?,
            },
            4 => Self::Start {
                ticket,
                handle: reader.handle()?,
            },
            5 => Self::Met {
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
            _ => Self::told(number, ticket, &mut reader)?,
        };
        reader.end(reply)
    }

    /// Those that are not about one lease.
    fn told(number: u8, ticket: Ticket, reader: &mut Reader<'_>) -> Result<Self> {
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
            _ => return Err(UNKNOWN),
        })
    }
}

#[cfg(test)]
mod tests;
