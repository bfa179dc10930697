//! How long the peer may be silent. The caller says what time it is, and cancels what is late.
use std::time::Instant;

use super::Requester;
use super::receive::Phase;
use crate::error::Error;

/// What time has to do with a requester.
#[derive(Debug)]
pub(super) struct SilenceTimer {
    /// When the peer was heard last, or began to owe something.
    silent_since: Instant,
    /// The peer began to owe something, and nobody has said when.
    begins: bool,
}

impl SilenceTimer {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            silent_since: now,
            begins: false,
        }
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
    /// Look after the peer's silence; returns by when to look again.
    ///
    /// There may be something to send afterwards: a question whether the peer lives.
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
