//! What connections of either kind share.

pub(crate) mod admission;
pub(crate) mod flow;
pub(crate) mod outbox;
pub(crate) mod stall;

pub use admission::Admission;
pub use outbox::{Head, Outbox, Payload};
