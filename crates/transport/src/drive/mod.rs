//! How threads wait for connections.

pub(crate) mod blocking;
pub(crate) mod look;
pub mod selector;

pub use look::{LongLook, Look};
