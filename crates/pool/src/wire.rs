//! The control messages between client, keeper and template.
//!
//! Little-endian fields one after another, texts and bytes behind their u32 length, lists behind their count.
//! Both ends are the same build and the same user; still every length is checked, because a service that
//! scribbles on its template's socket must not take the keeper down with it.

mod event;
mod field;
mod order;
mod report;
mod request;
pub mod shared;

pub use event::Event;
pub use order::Order;
pub use report::Report;
pub use request::KeeperRequest;

use crate::confine::Limits;
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
    /// How it is seen to be ready.
    pub readiness: Readiness,
    /// Whether its caller has to try by itself: no process announces that its socket accepts connections.
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
    /// What it is interchangeable with: of these so many idle ones stay (`KeeperRequest::Keep`).
    pub key: u32,
    /// Private bytes until it is not lent again.
    pub private_bytes_max: u64,
    /// What it may use.
    pub limits: Limits,
}

#[cfg(test)]
pub(crate) mod tests;
