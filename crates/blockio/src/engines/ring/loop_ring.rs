//! The ring of an event loop's thread: issues and collects without ever waiting.
//!
//! A go issues at most [`GO_OPERATIONS`], so that reads from the page cache, which end while they are submitted,
//! do not keep the loop from its other work.
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::Instant;

use forebay_base::process;

use crate::batch::Batch;
use crate::completion::{Completions, Finished};
use crate::engines::ring::driver::{Driver, Wait};
use crate::error::Error;
use crate::file::FileHolder;
use crate::flight::Keeper;
use crate::shared::{Shared, close_deadline};

/// Operations of one go: a quarter of a millisecond from the page cache.
const GO_OPERATIONS: u64 = 256;

pub(crate) struct LoopRing {
    /// None once it is given up.
    driver: Option<Driver>,
    shared: Arc<Shared>,
    thread: ThreadId,
    epoch: u64,
}

impl Drop for LoopRing {
    fn drop(&mut self) {
        if let Some(driver) = self.driver.take() {
            self.shared.retire(driver, self.epoch, close_deadline());
        }
    }
}

impl LoopRing {
    /// A ring of the calling thread; the eventfd of `completions` is signalled when some come.
    pub(crate) fn new(shared: &Arc<Shared>, completions: &Arc<Completions>) -> Result<Self, Error> {
        let mut driver = shared.new_driver(Arc::new(Waking(Arc::clone(completions))))?;
        driver
            .signal(completions.as_fd())
            .map_err(|source| Error::system("io_uring_register(eventfd)", source))?;
        Ok(Self {
            driver: Some(driver),
            shared: Arc::clone(shared),
            thread: thread::current().id(),
            epoch: process::epoch(),
        })
    }

    /// Refuse other threads; of forked children the port takes care.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.thread != thread::current().id() {
            return Err(Error::Thread {
                what: "port of an event loop",
            });
        }
        Ok(())
    }

    fn driver(&mut self) -> Result<&mut Driver, Error> {
        self.check()?;
        self.driver.as_mut().ok_or(Error::Closed)
    }

    /// Take a batch in; it goes out with the next go.
    pub(crate) fn admit(&mut self, batch: Batch, keeper: Keeper, ticket: u64) -> Result<(), Error> {
        self.driver()?.admit(batch, ticket, Some(keeper));
        Ok(())
    }

    /// Let go of files that were closed.
    pub(crate) fn sweep(&mut self) {
        if let Ok(driver) = self.driver() {
            driver.sweep();
        }
    }

    /// Issue and collect; append what has ended. Returns whether another go is due at once.
    pub(crate) fn go(&mut self, finished: &mut Vec<Finished>) -> Result<bool, Error> {
        let shared = Arc::clone(&self.shared);
        let driver = self.driver()?;
        loop {
            if let Err(error) = driver.pump(Wait::Not) {
                // No completion of what is in flight will be seen: its memory stays the kernel's.
                shared.give_up(self.driver.take().expect("in use"));
                return Err(error);
            }
            take_done(driver, finished);
            if !driver.can_issue() || driver.completed() >= GO_OPERATIONS {
                break;
            }
        }
        shared.count(driver.take_counts());
        Ok(driver.can_issue() || driver.is_put_off())
    }

    /// The caller stops waiting for the batch. Its end may be there with the next go.
    pub(crate) fn detach(&mut self, ticket: u64) {
        if let Ok(driver) = self.driver() {
            driver.detach(ticket, None);
        }
    }

    /// Cancel everything, and wait until the kernel has let go; returns the operations that it has left.
    pub(crate) fn drain(&mut self, deadline: Instant, finished: &mut Vec<Finished>) -> u64 {
        let Ok(driver) = self.driver() else { return 0 };
        let left = driver.drain(deadline);
        take_done(driver, finished);
        driver.sweep();
        u64::from(left)
    }
}

/// Wakes the loop when a file was closed that the ring holds.
#[derive(Debug)]
struct Waking(Arc<Completions>);

impl FileHolder for Waking {
    fn file_closed(&self) {
        self.0.wake();
    }
}

fn take_done(driver: &mut Driver, finished: &mut Vec<Finished>) {
    while let Some(done) = driver.take_done() {
        finished.push(Finished {
            ticket: done.ticket,
            keeper: done.keeper,
        });
    }
}
