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
use crate::error::Result;

/// Grows when a message changes; both ends must speak the same.
pub const VERSION: u32 = 3;

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
    /// What each process may use.
    pub limits: Limits,
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
            limits: self.limits()?,
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
