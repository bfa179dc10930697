//! Deadlines of jobs, and how long the peer may be silent. The caller says what time it is.
use std::time::Instant;

use super::receive::Phase;
use super::request::{End, Ticket};
use super::{Id, Requester};
use crate::error::Error;

/// What time has to do with a requester.
#[derive(Debug)]
pub(super) struct Clock {
    /// No deadline is earlier.
    earliest: Option<Instant>,
    /// When the peer was heard last, or began to owe something.
    silent_since: Instant,
    /// The peer began to owe something, and nobody has said when.
    begins: bool,
}

impl Clock {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            earliest: None,
            silent_since: now,
            begins: false,
        }
    }

    /// There is a job with this deadline.
    pub(super) fn note(&mut self, deadline: Option<Instant>) {
        self.earliest = match (self.earliest, deadline) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }

    /// The peer begins to owe something.
    pub(super) fn begins(&mut self) {
        self.begins = true;
    }

    pub(super) fn heard(&mut self, now: Instant) {
        self.silent_since = now;
        self.begins = false;
    }

    /// Bytes were taken; `of_many` says that more wait behind them, which a peer that stopped would not take for ever.
    pub(super) fn sent(&mut self, of_many: bool, now: Instant) {
        if self.begins || of_many {
            self.heard(now);
        }
    }

    fn silent_since(&mut self, now: Instant) -> Instant {
        if self.begins {
            self.heard(now);
        }
        self.silent_since
    }
}

impl<K> Requester<K> {
    /// End the jobs whose deadline has passed, and look after the peer's silence; returns by when to look again.
    ///
    /// There may be something to send afterwards: a question whether the peer lives.
    ///
    /// # Errors
    ///
    /// [`Error::Silent`]: close the socket, then [`Requester::break_off`].
    pub fn expire(&mut self, now: Instant) -> Result<Option<Instant>, Error> {
        if self.clock.earliest.is_some_and(|earliest| earliest <= now) {
            self.expire_jobs(now);
        }
        let earliest = self.clock.earliest;
        if self.is_idle() {
            return Ok(earliest);
        }
        let since = self.clock.silent_since(now);
        let limit = self.limits.liveness;
        let silent = now.saturating_duration_since(since);
        if silent >= limit {
            return Err(Error::Silent { silent, limit });
        }
        if silent >= limit / 2 && !self.is_probing {
            self.is_probing = true;
            self.send_probe();
        }
        let next = since + if self.is_probing { limit } else { limit / 2 };
        Ok(Some(earliest.map_or(next, |earliest| earliest.min(next))))
    }

    fn expire_jobs(&mut self, now: Instant) {
        self.clock.earliest = None;
        for index in 0..self.jobs.end() {
            let Some((id, job)) = self.jobs.at(index) else {
                continue;
            };
            let Some(deadline) = job.deadline.filter(|_| !job.is_detached) else {
                continue;
            };
            if deadline > now {
                self.clock.note(Some(deadline));
                continue;
            }
            let late = now.saturating_duration_since(deadline);
            self.end_late(id, job.flying > 0, Error::Timeout { late });
        }
    }

    fn end_late(&mut self, id: Id, is_flying: bool, error: Error) {
        if is_flying {
            self.detach(id.index);
            let ticket = Ticket::of(id);
            self.ends.push_back(End::Late { ticket, error });
        } else {
            self.leave_queue(id.index);
            self.end(id.index, Err(error));
        }
    }

    /// The peer is fenced, its socket closed: end all jobs with `error`, as later ones will be refused.
    ///
    /// Idempotent; the first error stays.
    pub fn break_off(&mut self, error: Error) {
        if self.broken.is_some() {
            return;
        }
        self.queue.clear();
        self.outbox.clear(|_| {});
        self.inbox.clear();
        self.phase = Phase::Header;
        self.is_probing = false;
        self.large = 0;
        for index in 0..self.flying.end() {
            self.flying.remove(index);
        }
        for index in 0..self.jobs.end() {
            let own = self.jobs.get_mut(index).and_then(|job| job.error.take());
            // What was refused before the end was refused.
            self.end(index, Err(own.unwrap_or_else(|| error.clone())));
        }
        self.broken = Some(error);
    }
}
