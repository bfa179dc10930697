//! What waits for the store, with what the store answers.

pub(super) mod pending_writes;
pub(super) mod recovery;
pub(super) mod store_answers;
