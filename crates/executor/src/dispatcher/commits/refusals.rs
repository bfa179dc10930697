//! The refusals for requests that the store does not have or cannot read.

use crate::error::Refusal;
use crate::id::RequestId;
use crate::limit::UNREAD_RETENTION_TIMES;

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
