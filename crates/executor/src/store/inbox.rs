//! The inbox of each of the store's threads.
//!
//! A condition variable rather than `base::Queue`: that one wakes by an eventfd and is bounded, while these threads
//! sleep on nothing else, and a push that finds its thread awake needs no system call.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::error::{Result, StoreError};

#[derive(Debug)]
struct Waiting<T> {
    messages: VecDeque<T>,
    closed: bool,
    /// The thread sleeps: only then is a wake-up worth a system call.
    asleep: bool,
}

/// The work of one thread: any thread pushes, one takes.
///
/// Not bounded: its senders have limits (`queued_max`, calls in flight), and each message is answered.
#[derive(Debug)]
pub(super) struct Inbox<T> {
    waiting: Mutex<Waiting<T>>,
    changed: Condvar,
}

/// The result of a look into the inbox.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Messages,
    /// Nothing came in time.
    Nothing,
    /// It is closed and empty.
    Closed,
}

impl<T> Inbox<T> {
    pub fn new() -> Self {
        Self {
            waiting: Mutex::new(Waiting {
                messages: VecDeque::new(),
                closed: false,
                asleep: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// Add a message. After the close it is dropped: its owner is gone.
    pub fn push(&self, message: T) {
        let mut waiting = self.lock();
        if waiting.closed {
            return;
        }
        waiting.messages.push_back(message);
        // Cleared by the sender that wakes, so that a burst of messages costs one wake-up.
        let wake = std::mem::take(&mut waiting.asleep);
        // Released first: the woken thread would otherwise wait for the lock at once.
        drop(waiting);
        if wake {
            self.changed.notify_one();
        }
    }

    /// Take all messages; block until there is one, the inbox is closed, or `timeout` is over.
    ///
    /// `into` must be empty: it is swapped with the queue.
    pub fn take(&self, into: &mut VecDeque<T>, timeout: Option<Duration>) -> Seen {
        debug_assert!(into.is_empty(), "what was taken is dealt with first");
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut waiting = self.lock();
        while waiting.messages.is_empty() && !waiting.closed {
            waiting.asleep = true;
            let Some(deadline) = deadline else {
                waiting = self
                    .changed
                    .wait(waiting)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                waiting.asleep = false;
                return Seen::Nothing;
            }
            waiting = self
                .changed
                .wait_timeout(waiting, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        waiting.asleep = false;
        std::mem::swap(into, &mut waiting.messages);
        if into.is_empty() {
            Seen::Closed
        } else {
            Seen::Messages
        }
    }

    /// Accept no more messages; those in it are still taken.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<T>> {
        // No code of a caller runs under the lock, so a panic cannot leave it inconsistent.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Start a named thread.
pub(super) fn thread(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let started = Builder::new().name(name.into()).spawn(body);
    started.map_err(|source| StoreError::Start(format!("thread {name}: {source}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_at_the_close_is_still_taken() {
        let inbox = Inbox::new();
        inbox.push(1);
        inbox.push(2);
        inbox.close();
        inbox.push(3);
        let mut taken = VecDeque::new();
        assert_eq!(inbox.take(&mut taken, None), Seen::Messages);
        assert_eq!(taken, [1, 2]);
        taken.clear();
        assert_eq!(inbox.take(&mut taken, None), Seen::Closed);
    }

    #[test]
    fn a_look_with_a_time_comes_back_without_messages() {
        let inbox = Inbox::<u8>::new();
        let seen = inbox.take(&mut VecDeque::new(), Some(Duration::from_millis(1)));
        assert_eq!(seen, Seen::Nothing);
    }
}
