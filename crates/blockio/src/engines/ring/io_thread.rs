//! The I/O thread: it owns a ring, and any thread hands batches over to it.
//!
//! Its ring watches the eventfd of the intake, so one wait is for completions and for what is handed over,
//! and one wake-up serves all batches that were handed over meanwhile.
//! Clients are notified after the turn of all that ended in it: one wake-up for many batches.
//!
//! # How it ends
//!
//! A close ends the intake; the thread cancels what is in flight, waits for it until the deadline, and leaks what is left.
//! If completions can no longer be waited for, all operations in flight fail with that error, and the intake ends as well.
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use forebay_base::{Queue, process};
use rustix::io::Errno;

use crate::batch::Batch;
use crate::clients::Clients;
use crate::completion::Completions;
use crate::engines::ring::driver::{Driver, NAME_WATCH, Wait};
use crate::engines::ring::entry;
use crate::error::Error;
use crate::file::FileHolder;
use crate::flight::Keeper;
use crate::service;
use crate::shared::{Shared, close_deadline};

/// The intake takes any number of batches, as what is in flight does: the memory that callers lend bounds both.
const ORDERS_MAX: usize = usize::MAX;

/// What the thread is asked for.
enum Order {
    Batch {
        batch: Batch,
        keeper: Keeper,
        ticket: u64,
        done: Arc<Completions>,
    },
    Detach(u64),
    /// A file was closed that the ring may hold.
    Sweep,
}

/// What clients and the thread share.
struct Intake {
    orders: Queue<Order>,
    /// Until when the thread waits for what is in flight; set before the orders are closed.
    deadline: Mutex<Option<Instant>>,
    /// Why the thread has ended by itself.
    failure: OnceLock<Errno>,
}

impl fmt::Debug for Intake {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Intake")
            .field("failure", &self.failure.get())
            .finish_non_exhaustive()
    }
}

impl FileHolder for Intake {
    fn file_closed(&self) {
        _ = self.orders.push(Order::Sweep); // a thread that has ended has no ring any more
    }
}

/// A thread with a ring.
#[derive(Debug)]
pub(crate) struct IoThread {
    intake: Arc<Intake>,
    handle: Mutex<Option<JoinHandle<u32>>>,
    epoch: u64,
}

impl IoThread {
    /// Start the thread; it makes its ring, because a ring belongs to the thread that made it.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if there is no thread or no ring, [`Error::Wake`] if there is no eventfd.
    pub(crate) fn start(shared: &Arc<Shared>) -> Result<Self, Error> {
        let intake = Arc::new(Intake {
            orders: Queue::new(ORDERS_MAX)?,
            deadline: Mutex::new(None),
            failure: OnceLock::new(),
        });
        let (made, answer) = mpsc::channel();
        let (shared, inside) = (Arc::clone(shared), Arc::clone(&intake));
        let handle = service::start("forebay-block-io".into(), move || {
            let holder = Arc::clone(&inside);
            let driver = match shared.new_driver(holder) {
                Ok(driver) => driver,
                Err(error) => {
                    _ = made.send(Err(error));
                    return 0;
                }
            };
            _ = made.send(Ok(()));
            Service::new(driver, shared, inside).run()
        })?;
        let outcome = answer.recv().unwrap_or(Err(Error::Closed));
        if let Err(error) = outcome {
            _ = handle.join();
            return Err(error);
        }
        Ok(Self {
            intake,
            handle: Mutex::new(Some(handle)),
            epoch: process::epoch(),
        })
    }

    /// Hand a batch over; its end comes to `done` under `ticket`.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`]; [`Error::System`] if the thread could not go on. `keeper` is dropped then.
    pub(crate) fn submit(
        &self,
        batch: Batch,
        keeper: Keeper,
        ticket: u64,
        done: &Arc<Completions>,
    ) -> Result<(), Error> {
        let order = Order::Batch {
            batch,
            keeper,
            ticket,
            done: Arc::clone(done),
        };
        self.intake.orders.push(order).map_err(|refused| {
            drop(refused.into_item());
            self.intake.failure.get().map_or(Error::Closed, |&errno| Error::System {
                call: "io_uring_enter of the I/O thread",
                source: errno.into(),
                advice: "; the thread has ended, and what it had in flight is lost: make another queue",
            })
        })
    }

    /// The caller of a batch that was handed over stops waiting; its end is sent all the same.
    pub(crate) fn detach(&self, ticket: u64) {
        // A thread that has ended has no batch any more.
        _ = self.intake.orders.push(Order::Detach(ticket));
    }

