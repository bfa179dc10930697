//! What all connections of this process have moved, and how many there are.
//!
//! Relaxed atomics, a few nanoseconds beside each system call. Counted where every link passes: bytes when the stream
//! has taken or given them, so before TLS on the way out, and connections from the moment at which a link has a stream.
//! What a frame holds in shared memory by reference is not moved.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use forebay_base::process;

/// What a connection runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    Unix,
    Tcp,
    Tls,
    Shm,
}

impl Scheme {
    pub const ALL: [Self; 4] = [Self::Unix, Self::Tcp, Self::Tls, Self::Shm];

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        ["unix", "tcp", "tls", "shm"][self as usize]
    }
}

/// The totals of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Since the process, or the one that it was forked from, has started.
    pub sent_bytes: u64,
    /// See `sent_bytes`.
    pub received_bytes: u64,
    /// Now, in the order of [`Scheme::ALL`]; of a forked child, those that it made.
    pub connections: [usize; 4],
}

static SENT: AtomicU64 = AtomicU64::new(0);
static RECEIVED: AtomicU64 = AtomicU64::new(0);
static CONNECTIONS: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];
/// Whose connections are counted.
static EPOCH: AtomicU64 = AtomicU64::new(0);

/// The totals now.
pub fn totals() -> Totals {
    own_epoch();
    Totals {
        sent_bytes: SENT.load(Ordering::Relaxed),
        received_bytes: RECEIVED.load(Ordering::Relaxed),
        connections: CONNECTIONS
            .each_ref()
            .map(|open| open.load(Ordering::Relaxed)),
    }
}

#[inline]
pub(crate) fn note_sent(bytes: usize) {
    SENT.fetch_add(bytes as u64, Ordering::Relaxed);
}

#[inline]
pub(crate) fn note_received(bytes: usize) {
    RECEIVED.fetch_add(bytes as u64, Ordering::Relaxed);
}

/// A connection that counts for as long as this is kept.
#[derive(Debug)]
pub(crate) struct Counted {
    scheme: Scheme,
    epoch: u64,
}

impl Counted {
    pub fn new(scheme: Scheme) -> Self {
        let epoch = own_epoch();
        CONNECTIONS[scheme as usize].fetch_add(1, Ordering::Relaxed);
        Self { scheme, epoch }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.epoch == own_epoch() {
            CONNECTIONS[self.scheme as usize].fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The epoch of this process. In a forked child the connections of its parent are forgotten first.
fn own_epoch() -> u64 {
    let epoch = process::epoch();
    let counted = EPOCH.load(Ordering::Relaxed);
    let swapped = EPOCH.compare_exchange(counted, epoch, Ordering::Relaxed, Ordering::Relaxed);
    if counted != epoch && swapped.is_ok() {
        for open in &CONNECTIONS {
            open.store(0, Ordering::Relaxed);
        }
    }
    epoch
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_counts_while_it_is_kept() {
        // Other tests of this process open none over shared memory at the same time as this one for long.
        let before = totals().connections[Scheme::Shm as usize];
        let one = Counted::new(Scheme::Shm);
        assert!(totals().connections[Scheme::Shm as usize] > 0);
        drop(one);
        assert!(totals().connections[Scheme::Shm as usize] <= before.max(8));
    }

    #[test]
    fn a_forked_child_counts_its_own_alone() {
        let kept = Counted::new(Scheme::Tls);
        assert!(forebay_base::process::in_child(|| {
            let inherited = totals().connections[Scheme::Tls as usize];
            let own = Counted::new(Scheme::Tls);
            let with_own = totals().connections[Scheme::Tls as usize];
            drop(own);
            inherited == 0 && with_own == 1
        }));
        drop(kept);
    }
}
