//! The queue: many producers, one consumer, one eventfd write per batch. The design note stands at the crate.
#[cfg(not(loom))]
use std::io;
#[cfg(not(loom))]
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::PoisonError;
#[cfg(not(loom))]
use std::time::Instant;

use crate::error::{Error, Refused};
use crate::sync::{Mutex, MutexGuard};
use crate::wakeup::Wakeup;

#[derive(Debug)]
struct Waiting<T> {
    items: Vec<T>,
    /// The consumer has to be woken for the next item. Raised by `drain`, lowered by the producer that wakes.
    armed: bool,
    closed: bool,
}

/// A bounded queue that wakes its consumer through an eventfd, once per batch.
///
/// Share it as an `Arc<Queue<T>>`; every method takes `&self`.
/// Any thread may push.
/// One thread at a time drains; several that do get disjoint batches, but the eventfd wakes only who polls it.
/// Not for use in a forked child, which would share the parent's eventfd.
#[derive(Debug)]
pub struct Queue<T> {
    waiting: Mutex<Waiting<T>>,
    wakeup: Wakeup,
    items_max: usize,
}

impl<T> Queue<T> {
    /// Make a queue that holds at most `items_max` items (the limit `queue_items_max`).
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for 0 items, [`Error::Descriptor`] if the kernel gives no eventfd.
    pub fn new(items_max: usize) -> Result<Self, Error> {
        if items_max == 0 {
            return Err(Error::Limit { limit: items_max });
        }
        Ok(Self {
            waiting: Mutex::new(Waiting {
                items: Vec::new(),
                armed: true,
                closed: false,
            }),
            wakeup: Wakeup::new()?,
            items_max,
        })
    }

    /// Put `item` at the end and wake the consumer if it waits. Never blocks; any thread.
    ///
    /// Cost: one uncontended lock, and one system call for the first item of a batch.
    ///
    /// # Errors
    ///
    /// [`Refused`] with the item when the queue is full or closed.
    pub fn push(&self, item: T) -> Result<(), Refused<T>> {
        let mut waiting = self.lock();
        if waiting.closed {
            return Err(Refused::Closed { item });
        }
        if waiting.items.len() >= self.items_max {
            return Err(Refused::Full {
                item,
                limit: self.items_max,
            });
        }
        waiting.items.push(item);
        let wake = std::mem::take(&mut waiting.armed);
        drop(waiting);
        if wake {
            self.wakeup.raise();
        }
        Ok(())
    }

    /// Take everything that waits, oldest first, and append it to `batch`; return how many items that were.
    ///
    /// Zero is an ordinary answer: a batch may be taken between a producer's push and its wake-up.
    /// An empty `batch` is swapped with the queue's own vector, so two vectors that grew once serve for ever.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] once the queue is closed and empty.
    /// From the close on the descriptor stays readable, so a loop that polls it gets to see this.
    pub fn drain(&self, batch: &mut Vec<T>) -> Result<usize, Error> {
        self.wakeup.clear();
        let mut waiting = self.lock();
        // The flag and the items under one lock, after the clear: see the crate's invariant.
        waiting.armed = true;
        let count = waiting.items.len();
        if batch.is_empty() {
            std::mem::swap(batch, &mut waiting.items);
        } else {
            batch.append(&mut waiting.items);
        }
        let closed = waiting.closed;
        drop(waiting);
        if closed {
            self.wakeup.raise();
        }
        if closed && count == 0 {
            Err(Error::Closed)
        } else {
            Ok(count)
        }
    }

    /// Refuse further items and wake the consumer, which still gets what waits. Idempotent; any thread.
    pub fn close(&self) {
        self.lock().closed = true;
        // Without asking the flag: the descriptor is to stay readable from here on.
        self.wakeup.raise();
    }

    /// Wake the consumer without an item, for news that reach it by another way. Any thread.
    ///
    /// Cost: one system call.
    pub fn wake(&self) {
        self.wakeup.raise();
    }

    /// How many items wait, for statistics: the answer is old when it arrives.
    pub fn len(&self) -> usize {
        self.lock().items.len()
    }

    /// Whether nothing waits, with the same reserve as [`Queue::len`].
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The limit `queue_items_max`.
    pub fn items_max(&self) -> usize {
        self.items_max
    }

    /// The number of the eventfd, for a loop that watches descriptors: readable means that `drain` is due.
    ///
    /// The queue owns it: watch it for reading, and neither read nor close it.
    #[cfg(not(loom))]
    pub fn fileno(&self) -> RawFd {
        self.wakeup.fileno()
    }

    /// Sleep until `drain` is due, or a deadline has passed; whether it is due. For a consumer that watches nothing else.
    ///
    /// # Errors
    /// `Interrupted` by a signal, and what poll(2) has besides.
    #[cfg(not(loom))]
    pub fn wait(&self, deadline: Option<Instant>) -> io::Result<bool> {
        self.wakeup.wait(deadline)
    }

    /// Block until woken; stands in for a poll of the descriptor.
    #[cfg(loom)]
    pub fn wait(&self) {
        self.wakeup.wait();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<T>> {
        // No code of a caller runs under the lock and a push changes the vector last,
        // so a panic (out of memory) leaves a queue that is whole.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(not(loom))]
impl<T> AsFd for Queue<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wakeup.as_fd()
    }
}
