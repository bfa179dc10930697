//! When a server's thread sleeps, and what it does when time has passed: deadlines, pauses, its end.
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::reactor::Reactor;
use super::seats::{Occupant, Place};
use crate::responder::PeerId;
use crate::stream::channel::Fault;
use crate::stream::port::NOW;

/// For how long nobody is accepted once no descriptor was left.
const REST: Duration = Duration::from_millis(100);

/// When something is due.
pub(super) struct Clock {
    handshake: Duration,
    /// In the order of their deadlines, all of which are as far away.
    greetings: VecDeque<(Instant, Place)>,
    resumes: Option<Instant>,
    /// When to look for peers that do not move; none while no peer has anything outstanding.
    looks: Option<Instant>,
    ends: Option<Instant>,
}

impl Clock {
    pub(super) fn new(handshake: Duration) -> Self {
        Self {
            handshake,
            greetings: VecDeque::new(),
            resumes: None,
            looks: None,
            ends: None,
        }
    }

    /// How long to sleep at most; none for until something happens.
    pub(super) fn timeout(&self, now: Instant) -> Option<Timespec> {
        let greeting = self.greetings.front().map(|(due, _)| *due);
        let dues = [greeting, self.resumes, self.looks, self.ends];
        let due = dues.into_iter().flatten().min()?;
        let until = due.saturating_duration_since(now);
        Some(Timespec {
            tv_sec: i64::try_from(until.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: until.subsec_nanos().into(),
        })
    }

    /// A guest has come.
    pub(super) fn greet(&mut self, now: Instant, place: Place) {
        self.greetings.push_back((now + self.handshake, place));
    }

    /// Accept nobody for a while.
    pub(super) fn rest(&mut self, now: Instant) {
        self.resumes = Some(now + REST);
    }

    pub(super) fn rests(&self) -> bool {
        self.resumes.is_some()
    }

    /// A peer may have something outstanding now.
    pub(super) fn expect(&mut self, now: Instant, liveness: Duration) {
        self.looks.get_or_insert(now + liveness / 2);
    }
}

impl<K: Send> Reactor<K> {
    /// Wait for something to do, unless there is already.
    pub(super) fn sleep(
        &mut self,
        at_once: bool,
        events: &mut Vec<epoll::Event>,
    ) -> Result<(), Errno> {
        if !at_once {
            let timeout = self.clock.timeout(Instant::now());
            let slept = self.look.await_input(self.epoll.as_fd(), timeout.as_ref());
            if let Err(errno) = slept
                && errno != Errno::INTR
            {
                return Err(errno);
            }
        }
        let buffer = rustix::buffer::spare_capacity(events);
        match epoll::wait(&self.epoll, buffer, Some(&NOW)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    pub(super) fn keep_time(&mut self, now: Instant) {
        while let Some((due, place)) = self.clock.greetings.front().copied() {
            let waits = self.is_guest(place);
            if waits && due > now {
                break;
            }
            self.clock.greetings.pop_front();
            if waits {
                self.tally().late.fetch_add(1, Ordering::Relaxed);
                self.dismiss(place);
            }
        }
        if self.clock.resumes.is_some_and(|due| due <= now) {
            self.clock.resumes = None;
            self.welcome();
        }
        if self.clock.looks.is_some_and(|due| due <= now) {
            self.look(now);
        }
    }

    /// Let go of peers that have not moved for too long.
    fn look(&mut self, now: Instant) {
        self.clock.looks = None;
        for (place, id) in self.peers() {
            match self.shard.expire(id, now) {
                Ok(Some(due)) => {
                    let looks = self.clock.looks.get_or_insert(due);
                    *looks = due.min(*looks);
                }
                Ok(None) => {}
                Err(error) => self.lose(place, &Fault::Peer(error)),
            }
        }
    }

    /// Whether a server that closes has nothing more to do.
    pub(super) fn is_done(&mut self) -> bool {
        if !self.common.closing.load(Ordering::Acquire) {
            return false;
        }
        let now = Instant::now();
        if self.clock.ends.is_none() {
            self.clock.ends = Some(now + self.options.grace);
            _ = self.set_accepting(false);
            for (place, _) in self.peers() {
                self.touch(place); // from here on it is only sent to
            }
        }
        let late = self.clock.ends.is_some_and(|ends| ends <= now);
        late || !self.is_fabric_sending() && self.peers().iter().all(|(_, id)| !self.is_owed(*id))
    }

    /// Everybody who was let in, and their number in the shard.
    fn peers(&mut self) -> Vec<(Place, PeerId)> {
        let places = self.seats.places();
        let peer = |place: Place| match self.seats.get(place) {
            Some(Occupant::Peer(peer)) => Some((place, peer.id)),
            _ => None,
        };
        places.into_iter().filter_map(peer).collect()
    }

    fn is_guest(&mut self, place: Place) -> bool {
        matches!(self.seats.get(place), Some(Occupant::Guest(_)))
    }

    fn is_owed(&self, id: PeerId) -> bool {
        self.shard.is_owed(id)
    }
}