    /// Refuse further batches, cancel what is in flight, wait until the kernel has let go of it. Idempotent.
    ///
    /// Returns the operations that it did not let go of before the deadline; the owners of their memory are leaked.
    pub(crate) fn close(&self, deadline: Instant) -> u64 {
        *lock(&self.intake.deadline) = Some(deadline);
        self.intake.orders.close();
        let Some(handle) = lock(&self.handle).take() else {
            return 0;
        };
        if handle.thread().id() == thread::current().id() {
            return 0; // a keeper that owned the queue was dropped here: the thread ends by itself
        }
        // It does not panic, because it catches that.
        handle.join().map_or(0, u64::from)
    }
}

impl Drop for IoThread {
    fn drop(&mut self) {
        if self.epoch == process::epoch() {
            self.close(close_deadline());
        } else {
            // A forked child does not have the thread.
            std::mem::forget(lock(&self.handle).take());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the thread works with.
struct Service {
    driver: Driver,
    clients: Clients,
    shared: Arc<Shared>,
    intake: Arc<Intake>,
    orders: Vec<Order>,
    /// The ring watches the intake.
    watches: bool,
}

impl Service {
    fn new(driver: Driver, shared: Arc<Shared>, intake: Arc<Intake>) -> Self {
        Self {
            driver,
            clients: Clients::default(),
            shared,
            intake,
            orders: Vec::new(),
            watches: false,
        }
    }

    /// Serve until the end; returns the operations whose memory was leaked.
    fn run(mut self) -> u32 {
        // A panic is a mistake of ours; it must not let memory go that the kernel may write.
        let served = catch_unwind(AssertUnwindSafe(|| self.serve()));
        let left = match served {
            Ok(Ok(())) => self.drain(),
            Ok(Err(errno)) => self.fail(errno),
            Err(_) => self.fail(Errno::IO),
        };
        self.shared.note_leak(left);
        self.notify();
        if left > 0 {
            self.driver.leak();
        }
        left
    }

    fn serve(&mut self) -> Result<(), Errno> {
        loop {
            if !self.watches {
                let watch = entry::watch(self.intake.orders.fileno(), NAME_WATCH);
                self.watches = self.driver.prepare_own(watch);
            }
            let wait = if self.driver.can_issue() {
                Wait::Not
            } else {
                Wait::Any
            };
            if let Err(error) = self.driver.pump(wait) {
                return Err(errno_of(&error));
            }
            let mut woken = false;
            for own in self.driver.take_own() {
                if own.name == NAME_WATCH {
                    woken = true;
                    self.watches = own.more;
                }
            }
            if woken && self.take_orders().is_err() {
                return Ok(());
            }
            self.notify();
        }
    }

    /// Do what was asked for; an error once nothing more will be.
    fn take_orders(&mut self) -> Result<(), forebay_base::Error> {
        let outcome = self.intake.orders.drain(&mut self.orders);
        for order in self.orders.drain(..) {
            match order {
                Order::Batch {
                    batch,
                    keeper,
                    ticket,
                    done,
                } => {
                    self.clients.enter(ticket, &done, batch.count());
                    self.driver.admit(batch, ticket, Some(keeper));
                }
                Order::Detach(ticket) => _ = self.driver.detach(ticket, None),
                Order::Sweep => self.driver.sweep(),
            }
        }
        outcome.map(|_| ())
    }

    /// Notify the clients of the batches that have ended.
    fn notify(&mut self) {
        while let Some(done) = self.driver.take_done() {
            if let Some(notice) = self.clients.leave(done.ticket, done.keeper) {
                notice.send();
            }
        }
        self.shared.count(self.driver.take_counts());
    }

    /// The intake is closed: cancel what is in flight and wait for it.
    fn drain(&mut self) -> u32 {
        let deadline = lock(&self.intake.deadline).unwrap_or_else(Instant::now);
        self.driver.drain(deadline)
    }

    /// Nothing can be waited for any more: fail what is in flight, and what was handed over since.
    fn fail(&mut self, errno: Errno) -> u32 {
        _ = self.intake.failure.set(errno);
        self.intake.orders.close();
        while self.take_orders().is_ok() {}
        self.driver.fail_all(errno)
    }
}

fn errno_of(error: &Error) -> Errno {
    let Error::System { source, .. } = error else {
        return Errno::IO;
    };
    source
        .raw_os_error()
        .map_or(Errno::IO, Errno::from_raw_os_error)
}
