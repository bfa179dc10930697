//! What the machine has the store write, and what the store tells it at the start.

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
    /// A claimed run never began, and its number is given to the next one: the request is queued again.
    Unclaim {
        id: RequestId,
        attempt: u32,
    },
    /// A run ended without ending the request: it waits for its next one.
    Park {
        id: RequestId,
        attempt: u32,
        wake_at: Millis,
        failure: Failure,
        /// As of [`Restored::deaths`], this run's included.
        deaths: u32,
    },
    /// Back to the queue: set aside or ended, and wanted again by an operator. Its runs so far, and their deaths, count
    /// no more.
    Retry {
        id: RequestId,
        at: Millis,
    },
    End {
        id: RequestId,
        ending: Arc<Ending>,
        /// As of [`Restored::deaths`], this run's included.
        deaths: u32,
    },
    /// What a run needed, for the estimates after a restart.
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
    /// A schedule fires no more.
    Paused {
        name: Arc<str>,
    },
    /// A schedule fires again, for times from this one on.
    Resumed {
        name: Arc<str>,
        at: Millis,
    },
}

/// An unfinished request as the store has it.
#[derive(Clone, Debug)]
pub struct Restored {
    pub request: Request,
    /// `Queued`, or `Running` when the server ended.
    pub status: Status,
    /// Runs that began, those of the journal included.
    pub attempts: u32,
    /// Of them, those before an operator's last retry: they count no more.
    pub forgiven: u32,
    /// How many of those since ended by a death of their worker that the request is blamed for.
    pub deaths: u32,
    pub wake_at: Option<Millis>,
    /// The machine was booted since: nobody knows whether a run that had begun ended, nor by which clock it waits.
    pub rebooted: bool,
}
