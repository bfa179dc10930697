//! Any bytes as what an end of a connection over verbs says.
//!
//! Built for tests and with the feature `fuzzing`; see the module of this name in `forebay-transport`.

#[cfg(test)]
mod tests;

pub use crate::wire::fuzzing::verbs;
