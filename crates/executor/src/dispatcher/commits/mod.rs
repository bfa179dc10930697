//! What waits for the store, with what the store answers.

pub(super) mod keeping;
pub(super) mod recovery;
pub(super) mod stored;
