//! What is reported of the calls of hooks.

use crate::request::Millis;

/// One change of the outbox. A row is named by its number and its token, since numbers are used again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutboxReport {
    /// A call that no request is the reason of.
    Added {
        hook: String,
        event: String,
        at: Millis,
        /// JSON.
        detail: String,
    },
    /// It was answered: its row goes.
    Answered { number: i64, token: String },
    /// A try failed: the next one is due then, or never.
    Tried {
        number: i64,
        token: String,
        tries: u32,
        due_at: Option<Millis>,
        error: String,
    },
}
