//! What carries batches out.

pub(crate) mod ring;
pub(crate) mod threads;
