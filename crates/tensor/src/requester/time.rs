//! How long the peer may be silent. The caller passes the time in, and cancels operations that are late.
use std::time::Instant;

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

    /// Since when the peer is silent.
    pub(super) fn silent_since(&mut self, now: Instant) -> Instant {
        if self.begins {
            self.heard(now);
        }
        self.silent_since
    }
}
