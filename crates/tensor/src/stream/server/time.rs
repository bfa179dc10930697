//! The deadlines of a server's thread: of handshakes and of peers, a pause of accepting, its end.
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use forebay_base::slots::Key;

/// How long accepting pauses once no descriptor is left.
const PAUSE: Duration = Duration::from_millis(100);

/// The server's deadlines.
pub(super) struct Timers {
    handshake: Duration,
    /// Deadlines of handshakes, in order: all have the same timeout, so new ones go to the end.
    handshakes: VecDeque<(Instant, Key)>,
    /// When to accept again.
    resumes: Option<Instant>,
    /// When to check for silent peers; `None` while no peer has anything outstanding.
    expires: Option<Instant>,
    /// When the grace of a closing server ends.
    ends: Option<Instant>,
}

impl Timers {
    pub(super) fn new(handshake: Duration) -> Self {
        Self {
            handshake,
            handshakes: VecDeque::new(),
            resumes: None,
            expires: None,
            ends: None,
        }
    }

    /// How long to sleep; `None` for until an event.
    pub(super) fn timeout(&self, now: Instant) -> Option<Duration> {
        let handshake = self.handshakes.front().map(|(due, _)| *due);
        let dues = [handshake, self.resumes, self.expires, self.ends];
        let due = dues.into_iter().flatten().min()?;
        Some(due.saturating_duration_since(now))
    }

    /// A handshake has begun.
    pub(super) fn expect_hello(&mut self, now: Instant, key: Key) {
        self.handshakes.push_back((now + self.handshake, key));
    }

    /// Stop accepting for a while.
    pub(super) fn pause(&mut self, now: Instant) {
        self.resumes = Some(now + PAUSE);
    }

    pub(super) fn is_paused(&self) -> bool {
        self.resumes.is_some()
    }

    /// A peer may have something outstanding now.
    pub(super) fn expect(&mut self, now: Instant, liveness: Duration) {
        self.expires.get_or_insert(now + liveness / 2);
    }

    /// Take a handshake whose time has passed; those that `waits` denies have ended.
    pub(super) fn late_handshake(
        &mut self,
        now: Instant,
        waits: impl Fn(Key) -> bool,
    ) -> Option<Key> {
        while let Some((due, key)) = self.handshakes.front().copied() {
            let waits = waits(key);
            if waits && due > now {
                break;
            }
            self.handshakes.pop_front();
            if waits {
                return Some(key);
            }
        }
        None
    }

    /// Whether a pause has passed; returned once.
    pub(super) fn resumes(&mut self, now: Instant) -> bool {
        self.resumes.take_if(|due| *due <= now).is_some()
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
