//! The tickets of batches that a port has to report, and the wake-up of the thread that takes them.
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use forebay_base::wakeup::Wakeup;

/// Tickets of batches with ended operations, and what wakes the thread that takes them.
///
/// Not a [`Queue`](forebay_base::Queue), whose `drain` reads the eventfd each time: a port takes the tickets at the end of
/// every turn, and most turns need no wake-up.
pub(super) struct ReadyList {
    wakeup: Wakeup,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    tickets: Vec<u64>,
    /// The port is in a turn, which takes the tickets at its end: no wake-up is needed.
    is_turning: bool,
    closed: bool,
}

impl ReadyList {
    pub(super) fn new(wakeup: Wakeup) -> Self {
        Self {
            wakeup,
            state: Mutex::default(),
        }
    }

    /// Operations of a batch have ended.
    pub(super) fn push(&self, ticket: u64) {
        let mut state = self.lock();
        if state.closed {
            return;
        }
        state.tickets.push(ticket);
        if !state.is_turning && state.tickets.len() == 1 {
            self.wakeup.raise();
        }
    }

    /// The port begins a turn.
    pub(super) fn begin_turn(&self) {
        self.lock().is_turning = true;
    }

    /// The port ends its turn: append the tickets; returns whether the list is closed.
    pub(super) fn end_turn(&self, tickets: &mut Vec<u64>) -> bool {
        let mut state = self.lock();
        state.is_turning = false;
        tickets.append(&mut state.tickets);
        state.closed
    }

    /// Take no more tickets.
    pub(super) fn close(&self) {
        self.lock().closed = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Have the port turn at once.
    pub(super) fn wake_up(&self) {
        self.wakeup.raise();
    }

    /// The port has seen the wake-up.
    pub(super) fn clear_wakeup(&self) {
        self.wakeup.clear();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for ReadyList {
    /// Readable when the port has to turn.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wakeup.as_fd()
    }
}
