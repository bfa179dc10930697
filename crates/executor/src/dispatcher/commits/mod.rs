//! Changes on their way to the store, with the store's answers.

pub(super) mod pending_writes;
pub(super) mod recovery;
pub(super) mod store_answers;
