//! The changes that the machine gives to the store, with what the store returns at the start.

use std::sync::Arc;

use crate::id::RequestId;
use crate::request::{Ending, Failure, Millis, Request, Status};

/// One change. The store commits them in their order, many at once, all of a batch or none.
#[derive(Clone, Debug)]
pub enum Op {
    Accept(Arc<Request>),
    /// A run begins.
    Claim {
        id: RequestId,
        attempt: u32,
        at: Millis,
    },
    /// A claimed run never began, and the next one gets its number: the request is queued again.
    Unclaim {
        id: RequestId,
        attempt: u32,
    },
    /// A run ended without ending the request, which waits for its next run.
    Park {
        id: RequestId,
        attempt: u32,
        wake_at: Millis,
        failure: Failure,
        /// As of [`Restored::deaths`], this run's included.
        deaths: u32,
    },
    /// An operator retries a request that ended or was set aside. Its runs and their deaths so far count no more.
    Retry {
        id: RequestId,
        at: Millis,
    },
    /// Changes nothing if the request has ended, or if the store has a claim of a later run than `claimed`: then this
    /// end is late, and the request is another run's.
    End {
        id: RequestId,
        ending: Arc<Ending>,
        /// As of [`Restored::deaths`], this run's included.
        deaths: u32,
        /// The number of the last run that was claimed. It may be above the runs that the ending counts: a claimed run
        /// that no worker received does not count.
        claimed: u32,
    },
    /// A request with children has ended: nobody asks for them by their numbers any more.
    Forget {
        parent: RequestId,
    },
    /// Somebody has cancelled or retried a request: it is kept with its options, whatever became of it.
    Acted {
        id: RequestId,
        act: Act,
        by: Arc<str>,
    },
    /// The peak of a run, for the estimates after a restart.
    Peak {
        name: Arc<str>,
        code: Arc<str>,
        bytes: u64,
    },
    /// A schedule's request was submitted for this time.
    Fired {
        name: Arc<str>,
        at: Millis,
    },
    /// A schedule was paused.
    Paused {
        name: Arc<str>,
    },
    /// A schedule was resumed: times from this one on count.
    Resumed {
        name: Arc<str>,
        at: Millis,
    },
}

/// What somebody does with a request of which its options keep who it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Cancel,
    Retry,
}

impl Act {
    /// The name of who did it, among the options.
    pub fn option(self) -> &'static str {
        match self {
            Self::Cancel => "cancelled_by",
            Self::Retry => "retried_by",
        }
    }
}

/// A child of an unfinished request as the store has it; it may have ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownChild {
    pub parent: RequestId,
    /// As of [`Child::call`](crate::request::Child).
    pub call: u32,
    pub id: RequestId,
    pub name: Arc<str>,
    pub digest: u64,
}

/// An unfinished request as the store has it.
#[derive(Clone, Debug)]
pub struct Restored {
    pub request: Request,
    /// `Queued`, or `Running` when the server ended.
    pub status: Status,
    /// Runs that began, those of the journal included.
    pub attempts: u32,
    /// Of them, those before an operator's last retry, which count no more.
    pub forgiven: u32,
    /// An operator has queued it again.
    pub retried: bool,
    /// Of the later ones, those that ended by a death of their worker for which the request is blamed.
    pub deaths: u32,
    pub wake_at: Option<Millis>,
    /// The machine was booted since: it is unknown whether a run that had begun ended, and by which clock the request
    /// waits.
    pub rebooted: bool,
}

#[cfg(test)]
pub mod fixture {
    use super::{Arc, Op, Request, RequestId};
    use crate::request::{Options, Submission};

    /// The acceptance of a small request.
    pub fn accept(id: u64) -> Op {
        Op::Accept(Arc::new(Request {
            id: RequestId(id),
            accepted_at: 1,
            submission: Submission {
                name: "a".into(),
                code: "c".into(),
                submitter: "s".into(),
                arguments: Vec::new().into(),
                options: Arc::new(Options::default()),
            },
        }))
    }
}
