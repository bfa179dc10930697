//! Where requests wait until they are ready to run.

mod accept;
pub(super) mod keys;
pub(super) mod queue;
pub(super) mod timers;
