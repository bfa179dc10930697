//! The machine's actions.

use std::sync::Arc;

use crate::error::Refusal;
use crate::id::RequestId;
use crate::op::Op;
use crate::request::{Ending, Lane, Slot};

/// How hard a run is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// An exception in the running code.
    Exception,
    Terminate,
    Kill,
}

/// One thing to do. The driver performs actions in their order.
#[derive(Clone, Debug)]
pub enum Action {
    /// Write it; `Machine::committed` answers for each, in their order.
    Store(Op),
    /// Write the result of an end to its file, beside the commits; `Machine::filed` answers.
    File(RequestId, Arc<Ending>),
    /// Remove the file that this run may have left: its worker died without announcing it.
    Discard(RequestId, u32),
    /// A submission is on disk: notify its submitter.
    Accepted(RequestId),
    /// A submission is not on disk and will not be: notify its submitter, the only party that knows of it.
    Refused(RequestId, Arc<Refusal>),
    /// An operator's retry is on disk, or could not be written and is kept until it can be: notify the operator, once.
    Retried(RequestId, Result<(), Arc<Refusal>>),
    /// A request's end is on disk: notify the clients that wait for it.
    Ended(RequestId, Arc<Ending>),
    /// Send a run to its worker, which begins it at once, or when those before it have ended. A worker receives its
    /// runs in the order of these actions. With `journal`, note it in the journal before.
    Dispatch {
        slot: Slot,
        id: RequestId,
        attempt: u32,
        journal: bool,
    },
    /// Interrupt this run, and no other.
    Interrupt {
        slot: Slot,
        id: RequestId,
        attempt: u32,
        step: Step,
    },
    /// Recall a run that was handed to a worker behind another one, unless it has begun: `Machine::returned` if its
    /// worker returns it, and nothing otherwise.
    Recall {
        slot: Slot,
        id: RequestId,
        attempt: u32,
    },
    /// Start a worker.
    Start { slot: Slot, lane: Lane },
    /// End an idle worker.
    Stop { slot: Slot },
    /// End a worker that uses too much memory: its death's cause is `memory`.
    Expel {
        slot: Slot,
        peak_bytes: u64,
        limit_bytes: u64,
    },
    /// Measure a worker now.
    Measure { slot: Slot },
}
