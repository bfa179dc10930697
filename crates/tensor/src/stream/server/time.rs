//! How long a server's thread sleeps, and what it does when time has passed: deadlines, pauses, its end.
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use forebay_base::slots::Key;
use forebay_base::time::timespec;
use rustix::io::Errno;

use super::connection::Connection;
use super::reactor::Reactor;
use crate::responder::PeerId;
use crate::stream::channel::Fault;

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
}

impl<K: Send> Reactor<K> {
    /// Wait for events, unless there is work already.
    pub(super) fn wait(&mut self, at_once: bool) -> Result<(), Errno> {
        if !at_once {
            let timeout = self.timers.timeout(Instant::now()).map(timespec);
            let slept = self.look.await_input(self.poll.as_fd(), timeout.as_ref());
            if let Err(errno) = slept
                && errno != Errno::INTR
            {
                return Err(errno);
            }
        }
        self.poll.wait(Some(Duration::ZERO))
    }

    pub(super) fn keep_time(&mut self, now: Instant) {
        while let Some((due, key)) = self.timers.handshakes.front().copied() {
            let waits = self.is_handshake(key);
            if waits && due > now {
                break;
            }
            self.timers.handshakes.pop_front();
            if waits {
                self.metrics().late.fetch_add(1, Ordering::Relaxed);
                self.remove(key);
            }
        }
        if self.timers.resumes.is_some_and(|due| due <= now) {
            self.timers.resumes = None;
            self.resume_accepting();
        }
        if self.timers.expires.is_some_and(|due| due <= now) {
            self.expire_peers(now);
        }
    }

    /// Drop peers that have been silent for too long.
    fn expire_peers(&mut self, now: Instant) {
        self.timers.expires = None;
        for (key, id) in self.peers() {
            match self.shard.expire(id, now) {
                Ok(Some(due)) => {
                    let expires = self.timers.expires.get_or_insert(due);
                    *expires = due.min(*expires);
                }
                Ok(None) => {}
                Err(error) => self.lose(key, &Fault::Peer(error)),
            }
        }
    }

    /// Whether a closing server is done.
    pub(super) fn is_done(&mut self) -> bool {
        if !self.common.closing.load(Ordering::Acquire) {
            return false;
        }
        let now = Instant::now();
        if self.timers.ends.is_none() {
            self.timers.ends = Some(now + self.options.grace);
            _ = self.set_accepting(false);
            for (key, _) in self.peers() {
                self.serve(key); // stops reading from it
            }
        }
        let late = self.timers.ends.is_some_and(|ends| ends <= now);
        late || !self.is_fabric_sending()
            && self
                .peers()
                .iter()
                .all(|(_, id)| !self.has_pending_output(*id))
    }

    /// The admitted peers, and their ids in the shard.
    fn peers(&self) -> Vec<(Key, PeerId)> {
        let peer = |(key, connection): (Key, &Connection)| match connection {
            Connection::Peer(peer) => Some((key, peer.id)),
            _ => None,
        };
        self.slots.iter().filter_map(peer).collect()
    }

    fn is_handshake(&self, key: Key) -> bool {
        matches!(self.slots.get(key), Some(Connection::Handshake(_)))
    }

    fn has_pending_output(&self, id: PeerId) -> bool {
        self.shard.has_pending_output(id)
    }
}
