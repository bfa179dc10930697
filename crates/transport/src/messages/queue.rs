//! Threads that wait on one descriptor whose readiness the first reader consumes.
//!
//! One of them leads: it sleeps on the descriptor, handles what woke it, and notifies the others. If two threads polled
//! the same wakeup, one would clear it and the other would sleep on.
//!
//! `forebay_base::waiters` is for threads that wait for an answer each, which the reader wakes. Here all wait for the same:
//! a message, room, the end; they look again when a lead ends. Over a socket there is no leader: each sleeps on it itself.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::limit::FOLLOW_MS;

/// The waiting threads.
#[derive(Debug, Default)]
pub struct LeadQueue {
    state: Mutex<Turn>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Turn {
    led: bool,
    /// Grows with the end of each lead.
    version: u64,
}

/// The right to sleep on the descriptor; dropping it makes the others look again.
#[derive(Debug)]
pub struct Lead<'a>(&'a LeadQueue);

impl LeadQueue {
    /// The current version. Read it before the look after which [`Self::lead`] is called, so that no lead that ends in
    /// between is missed.
    pub fn version(&self) -> u64 {
        self.lock().version
    }

    /// Lead, or `None` after another thread's lead has ended since `version`, or has lasted for a while.
    pub fn lead(&self, version: u64, deadline: Option<Instant>) -> Option<Lead<'_>> {
        let mut turn = self.lock();
        if turn.version != version {
            return None;
        }
        if !turn.led {
            turn.led = true;
            return Some(Lead(self));
        }
        let follow = Duration::from_millis(FOLLOW_MS);
        let patience = deadline.map_or(follow, |at| {
            follow.min(at.saturating_duration_since(Instant::now()))
        });
        let waited = self
            .changed
            .wait_timeout_while(turn, patience, |turn| turn.version == version);
        drop(waited);
        None
    }

    fn lock(&self) -> MutexGuard<'_, Turn> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let mut turn = self.0.lock();
        turn.led = false;
        turn.version += 1;
        self.0.changed.notify_all();
    }
}
