//! What the machine wants done.

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

/// One thing to do. Whoever drives the machine does them in their order.
#[derive(Clone, Debug)]
pub enum Action {
    /// Write it; `Machine::committed` answers for each, in their order.
    Store(Op),
    /// Have the result of an end in its file, beside the commits; `Machine::filed` answers.
    File(RequestId, Arc<Ending>),
    /// Remove what this run may have left in a file: nobody has told of it.
    Discard(RequestId, u32),
    /// A submission is on disk: tell who submitted.
    Accepted(RequestId),
    /// A submission is not on disk and will not be: tell who submitted; nobody else knows of it.
    Refused(RequestId, Arc<Refusal>),
    /// An operator's retry is on disk, or could not be written and is kept until it can be: tell who wanted it, unless
    /// that was told.
    Retried(RequestId, Result<(), Arc<Refusal>>),
    /// A request's end is on disk: tell who waits.
    Ended(RequestId, Arc<Ending>),
    /// A run begins, or is handed to its worker to begin when those before it have ended. A worker hears of its runs
    /// in the order of these. With `journal`, note it in the journal before the worker hears of it.
    Dispatch {
        slot: Slot,
        id: RequestId,
        attempt: u32,
        journal: bool,
    },
    /// Interrupt the run that is named, and no other.
    Interrupt {
        slot: Slot,
        id: RequestId,
        attempt: u32,
        step: Step,
    },
    /// Take back a run that was handed to a worker behind another one, unless it has begun:
    /// `Machine::returned` where its worker gives it back, and nothing otherwise.
    Recall {
        slot: Slot,
        id: RequestId,
        attempt: u32,
    },
    /// Start a worker.
    Start { slot: Slot, lane: Lane },
    /// End an idle worker.
    Stop { slot: Slot },
    /// End a worker that outgrew what there is: its death's cause is `memory`.
    Expel {
        slot: Slot,
        peak_bytes: u64,
        limit_bytes: u64,
    },
    /// Measure a worker now.
    Measure { slot: Slot },
}
