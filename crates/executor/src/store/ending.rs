//! How a request ended, as the database has it.

use crate::request::{Blob, Millis, Status};

/// The end of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredEnding {
    pub status: Status,
    /// Runs that it took.
    pub attempts: u32,
    /// When its last run began, if it had one.
    pub claimed_at: Option<Millis>,
    pub at: Millis,
    pub peak_bytes: Option<u64>,
    pub payload: Payload,
}

/// The payload of an end.
#[derive(Clone, Debug, PartialEq)]
pub enum Payload {
    Result(Blob),
    /// The result is in a file of this many bytes.
    File(u64),
    /// The failure or cancellation as JSON.
    Failure(String),
}
