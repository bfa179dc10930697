//! Arbitrary bytes as the peer's input: one entry for each decoder that strangers reach.
//!
//! Built for tests and with the feature `fuzzing`. The fuzz targets and `make fuzz` (`fuzz/`) drive the entries, and so
//! does a test of each with mutations of its corpus. An entry says whether it refused the bytes. Whatever they are, it
//! comes back, without a panic and without memory that they did not pay for.

mod calls;
mod frames;
mod messages;
#[cfg(test)]
mod seeds;
mod speaker;
#[cfg(test)]
mod tests;

pub use crate::serve::fuzzing::native;
pub use crate::stream::shm::fuzzing::shared;
pub use calls::{calls, lending};
pub use frames::{frames, named, preface};
pub use messages::messages;

pub(crate) use speaker::Speaker;
