//! What a native listener counts.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::Error;

/// Counts of a running listener.
#[derive(Default)]
pub struct Metrics {
    pub(crate) accepted: AtomicU64,
    pub(crate) open: AtomicUsize,
    pub(crate) messages: AtomicU64,
    pub(crate) handed_over: AtomicU64,
    pub(crate) late: AtomicU64,
    pub(crate) stalled: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) turned_away: AtomicU64,
    failure: Mutex<Option<Error>>,
}

/// Counts of a listener, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerCounters {
    pub accepted: u64,
    pub open: usize,
    pub messages: u64,
    /// Connections that were handed over.
    pub handed_over: u64,
    /// Clients that did not finish their handshake in time.
    pub late: u64,
    /// Connections that made no progress with a message.
    pub stalled: u64,
    /// Connections that ended with another error.
    pub failed: u64,
    /// Clients that were turned away because no descriptor was left.
    pub turned_away: u64,
    /// The error of the last one that failed.
    pub failure: Option<Error>,
}

impl Metrics {
    /// A connection ended with an error.
    pub(crate) fn fail(&self, error: Error) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    /// What was counted until now.
    pub(crate) fn counters(&self) -> ServerCounters {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        ServerCounters {
            accepted: self.accepted.load(Ordering::Relaxed),
            open: self.open.load(Ordering::Relaxed),
            messages: self.messages.load(Ordering::Relaxed),
            handed_over: self.handed_over.load(Ordering::Relaxed),
            late: self.late.load(Ordering::Relaxed),
            stalled: self.stalled.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            turned_away: self.turned_away.load(Ordering::Relaxed),
            failure: failure.clone(),
        }
    }
}
