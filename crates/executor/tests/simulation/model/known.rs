//! What the model knows of one unfinished request.

use forebay_executor::action::Step;
use forebay_executor::id::RequestId;
use forebay_executor::request::{Ending, Lane, Millis, Options, Slot, Submission};

/// Where a request stands, as far as anybody outside can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Its row is on its way to the disk.
    Accepting,
    /// Its row is on disk, its claim on its way; a worker is kept for it.
    Claiming,
    /// It waits: for others, a time, its key, its name, a worker.
    Waiting,
    /// An operator's retry is on its way to the disk.
    Retrying,
    /// Its worker gave it back, and that is on its way to the disk.
    Unclaiming,
    Running,
    /// Its end is on its way to the disk.
    Ending,
}

/// A run that is to end.
#[derive(Clone, Copy, Debug)]
pub struct Stop {
    pub is_cancel: bool,
    pub step: Step,
}

#[derive(Clone, Debug)]
pub struct Run {
    pub began: Millis,
    /// It lies behind another one in its worker.
    pub handed: bool,
    pub recalled: bool,
    pub stop: Option<Stop>,
    /// Its time-out, or the next step to end it.
    pub due: Option<Millis>,
    pub peak: Option<u64>,
}

impl Run {
    pub fn new(now: Millis, handed: bool, timeout_ms: Option<u64>) -> Self {
        let due = timeout_ms.filter(|_| !handed).map(|span| now + span);
        Self {
            began: now,
            handed,
            recalled: false,
            stop: None,
            due,
            peak: None,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Known {
    pub submission: Submission,
    pub place: Place,
    pub attempts: u32,
    /// Runs before an operator's retry.
    pub forgiven: u32,
    pub deaths: u32,
    /// It may not run before the first, and has nothing to wait for after the second: a back-off is drawn by lot.
    pub wake: (Millis, Millis),
    pub cancelled: bool,
    /// One that it comes after has not succeeded: it fails as soon as its row is on disk.
    pub doomed_by: Option<RequestId>,
    /// Who runs it, or is kept for it.
    pub slot: Option<Slot>,
    /// A worker was kept for it before its row was on disk: from then on it has its key, whether that one lives or not.
    pub was_reserved: bool,
    pub run: Option<Run>,
    pub ending: Option<Ending>,
    /// Since when it has waited for its next run, if that is known.
    pub queued_at: Option<Millis>,
    /// How long it waited for its last run, and how long that took, of one that ends.
    pub took_ms: (Option<u64>, Option<u64>),
}

impl Known {
    pub fn new(submission: Submission, place: Place, queued_at: Option<Millis>) -> Self {
        let at = submission.options.not_before.unwrap_or(0);
        Self {
            submission,
            place,
            attempts: 0,
            forgiven: 0,
            deaths: 0,
            wake: (at, at),
            cancelled: false,
            doomed_by: None,
            slot: None,
            was_reserved: false,
            run: None,
            ending: None,
            queued_at,
            took_ms: (None, None),
        }
    }

    pub fn options(&self) -> &Options {
        &self.submission.options
    }

    pub fn lane(&self) -> Lane {
        self.options().lane
    }

    /// It lies behind another one in its worker.
    pub fn is_handed(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.handed)
    }

    pub fn has_retries(&self) -> bool {
        self.attempts - self.forgiven <= self.options().retries
    }

    /// Among its submitter's own the smallest comes first.
    pub fn rank(&self, id: RequestId) -> (i64, RequestId) {
        (-i64::from(self.options().priority), id)
    }
}
