//! Messages of several frames, in both directions, over any byte stream.
//!
//! [`state`] knows no socket but a [`crate::stream::Stream`]; [`connection`] adds the lock, and waiting for threads.
//! An event loop steps a connection from its own thread and never waits here.
//! The design note is `docs/concepts/transport/messages.md`.

pub mod budget;
pub mod connection;
pub mod frames;
pub mod named;
mod queue;
mod stall;
pub mod state;
#[cfg(test)]
mod state_tests;

pub use crate::stream::socket::Wire;
pub use crate::sys::shared::Aside;
pub use budget::Budget;
pub use connection::{Allocator, Handed, Messages, Options};
pub use frames::Frames;
pub use state::Message;
