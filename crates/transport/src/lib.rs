//! Frames and calls between processes of one host.
//!
//! Deciding modules know no socket: [`frame`], [`decoder`], [`call`], [`items`],
//! [`inbox`], [`credit`], [`outbox`].
//! Acting ones are thin: [`connection`] steps without blocking, `blocking` waits, [`unix`] opens.
//! The design note, with invariants and the table of failures, is `docs/concepts/transport.md`.
#![cfg(not(loom))] // `tests/loom.rs` includes what it checks

pub mod admission;
mod blocking;
pub mod call;
#[cfg(test)]
mod calling_tests;
pub mod connection;
#[cfg(test)]
#[path = "../tests/counted/mod.rs"]
mod counted;
pub mod credit;
pub mod decoder;
pub mod error;
mod flow;
pub mod frame;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod gather;
mod hand_on;
pub mod inbox;
pub mod items;
pub mod lending;
pub mod limit;
pub mod listed;
pub mod look;
pub mod messages;
pub mod native;
pub mod outbox;
pub mod owner;
pub mod preface;
pub mod selector;
pub mod shm;
mod state;
#[cfg(test)]
mod state_tests;
pub mod stream;
pub mod streaming;
#[cfg(test)]
mod streaming_tests;
mod sys;
pub mod tls;
pub mod unix;
pub mod wire;

pub use admission::Admission;
pub use connection::{Connection, Counters, Options};
pub use error::{Cause, Delivered, Error, Result, Violation};
pub use frame::{Codec, Incoming, Kind, Reason};
pub use inbox::Call;
pub use outbox::{Head, Payload};
pub use preface::Role;
pub use state::Entry;
pub use sys::buffer::Buffer;
pub use sys::per_process::PerProcess;
pub use wire::Wire;
