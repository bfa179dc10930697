//! Connections of calls, with the streams of their results.

mod answering;
mod asking;
pub(crate) mod call;
#[cfg(test)]
mod calling_tests;
pub(crate) mod connection;
mod credit;
mod exchange;
#[cfg(test)]
mod exchange_tests;
mod gather;
pub(crate) mod inbox;
pub(crate) mod incoming;
mod items;
mod options;
mod sleeping;
pub(crate) mod state;
#[cfg(test)]
mod state_tests;
mod streaming;
#[cfg(test)]
mod streaming_tests;

pub use call::{Outcome, Taker};
pub use connection::Connection;
pub use gather::wait_all;
pub use incoming::Call;
pub use items::Next;
pub use options::{Counters, Options, Outgoing};
pub use streaming::{LastLook, StreamReadiness, Work};
