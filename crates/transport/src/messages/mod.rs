//! Messages of several frames, in both directions, over any byte stream.
//!
//! [`State`] knows no socket but a [`crate::stream::Stream`]; [`Messages`] adds the lock, and waiting for threads.
//! An event loop steps a connection from its own thread and never waits here.
//! The design note is `docs/concepts/transport/messages.md`.

mod arrivals;
mod budget;
pub(crate) mod connection;
mod frames;
mod inbox;
pub(crate) mod named;
mod queue;
mod stall;
pub(crate) mod state;

pub use crate::sys::shared::Staged;
pub use budget::{Budget, BudgetCounters};
pub use connection::{
    Allocator, Handed, MessageCounters, MessageOptions, Messages, Readiness, Sending,
};
pub use frames::{Frames, Message};
pub use state::State;
