//! Frames and calls between processes of one host.
//!
//! | room | what |
//! |---|---|
//! | [`wire`] | prefaces and frames, as bytes |
//! | [`link`] | what every connection has: admission, the outbox |
//! | [`calls`], [`messages`] | the two kinds of connections: state machines without a socket, and a lock around each |
//! | [`stream`] | what carries the bytes: sockets, TLS, shared memory |
//! | [`share`] | segments of calls by reference |
//! | [`drive`] | how threads and loops wait for connections |
//! | [`serve`] | a serving thread that knows no interpreter |
//!
//! Each public item has one path: by its room, or here for what every room uses.
//! The design note, with invariants and the table of failures, is `docs/concepts/transport.md`.
#![cfg(not(loom))] // `tests/loom.rs` includes what it checks

#[cfg(test)]
mod alone;
pub mod calls;
#[cfg(test)]
#[path = "../tests/counted/mod.rs"]
mod counted;
pub mod drive;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod limit;
pub mod link;
pub mod messages;
pub mod serve;
pub mod share;
pub mod stream;
mod sys;
mod totals;
pub mod wire;

pub use error::{Cause, Delivered, Error, Fault, Result, Violation};
pub use sys::buffer::Buffer;
pub use totals::{Scheme, Totals, totals};
