//! Connections of calls, with the streams of their results.

pub(crate) mod call;
#[cfg(test)]
mod calling_tests;
pub(crate) mod connection;
mod credit;
mod handoff;
pub(crate) mod inbox;
mod items;
pub(crate) mod state;
#[cfg(test)]
mod state_tests;
mod streaming;
#[cfg(test)]
mod streaming_tests;

pub use call::{Outcome, Taker};
pub use connection::{Connection, Counters, Options, Outgoing};
pub use inbox::Call;
pub use items::Next;
pub use state::Handshake;
pub use streaming::{LastLook, StreamReadiness, Work};
