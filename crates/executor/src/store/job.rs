//! What the threads of the store ask each other for.

use std::sync::Arc;

use super::fetch::Question;
use super::prune::{PruneRule, RetentionAges};
use crate::id::RequestId;
use crate::op::Op;
use crate::request::{Ending, Millis};

/// A job of the writing thread.
#[derive(Debug)]
pub(super) enum WriteJob {
    Ops(Vec<Op>),
    /// Remove these ended requests, and report to the reading thread which are gone.
    Delete(Vec<RequestId>),
    /// Write what the outbox has waiting.
    Outbox,
    /// Remove calls of hooks that are older than this and that nobody will make.
    ExpireCalls(Millis),
}

/// A job of the reading thread.
#[derive(Debug)]
pub(super) enum ReadJob {
    Fetch {
        id: RequestId,
        question: Question,
        ticket: u64,
    },
    /// Write the result of this end to its file.
    File {
        id: RequestId,
        ending: Arc<Ending>,
    },
    /// Remove what this run may have left.
    Discard {
        id: RequestId,
        attempt: u32,
    },
    Prune {
        rule: PruneRule,
        ticket: u64,
    },
    /// These names have ages of their own, and no others.
    Retain(RetentionAges),
    /// From the writer: what it removed of the last step, or why it removed nothing.
    Deleted(Result<Vec<RequestId>, String>),
}
