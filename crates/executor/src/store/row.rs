//! A request as the database has it.

use super::ending::StoredEnding;
use crate::op::Restored;
use crate::request::{Millis, Request, Status};

/// All that is stored of a request.
#[derive(Clone, Debug)]
pub struct Row {
    pub request: Request,
    pub status: Status,
    /// Runs that began.
    pub attempts: u32,
    /// As of [`Restored::forgiven`].
    pub forgiven: u32,
    /// As of [`Restored::retried`].
    pub retried: bool,
    /// As of [`Restored::deaths`].
    pub deaths: u32,
    pub wake_at: Option<Millis>,
    /// How it ended, if it has.
    pub ending: Option<StoredEnding>,
}

impl Row {
    /// The same as after a restart, for `Machine::retry`.
    pub fn restored(self) -> Restored {
        Restored {
            request: self.request,
            status: self.status,
            attempts: self.attempts,
            forgiven: self.forgiven,
            retried: self.retried,
            deaths: self.deaths,
            wake_at: self.wake_at,
            rebooted: false,
        }
    }
}
