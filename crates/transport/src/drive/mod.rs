//! How threads wait for connections.

pub(crate) mod blocking;
pub mod gather;
pub mod look;
pub mod selector;
