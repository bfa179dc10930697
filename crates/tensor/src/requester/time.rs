//! How long the peer may be silent. The caller passes the time in, and cancels operations that are late.
use std::time::Instant;

use super::Requester;
use super::receive::Phase;
use crate::error::Error;

/// Measures the silence of the peer while it owes a response.
#[derive(Debug)]
pub(super) struct SilenceTimer {
    /// When the peer last sent bytes, or began to owe a response.
    silent_since: Instant,
    /// The peer began to owe a response, at a time that is not known yet: `outgoing` is not passed the time.
    begins: bool,
}

impl SilenceTimer {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            silent_since: now,
            begins: false,
        }
    }

    /// The peer begins to owe a response.
    pub(super) fn begins(&mut self) {
        self.begins = true;
    }

    pub(super) fn heard(&mut self, now: Instant) {
        self.silent_since = now;
        self.begins = false;
    }

    /// Bytes were sent. With `of_many`, more wait behind them: their progress counts as a sign of life, since the
    /// buffers of a stopped peer fill up soon.
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
    /// Check the peer's silence; returns when to check again.
    ///
    /// It may queue a liveness probe to send: after half of the limit, so that an idle but live peer has time to
    /// answer.
    ///
    /// # Errors
    ///
    /// [`Error::Silent`]: close the socket, then [`Requester::break_off`].
    pub fn expire(&mut self, now: Instant) -> Result<Option<Instant>, Error> {
        if self.is_idle() {
            return Ok(None);
        }
        let since = self.silence.silent_since(now);
        let limit = self.limits.liveness;
        let silent = now.saturating_duration_since(since);
        if silent >= limit {
            return Err(Error::Silent { silent, limit });
        }
        if silent >= limit / 2 && !self.is_probing {
            self.is_probing = true;
            self.send_probe();
        }
        let looks = if self.is_probing { limit } else { limit / 2 };
        Ok(Some(since + looks))
    }

    /// End all jobs with `error`, and refuse later ones. The caller has fenced the peer: its socket is closed, so
    /// their memory is free.
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
            if let Some((piece, _)) = self.flying.at(index) {
                self.flying.remove(piece);
            }
        }
        for index in 0..self.jobs.end() {
            let Some((key, job)) = self.jobs.at_mut(index) else {
                continue;
            };
            // A job that was refused before keeps its own error.
            let own = job.error.take();
            self.end(key, Err(own.unwrap_or_else(|| error.clone())));
        }
        self.broken = Some(error);
    }
}
