//! Frames and calls between processes of one host.
//!
//! Rooms that decide know no socket: [`wire`], `link`, `calls`, [`messages`].
//! Those that act are thin: [`stream`] carries bytes, [`share`] references to them, `drive` waits or is stepped,
//! [`serve`] has the serving thread.
//! The design note, with invariants and the table of failures, is `docs/concepts/transport.md`.
#![cfg(not(loom))] // `tests/loom.rs` includes what it checks

mod calls;
#[cfg(test)]
#[path = "../tests/counted/mod.rs"]
mod counted;
mod drive;
pub mod error;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod limit;
mod link;
pub mod messages;
pub mod serve;
pub mod share;
pub mod stream;
mod sys;
pub mod wire;

pub use calls::connection::{Connection, Counters, Options};
pub use calls::inbox::Call;
pub use calls::state::Entry;
pub use calls::{call, connection, credit, inbox, items, streaming};
pub use drive::{gather, look, selector};
pub use error::{Cause, Delivered, Error, Result, Violation};
pub use link::admission::Admission;
pub use link::outbox::{Head, Payload};
pub use link::{admission, outbox};
pub use stream::socket::Wire;
pub use stream::{listed, owner, shm, tls, unix};
pub use sys::buffer::Buffer;
pub use sys::per_process::PerProcess;
pub use wire::frame::{Codec, Incoming, Kind, Reason};
pub use wire::preface::Role;
pub use wire::{decoder, frame, preface};
