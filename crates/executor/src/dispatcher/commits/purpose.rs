//! Why the store was asked: what its answer is for.

use std::sync::Arc;

use crate::dispatcher::clients::streams::{StreamKey, Topic};
use crate::dispatcher::clients::waiters::Waiter;
use crate::dispatcher::supervisor::protocol::{ReplyTo, RetryReplyTo};
use crate::id::RequestId;
use crate::request::{Slot, Submission};
use crate::store::Pruned;

/// A run that its worker has not received yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingRun {
    pub slot: Slot,
    pub id: RequestId,
    pub attempt: u32,
    /// The number of this dispatch: a run that never began gives its attempt number to the next one, so the attempt
    /// does not identify it.
    pub dispatch: u64,
}

/// A submission that comes after requests which ended long ago: how they ended is read one by one.
pub struct LateSubmission {
    pub submission: Submission,
    pub waiter: Waiter,
    pub token: Option<u64>,
    pub left: Vec<RequestId>,
}

/// Why the store was asked.
pub enum Purpose {
    /// A client waits for the end.
    End(Waiter),
    /// A client cancels a request that has ended.
    Cancel(Waiter),
    /// A client follows it.
    Follow(StreamKey, Topic),
    /// A run is to begin.
    Run(PendingRun),
    After(Box<LateSubmission>),
    /// Somebody retries it.
    Retry(Arc<str>, RetryReplyTo),
    Prune(ReplyTo<Pruned>),
}
