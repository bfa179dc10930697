//! The deadlines of a server's thread besides those of accepting: of its peers, and of its end.
use std::time::{Duration, Instant};

/// The server's deadlines.
#[derive(Default)]
pub(super) struct Timers {
    /// When to check for silent peers; `None` while no peer has anything outstanding.
    expires: Option<Instant>,
    /// When the grace of a closing server ends.
    ends: Option<Instant>,
}

impl Timers {
    /// The first of them.
    pub(super) fn deadline(&self) -> Option<Instant> {
        [self.expires, self.ends].into_iter().flatten().min()
    }

    /// A peer may have something outstanding now.
    pub(super) fn expect(&mut self, now: Instant, liveness: Duration) {
        self.expires.get_or_insert(now + liveness / 2);
    }

    /// Whether peers have to be checked for silence; returned once.
    pub(super) fn checks_peers(&mut self, now: Instant) -> bool {
        self.expires.take_if(|due| *due <= now).is_some()
    }

    /// Check for silent peers no later than `due`.
    pub(super) fn check_peers_at(&mut self, due: Instant) {
        let expires = self.expires.get_or_insert(due);
        *expires = due.min(*expires);
    }

    /// The server closes: returns whether its grace begins now.
    pub(super) fn begin_grace(&mut self, now: Instant, grace: Duration) -> bool {
        let begins = self.ends.is_none();
        self.ends.get_or_insert(now + grace);
        begins
    }

    /// Whether the grace of a closing server is over.
    pub(super) fn is_grace_over(&self, now: Instant) -> bool {
        self.ends.is_some_and(|ends| ends <= now)
    }
}
