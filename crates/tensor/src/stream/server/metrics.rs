//! What a server's thread counts.
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Counted by the thread, read by anybody.
#[derive(Default)]
pub(super) struct Metrics {
    pub(super) accepted: AtomicU64,
    pub(super) peers: AtomicUsize,
    pub(super) refused: AtomicU64,
    pub(super) late: AtomicU64,
    pub(super) turned_away: AtomicU64,
    pub(super) broken: AtomicU64,
    pub(super) received_bytes: AtomicU64,
    pub(super) sent_bytes: AtomicU64,
    pub(super) fabric_peers: AtomicUsize,
    pub(super) fabric_pulls: AtomicU64,
    failure: Mutex<Option<String>>,
}

/// What a server has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerCounters {
    /// Connections that were accepted.
    pub accepted: u64,
    /// Peers that are connected and were let in.
    pub peers: usize,
    /// Connections that were refused with a reason, or that said nothing sensible.
    pub refused: u64,
    /// Those that did not say in time what they want.
    pub late: u64,
    /// Those for which no descriptor was left.
    pub turned_away: u64,
    /// Peers whose connection ended otherwise than by its orderly end.
    pub broken: u64,
    /// From peers, after the greeting.
    pub received_bytes: u64,
    /// To peers, after the greeting.
    pub sent_bytes: u64,
    /// Connections over the fabric.
    pub fabric_peers: usize,
    /// Pulls that came over them, refused ones too.
    pub fabric_pulls: u64,
    /// Why the last one was refused or broke, or why nothing can be read from shared memory.
    pub failure: Option<String>,
}

impl Metrics {
    /// Count one, and keep why.
    pub(super) fn fail(&self, which: &AtomicU64, why: String) {
        which.fetch_add(1, Ordering::Relaxed);
        self.note(why);
    }

    /// Keep why something is not to be had.
    pub(super) fn note(&self, why: String) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    }

    pub(super) fn counters(&self) -> ServerCounters {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        ServerCounters {
            accepted: self.accepted.load(Ordering::Relaxed),
            peers: self.peers.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            late: self.late.load(Ordering::Relaxed),
            turned_away: self.turned_away.load(Ordering::Relaxed),
            broken: self.broken.load(Ordering::Relaxed),
            received_bytes: self.received_bytes.load(Ordering::Relaxed),
            sent_bytes: self.sent_bytes.load(Ordering::Relaxed),
            fabric_peers: self.fabric_peers.load(Ordering::Relaxed),
            fabric_pulls: self.fabric_pulls.load(Ordering::Relaxed),
            failure: failure.clone(),
        }
    }
}
