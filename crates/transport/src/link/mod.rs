//! What connections of either kind share.

pub mod admission;
pub(crate) mod flow;
pub mod outbox;
