//! Counters of a server.
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The live counters: written by the server's thread, read by any thread.
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

/// A copy of the counters of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerCounters {
    /// Accepted connections.
    pub accepted: u64,
    /// Admitted peers that are connected now.
    pub peers: usize,
    /// Connections refused with a reason, or for an invalid handshake.
    pub refused: u64,
    /// Connections whose handshake took too long.
    pub late: u64,
    /// Connections that could not be accepted because no descriptor was left.
    pub turned_away: u64,
    /// Peers whose connection did not end in an orderly way.
    pub broken: u64,
    /// Bytes received from peers, after the handshake.
    pub received_bytes: u64,
    /// Bytes sent to peers, after the handshake.
    pub sent_bytes: u64,
    /// Connections over the fabric.
    pub fabric_peers: usize,
    /// Pulls over the fabric, refused ones included.
    pub fabric_pulls: u64,
    /// Why the last connection was refused or broke, or why shared memory is not available.
    pub failure: Option<String>,
}

impl Metrics {
    /// Count a failure, and keep its reason.
    pub(super) fn fail(&self, which: &AtomicU64, why: String) {
        which.fetch_add(1, Ordering::Relaxed);
        self.note(why);
    }

    /// Keep the reason of a failure.
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
