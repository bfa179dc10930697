//! What the bytes of a connection mean.

pub mod decoder;
pub mod frame;
pub mod preface;

/// The sockets themselves, by the path that they had.
pub use crate::stream::socket::{Socket, Watch, Wire};
