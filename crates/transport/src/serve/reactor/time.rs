//! What a native listener does by time: deadlines, pauses, and its end.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use forebay_base::poll::Ready;
use forebay_base::slots::Key;

use super::Reactor;
use crate::limit::{NATIVE_GRACE_MS, NATIVE_STALL_LOOKS};

impl Reactor {
    pub(super) fn timeout(&self) -> Duration {
        let now = Instant::now();
        let mut until = self.check_stalls_at.saturating_duration_since(now);
        if !self.again.is_empty() {
            until = Duration::ZERO;
        }
        let redial = self.redials.first().map(|(due, _, _)| *due);
        let dues = [
            self.handshakes.deadline(),
            redial,
            self.acceptor.deadline(),
            self.close_at,
        ];
        for due in dues.into_iter().flatten() {
            until = until.min(due.saturating_duration_since(now));
        }
        until
    }

    pub(super) fn keep_time(&mut self, now: Instant) {
        while let Some(key) = self.late_handshake(now) {
            self.control.metrics.late.fetch_add(1, Ordering::Relaxed);
            self.close_connection(key);
        }
        if self.acceptor.ends_pause(now) {
            self.resume_accepting();
        }
        if self.redials.first().is_some_and(|(due, _, _)| *due <= now) {
            for (_, key, target) in std::mem::take(&mut self.redials) {
                if self.served(key).is_some() {
                    self.dial(key, target);
                    self.watch(key);
                }
            }
        }
        if self.check_stalls_at <= now {
            self.check_stalls_at = now + self.options.stall / NATIVE_STALL_LOOKS;
            self.close_stalled(now);
        }
    }

    fn late_handshake(&mut self, now: Instant) -> Option<Key> {
        let connections = &self.connections;
        let waits = |key| connections.get(key).is_some_and(|served| !served.open);
        self.handshakes.take_late(now, waits)
    }

    fn close_stalled(&mut self, now: Instant) {
        for key in self.keys() {
            let allowed = self.options.stall;
            let stalled = self.served(key).is_some_and(|served| {
                let position = served.session.position();
                served.stall.has_stalled(now, position, allowed)
            });
            if stalled {
                self.control.metrics.stalled.fetch_add(1, Ordering::Relaxed);
                self.close_connection(key);
            }
        }
    }

    fn keys(&self) -> Vec<Key> {
        self.connections.iter().map(|(key, _)| key).collect()
    }

    /// Whether the owner has closed it and every answer was written, or the grace is over.
    pub(super) fn is_done(&mut self) -> bool {
        if !self.control.is_closing() {
            return false;
        }
        let now = Instant::now();
        if self.close_at.is_none() {
            self.close_at = Some(now + Duration::from_millis(NATIVE_GRACE_MS));
            self.acceptor.close(&self.poll);
            for key in self.keys() {
                if let Some(served) = self.served(key) {
                    served.session.close();
                    self.step(key, Ready::NOTHING, Ready::NOTHING);
                }
            }
        }
        self.connections.is_empty() || self.close_at.is_some_and(|end| end <= now)
    }
}
