//! Connections of calls, with the streams of their results.

pub mod call;
#[cfg(test)]
mod calling_tests;
pub mod connection;
pub mod credit;
mod hand_on;
pub mod inbox;
pub mod items;
pub(crate) mod state;
#[cfg(test)]
mod state_tests;
pub mod streaming;
#[cfg(test)]
mod streaming_tests;
