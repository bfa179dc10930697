//! Rows of named tensors between processes, as state machines without a socket, thread or clock.
//!
//! A [`Requester`] turns pulls and pushes into request frames and reports how each ended; a [`Shard`] holds tensors and
//! answers its peers. Both name the memory that the next bytes go to or come from; a *fabric* moves them.
//!
//! # Map
//!
//! | module | what |
//! |---|---|
//! | `wire` | the frames of a stream, encoded and decoded |
//! | `names` | what a name means: id, generation, dtype, shape |
//! | `handshake` | the one message each way that sets a connection up |
//! | `requester` | pulls and pushes: queue, slots, grant, pieces, ends |
//! | `responder` | peers of one shard: what they ask for, in which order it is answered |
//! | `table` | the tensors of a shard, with their generations and versions |
//! | `stream` | TCP and Unix sockets, with or without TLS: the thread of a server, the links of clients |
//! | `shm` | pulls without the server, on the same host |
//! | `fabric` | what a fabric beside the stream does, for the crate that implements one |
//! | `version_table` | the version of each tensor in shared memory: a seqlock |
//! | `inbox`, `outbox` | bytes that came, bytes that are to go |
//! | `sync` | the fence that the model check replaces |
//! | `sys` | memory that others lend: all the `unsafe` there is |
#![cfg(not(loom))] // `tests/loom.rs` includes what it checks

mod dtype;
mod error;
pub mod fabric;
mod handshake;
mod inbox;
mod limit;
mod names;
mod outbox;
mod requester;
mod responder;
pub mod shm;
pub mod stream;
mod sync;
mod sys;
mod table;
#[cfg(test)]
mod tests;
mod version_table;
mod wire;

pub use dtype::{Dtype, Number};
pub use error::{Class, Error};
pub use handshake::{Hello, Welcome};
pub use names::{Meaning, Unknown};
pub use requester::{Canceled, End, Limits, Outcome, Pull, Push, Refused, Requester, Rows, Ticket};
pub use responder::{PeerId, ReadId, Room, Shard, ShardLimits};
pub use sys::span::{Span, Words};
pub use table::{Description, FileRows, Key, Released};
pub use version_table::{Missed, VERSION_BYTES, VersionTable};
pub use wire::Operation;
