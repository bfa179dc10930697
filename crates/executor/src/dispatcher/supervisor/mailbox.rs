//! Bounded queues from the dispatcher to threads of the program.
//!
//! A wait is a poll of the queue's eventfd, so that a signal ends it: the binding then runs its handlers.

use std::io::ErrorKind;
use std::os::fd::RawFd;
use std::time::Duration;

use forebay_base::Queue;
use forebay_base::time;

use crate::error::{Error, Result};

/// How a wait ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Waited<T> {
    /// The items that had come: none after the timeout or after `wake`.
    Items(Vec<T>),
    /// A signal interrupted it: run its handlers, then wait again.
    Interrupted,
    /// The mailbox is closed and empty.
    Closed,
}

/// A queue from the dispatcher to one thread. Any thread may push; one at a time waits.
#[derive(Debug)]
pub struct Mailbox<T> {
    /// `None` wakes the waiting thread without an item.
    queue: Queue<Option<T>>,
}

impl<T> Mailbox<T> {
    /// Room for `items_max` items.
    ///
    /// # Errors
    /// `System` if the kernel gives no eventfd.
    pub fn new(items_max: usize) -> Result<Self> {
        let queue = Queue::new(items_max).map_err(queue_error)?;
        Ok(Self { queue })
    }

    /// Add an item; false if the mailbox is full or closed. Never waits.
    pub fn push(&self, item: T) -> bool {
        self.queue.push(Some(item)).is_ok()
    }

    /// Make the waiting thread return with what there is.
    pub fn wake(&self) {
        // A full queue wakes it anyway.
        drop(self.queue.push(None));
    }

    /// Accept no more items. Idempotent.
    pub fn close(&self) {
        self.queue.close();
    }

    /// A descriptor that is readable while `take` would return at once, for a caller that waits on others too. The
    /// mailbox keeps it.
    pub fn fileno(&self) -> RawFd {
        self.queue.fileno()
    }

    /// Wait for items, at most for a time; for ever without one.
    ///
    /// # Errors
    /// `System` if the poll fails for another reason than a signal.
    pub fn take(&self, timeout: Option<Duration>) -> Result<Waited<T>> {
        let deadline = time::deadline(timeout);
        let mut batch = Vec::new();
        loop {
            match self.queue.drain(&mut batch) {
                Ok(0) => {}
                Ok(_) => return Ok(Waited::Items(batch.into_iter().flatten().collect())),
                Err(_) => return Ok(Waited::Closed),
            }
            match self.queue.wait(deadline) {
                Ok(true) => {}
                Ok(false) => return Ok(Waited::Items(Vec::new())),
                Err(error) if error.kind() == ErrorKind::Interrupted => {
                    return Ok(Waited::Interrupted);
                }
                Err(error) => return Err(Error::system("poll")(error)),
            }
        }
    }
}

/// The error of a queue that could not be created, as an error of this crate.
pub fn queue_error(error: forebay_base::Error) -> Error {
    match error {
        forebay_base::Error::Descriptor { source } => Error::system("eventfd")(source),
        other => Error::Config(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_items_or_a_wake_or_the_time() {
        let mailbox = Mailbox::new(2).expect("an eventfd");
        assert!(mailbox.push(1) && mailbox.push(2) && !mailbox.push(3));
        assert_eq!(mailbox.take(None).expect("ok"), Waited::Items(vec![1, 2]));
        mailbox.wake();
        assert_eq!(mailbox.take(None).expect("ok"), Waited::Items(vec![]));
        let brief = Some(Duration::from_millis(1));
        assert_eq!(mailbox.take(brief).expect("ok"), Waited::Items(vec![]));
    }

    #[test]
    fn what_was_pushed_before_the_close_is_still_taken() {
        let mailbox = Mailbox::new(2).expect("an eventfd");
        assert!(mailbox.push(1));
        mailbox.close();
        assert!(!mailbox.push(2));
        assert_eq!(mailbox.take(None).expect("ok"), Waited::Items(vec![1]));
        assert_eq!(mailbox.take(None).expect("ok"), Waited::Closed);
    }
}
