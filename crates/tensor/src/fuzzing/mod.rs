//! Any bytes as what an end of a connection says, where `tests/mutation` has no machine to hear it.
//!
//! Built for tests and with the feature `fuzzing`; see the module of this name in `forebay-transport`.

#[cfg(test)]
mod tests;

pub use crate::verbs::wire::fuzzing::verbs;
