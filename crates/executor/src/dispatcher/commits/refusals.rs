//! The refusals for requests that the store does not have or cannot read.

use crate::error::Refusal;
use crate::id::RequestId;
use crate::limit::UNREAD_RETENTION_TIMES;

pub const NO_STORE: &str = "the server stores no requests: it has no state directory";

/// The refusal for an id that no request has.
pub fn unknown(id: RequestId) -> Refusal {
    let next = "see `forebay ps --all`; ended requests are pruned after a while";
    Refusal::unknown("request", &id.to_string(), next)
}

/// The refusal for a result that the retention removed before it was read.
pub fn pruned_unread(id: RequestId, retention_bytes: u64) -> Refusal {
    Refusal {
        code: "limit",
        message: format!(
            "the result of request {id} was removed before it was read: retention_bytes is {retention_bytes}, and with \
             unread results the server's directory may take {UNREAD_RETENTION_TIMES} times as much"
        ),
        object: id.to_string(),
        limit: "retention_bytes".into(),
        value: String::new(),
        next: "raise executor.retention_bytes, or read results earlier, and submit it again".into(),
    }
}

pub fn unreadable(id: RequestId, why: &str) -> Refusal {
    Refusal {
        code: "store",
        message: format!("request {id} cannot be read: {why}"),
        object: id.to_string(),
        limit: String::new(),
        value: String::new(),
        next: "see the disk of the state directory".into(),
    }
}

/// The refusal of a retry where nothing is stored.
pub fn has_no_store(id: RequestId) -> Refusal {
    let message = format!("request {id} cannot be queued again: {NO_STORE}");
    no_retry(id, message, "submit it again")
}

/// The refusal of a retry of what has succeeded.
pub fn has_succeeded(id: RequestId) -> Refusal {
    let next = "to run it once more, submit it again";
    no_retry(id, format!("request {id} succeeded"), next)
}

/// The refusal of a retry of what waits or runs.
pub fn has_not_ended(id: RequestId) -> Refusal {
    let next = "wait for it, or cancel it";
    no_retry(id, format!("request {id} has not ended"), next)
}

fn no_retry(id: RequestId, message: String, next: &str) -> Refusal {
    Refusal {
        code: "invalid",
        message,
        object: id.to_string(),
        limit: String::new(),
        value: String::new(),
        next: next.into(),
    }
}
