//! What the programs of one user and the process that lends them services say to each other.
//!
//! A *ticket* is the program's number for one question; every question gets one answer with its
//! ticket. Descriptors come along where it is said. Both ends are the same user, and the first message says which
//! version of this they speak.

mod reply;
mod request;

pub use reply::{Reply, STATUS_FIELDS};
pub use request::Request;

use super::field::{Reader, Writer};
use super::{Handle, Launch};
use crate::confine::Limits;
use crate::error::{Error, Result};
use crate::limit::REPORT_BYTES_MAX;
use crate::transition::Transition;

/// Grows when a message changes; both ends must speak the same.
pub const VERSION: u32 = 5;

/// The program's number for one question.
pub type QuestionId = u64;

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
    /// How the template is started; a program is launched by whoever is granted its start.
    pub launch: Launch,
    /// What the template imports.
    pub setup: Vec<u8>,
    /// No other program can use its services: they end with the program that named the kind.
    pub private: bool,
    /// Leases that one of its services may have at once, of one program.
    pub leases: u32,
    /// What each process may use.
    pub limits: Limits,
}

/// What a lender wants of the programs that borrow from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// How often a service is given back between two looks for what its leases left in it; 0: none.
    pub canary_every: u32,
    /// Idle services of a kind that a program which has used it keeps ready.
    pub min_idle: u32,
    /// After how long a program reports its lease as one that does not end, in milliseconds; 0: never.
    pub leak_after_ms: u64,
    /// How long a reset may take.
    pub reset_ms: u64,
}

/// A service that is lent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // each is a fact of its own
pub struct Lent {
    /// The lease.
    pub handle: Handle,
    /// Its process; 0: not known yet, which `Lend` mends.
    pub pid: i32,
    /// The call whose answer the program reads first; 0: none.
    pub unanswered: u64,
    /// Its preface was read.
    pub preface_read: bool,
    /// Another program held it last.
    pub changes_hands: bool,
    /// It was idle for so long that it is asked whether it answers.
    pub quiet: bool,
    /// What this lease leaves in it is looked for at its end.
    pub check: bool,
    /// The holder's end of its own socket comes along.
    pub has_own: bool,
    /// The port that a program was given; 0: none.
    pub port: u16,
    /// What the program that started it has reported.
    pub report: Vec<u8>,
}

/// One thing that happened to a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceEvent {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// What happened.
    pub transition: Transition,
    /// Its kind.
    pub name: Vec<u8>,
    /// Its process; 0 where it is not known yet.
    pub pid: i32,
    /// To which service, under which lease.
    pub handle: Handle,
}

/// One service, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Its slot in the pool.
    pub slot: u32,
    /// Its process; 0 until it is known.
    pub pid: i32,
    /// Its kind.
    pub name: Vec<u8>,
    /// Starting, idle, leased or settling.
    pub state: ServiceState,
    /// The program that holds it; 0 for none.
    pub holder: i32,
    /// Since when it is in this state, in milliseconds.
    pub age_ms: u64,
}

/// What a service is doing, for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum ServiceState {
    /// Ready and not lent.
    #[default]
    Idle = 0,
    /// Not yet ready.
    Starting = 1,
    /// Lent.
    Leased = 2,
    /// Its answer to a start or a reset is still to come.
    Settling = 3,
}

impl ServiceState {
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

impl Writer {
    fn kind(self, kind: &Kind) -> Self {
        self.bytes(&kind.digest)
            .bytes(&kind.name)
            .bytes(&kind.template)
            .launch(&kind.launch)
            .bytes(&kind.setup)
            .u8(u8::from(kind.private))
            .u32(kind.leases)
            .limits(&kind.limits)
    }
    fn terms(self, terms: &Terms) -> Self {
        self.u32(terms.canary_every)
            .u32(terms.min_idle)
            .u64(terms.leak_after_ms)
            .u64(terms.reset_ms)
    }
    fn lent(self, lent: &Lent) -> Self {
        let flags = [
            lent.preface_read,
            lent.changes_hands,
            lent.quiet,
            lent.check,
            lent.has_own,
        ];
        let writer = self.handle(lent.handle).i32(lent.pid).u64(lent.unanswered);
        let writer = flags
            .into_iter()
            .fold(writer, |writer, flag| writer.u8(u8::from(flag)));
        writer.u32(lent.port.into()).bytes(&lent.report)
    }
    fn event(self, event: &ServiceEvent) -> Self {
        let (code, cause) = event.transition.codes();
        let writer = self.u64(event.at_ms).u8(code).u8(cause);
        writer
            .bytes(&event.name)
            .i32(event.pid)
            .handle(event.handle)
    }
    fn row(self, row: &Row) -> Self {
        self.u32(row.slot)
            .i32(row.pid)
            .bytes(&row.name)
            .u8(row.state as u8)
            .i32(row.holder)
            .u64(row.age_ms)
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
            private: self.flag()?,
            leases: self.u32()?,
            limits: self.limits()?,
        })
    }
    /// What a program reports of a service; above the limit it could not be told on with a lease.
    fn report(&mut self) -> Result<Vec<u8>> {
        let report = self.bytes()?;
        if report.len() > REPORT_BYTES_MAX {
            return Err(Error::Malformed {
                what: "a report above the limit",
            });
        }
        Ok(report)
    }
    fn terms(&mut self) -> Result<Terms> {
        Ok(Terms {
            canary_every: self.u32()?,
            min_idle: self.u32()?,
            leak_after_ms: self.u64()?,
            reset_ms: self.u64()?,
        })
    }
    fn lent(&mut self) -> Result<Lent> {
        Ok(Lent {
            handle: self.handle()?,
            pid: self.i32()?,
            unanswered: self.u64()?,
            preface_read: self.flag()?,
            changes_hands: self.flag()?,
            quiet: self.flag()?,
            check: self.flag()?,
            has_own: self.flag()?,
            port: self.port()?,
            report: self.bytes()?,
        })
    }
    fn event(&mut self) -> Result<ServiceEvent> {
        Ok(ServiceEvent {
            at_ms: self.u64()?,
            transition: Transition::from_codes(self.u8()?, self.u8()?)?,
            name: self.bytes()?,
            pid: self.i32()?,
            handle: self.handle()?,
        })
    }
    fn row(&mut self) -> Result<Row> {
        Ok(Row {
            slot: self.u32()?,
            pid: self.i32()?,
            name: self.bytes()?,
            state: match self.u8()? {
                1 => ServiceState::Starting,
                2 => ServiceState::Leased,
                3 => ServiceState::Settling,
                _ => ServiceState::Idle,
            },
            holder: self.i32()?,
            age_ms: self.u64()?,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
