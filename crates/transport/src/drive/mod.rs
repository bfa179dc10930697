//! How threads wait for connections.

pub(crate) mod blocking;
mod gather;
pub(crate) mod look;
pub mod selector;

pub use gather::wait_all;
pub use look::{LongLook, Look};
