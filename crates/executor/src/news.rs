//! What became of requests, as only the machine knows it, for the event feed.

use std::sync::Arc;

use crate::request::{Cause, Ending, Request};

/// One thing that has become true of a request.
#[derive(Clone, Debug)]
pub enum News {
    /// Its row is on disk.
    Accepted(Arc<Request>),
    /// It has been with a worker, and waits again.
    Queued {
        request: Arc<Request>,
        /// The run that ended, or that did not begin.
        attempt: u32,
        reason: Cause,
    },
    /// Its end is on disk. The times are those of its last run, and of the wait before that, as far as they are known.
    Ended {
        request: Arc<Request>,
        ending: Arc<Ending>,
        queued_ms: Option<u64>,
        run_ms: Option<u64>,
    },
    /// An operator's retry is on disk.
    Retried(Arc<Request>),
}
