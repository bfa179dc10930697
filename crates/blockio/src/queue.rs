//! A queue: one set of limits, one set of engines, for all threads of a process.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use forebay_base::{PerProcess, process};

use crate::batch::Batch;
use crate::completion::{Completions, GivingUp};
use crate::config::Config;
use crate::engines::ring::driver::{Counts, Driver};
use crate::engines::ring::io_thread::IoThread;
use crate::engines::ring::local;
use crate::engines::ring::probe::{self, Availability};
use crate::engines::ring::registry::Registry;
use crate::engines::threads::Threads;
use crate::error::Error;
use crate::file::{BlockFile, FileHolder};
use crate::flight::Keeper;
use crate::port::Port;
use crate::quarantine::Quarantine;
use crate::sys::lent::Memory;
use crate::sys::transfer::Transfer;

/// How long a close, or a drop without one, waits for what is in flight; after that its memory is leaked.
/// A disk answers in milliseconds, a pipe may never.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The end of a wait for what is in flight that begins now.
pub(crate) fn close_deadline() -> Instant {
    Instant::now() + CLOSE_TIMEOUT
}

/// Figures of a queue at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// System calls that entered a ring.
    pub enters: u64,
    /// Operations that completed.
    pub operations: u64,
    /// Memory of cancelled batches that the kernel may still write.
    pub quarantined_bytes: u64,
    /// Those batches.
    pub quarantined_batches: u64,
    /// The limit `quarantine_bytes_max`.
    pub quarantine_bytes_max: u64,
    /// Memory registered with the kernel.
    pub registered_bytes: u64,
    /// Why other memory is not, if it was refused.
    pub unregistered: Option<String>,
    /// Operations whose memory was given up for good, because the kernel did not let go of it.
    pub leaked_operations: u64,
}

/// What the threads of a queue share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) quarantine: Arc<Quarantine>,
    available: Availability,
    registry: Option<Arc<Registry>>,
    epoch: u64,
    closed: AtomicBool,
    enters: AtomicU64,
    operations: AtomicU64,
    leaked: AtomicU64,
}

impl Shared {
    /// A ring of the calling thread; `holder` is notified when files that it holds are closed.
    pub(crate) fn new_driver(&self, holder: Arc<dyn FileHolder>) -> Result<Driver, Error> {
        let Config {
            batch_limit,
            concurrency_limit,
            ..
        } = self.config;
        let registry = self.registry().cloned();
        let quarantine = Arc::clone(&self.quarantine);
        let limits = (batch_limit, concurrency_limit);
        Driver::new(limits, registry, quarantine, holder).map_err(|source| {
            Error::System {
                call: "io_uring_setup",
                source,
                advice: "; each thread that reads has a ring of its own: use fewer threads, or submit to the I/O thread",
            }
        })
    }

    /// What is registered; nothing in a forked child, whose memory is its own.
    fn registry(&self) -> Option<&Arc<Registry>> {
        let here = self.epoch == process::epoch();
        self.registry.as_ref().filter(|_| here)
    }

    /// Let a ring end: drain it, leak what the kernel does not let go of, forget it in a forked child.
    ///
    /// Returns the operations whose memory was leaked.
    pub(crate) fn retire(&self, mut driver: Driver, epoch: u64, deadline: Instant) -> u32 {
        if epoch != process::epoch() {
            driver.abandon();
            return 0;
        }
        let left = driver.drain(deadline);
        while driver.take_done().is_some() {}
        if left > 0 {
            self.give_up(driver);
        }
        left
    }

    /// Never wait for what a ring has in flight: its memory stays the kernel's, and the ring is not used again.
    pub(crate) fn give_up(&self, driver: Driver) {
        self.note_leak(driver.flying());
        driver.leak();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Refuse new work once the queue is closed, or while too much memory is in quarantine.
    pub(crate) fn check_open(self: &Arc<Self>) -> Result<(), Error> {
        if self.is_closed() {
            return Err(Error::Closed);
        }
        self.quarantine.check().or_else(|_| {
            // Only this thread can reap its rings, and otherwise does so with its next batch.
            local::reap(self);
            self.quarantine.check()
        })
    }

    pub(crate) fn count(&self, done: Counts) {
        self.enters.fetch_add(done.enters, Ordering::Relaxed);
        self.operations
            .fetch_add(done.operations, Ordering::Relaxed);
    }

    /// The kernel did not let go of the memory of so many operations; it is lost.
    pub(crate) fn note_leak(&self, operations: u32) {
        self.leaked
            .fetch_add(u64::from(operations), Ordering::Relaxed);
    }
}

/// Carries out batches: on the caller's thread ([`run`](Self::run)), on an I/O thread ([`submit`](Self::submit)),
/// or on an event loop's ([`port`](Self::port)).
///
/// Thread-safe; clones are the same queue. In a forked child it makes rings and threads of its own.
/// Results are bytes, or a negative `errno`; a batch with failed operations is no failed call.
#[derive(Clone, Debug)]
pub struct BlockQueue {
    shared: Arc<Shared>,
    threads: Arc<PerProcess<Threads>>,
    io_thread: Arc<PerProcess<IoThread>>,
}

impl BlockQueue {
    /// Make a queue. Rings and threads are made when they are first needed.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for limits that cannot be, [`Error::Unavailable`] if rings were asked for and there are none.
    pub fn new(config: Config) -> Result<Self, Error> {
        config.check()?;
        let available = probe::chosen(config.engine)?;
        let registry = if available.ring && available.unregistered.is_none() {
            Registry::new().ok().map(Arc::new)
        } else {
            None
        };
        let quarantine = Arc::new(Quarantine::new(config.quarantine_bytes_max));
        let shared = Arc::new(Shared {
            config,
            quarantine,
            available,
            registry,
            epoch: process::epoch(),
            closed: AtomicBool::new(false),
            enters: AtomicU64::new(0),
            operations: AtomicU64::new(0),
            leaked: AtomicU64::new(0),
        });
        Ok(Self {
            shared,
            threads: Arc::default(),
            io_thread: Arc::default(),
        })
    }

    /// What carries out operations, and why.
    pub fn availability(&self) -> &Availability {
        &self.shared.available
    }

    /// Register the region's memory with the kernel, now and as it grows: all of its chunks take real memory from now on.
    ///
    /// Where the kernel refuses, the region is used as it is; [`BlockQueue::stats`] says why.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`]; [`Error::Memory`] for a region that is closed, or a parent's, or has too many registrars.
    pub fn attach(&self, region: &forebay_memory::Region) -> Result<(), Error> {
        if self.is_closed() {
            return Err(Error::Closed);
        }
        if let Some(registry) = self.shared.registry() {
            let registrar: Arc<dyn forebay_memory::Registrar> = registry.clone();
            region.attach(registrar)?;
        }
        Ok(())
    }

    /// Unregister the region's memory. Idempotent.
    ///
    /// The ring of another thread lets go of it before that thread's next batch, or with the thread.
    ///
    /// # Errors
    ///
    /// [`Error::Memory`] for a region that is a parent's.
    pub fn release(&self, region: &forebay_memory::Region) -> Result<(), Error> {
        if let Some(registry) = self.shared.registry() {
            region.detach(&(Arc::clone(registry) as Arc<dyn forebay_memory::Registrar>))?;
        }
        Ok(())
    }

    /// Read what the page cache has of `file` at `offset`, in the time of `preadv2`: a ring takes twice as long for one read,
    /// and has nothing to batch then.
    ///
    /// Returns the bytes read, fewer than there is memory for only at the end of the file;
    /// `None` if not all of it is there, or the file is read around the cache. It does not wait.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], [`Error::Quarantine`].
    pub fn read_cached(
        &self,
        file: &BlockFile,
        offset: u64,
        memory: &Memory,
    ) -> Result<Option<u32>, Error> {
        self.shared.check_open()?;
        // While there is anything in quarantine rings are used, because that is what lets its memory go.
        if file.is_direct() || !memory.is_writable() || self.shared.quarantine.batches() > 0 {
            return Ok(None);
        }
        let read = Transfer::cached(file, offset, memory).and_then(|read| read.read_now());
        if read.is_some() {
            self.shared.operations.fetch_add(1, Ordering::Relaxed);
        }
        Ok(read.map(i32::cast_unsigned))
    }

    /// Carry out a batch on the calling thread; it is done when this returns.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`] if `giving_up` stopped the wait: its keeper then owns the memory.
    /// [`Error::Closed`], [`Error::Quarantine`]: nothing was submitted.
    /// [`Error::System`] if the kernel gives no ring, or completions cannot be waited for.
    pub fn run(&self, batch: Batch, giving_up: &mut dyn GivingUp) -> Result<(), Error> {
        self.shared.check_open()?;
        if batch.count() == 0 {
            return Ok(());
        }
        if self.shared.available.ring {
            local::run(&self.shared, batch, giving_up)
        } else {
            self.threads()?.run(batch, giving_up)
        }
    }

    /// Hand a batch over to the I/O thread, or the fallback's threads; its end comes to `done` under `ticket`.
    ///
    /// A ticket must be unique among all batches in flight on the queue, those of other threads and ports included.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], [`Error::Quarantine`]: nothing was submitted, and `keeper` is dropped.
    /// [`Error::System`] if the kernel gives no ring or no thread.
    pub fn submit(
        &self,
        batch: Batch,
        keeper: Keeper,
        ticket: u64,
        done: &Arc<Completions>,
    ) -> Result<(), Error> {
        self.shared.check_open()?;
        if self.shared.available.ring {
            self.io_thread()?.submit(batch, keeper, ticket, done)
        } else {
            self.threads()?.submit(batch, keeper, ticket, done)
        }
    }

    /// Stop waiting for a submitted batch; its end comes all the same, once the kernel has let go of the memory.
    pub fn detach(&self, ticket: u64) {
        if let Some(io_thread) = self.io_thread.get() {
            io_thread.detach(ticket);
        }
        if let Some(threads) = self.threads.get() {
            threads.detach(ticket);
        }
    }

    /// What an event loop uses: a ring of the calling thread, or with `hand_over` the I/O thread.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`]; [`Error::System`] if the kernel gives no ring or no eventfd.
    pub fn port(&self, hand_over: bool) -> Result<Port, Error> {
        self.shared.check_open()?;
        if hand_over || !self.shared.available.ring {
            Port::handed(self.clone(), &self.shared)
        } else {
            Port::ring(self.clone(), &self.shared)
        }
    }

    /// Refuse further batches, cancel what is in flight, wait until the kernel has let go of its memory. Idempotent.
    ///
    /// Returns the operations that it did not let go of within five seconds; their memory is never used again.
    /// Rings of other threads end with those threads, or when they use the queue again.
    pub fn close(&self) -> u64 {
        self.shared.closed.store(true, Ordering::Release);
        let deadline = close_deadline();
        let mut left = u64::from(local::close(&self.shared, deadline));
        if let Some(io_thread) = self.io_thread.get() {
            left += io_thread.close(deadline);
        }
        if let Some(threads) = self.threads.get() {
            left += threads.close(deadline);
        }
        if let Some(registry) = self.shared.registry() {
            registry.close();
        }
        left
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// Figures at this moment.
    ///
    /// What has ended on rings of the calling thread is taken in for them. Of what was cancelled on another thread's ring
    /// the queue learns when that thread uses it again, or ends.
    pub fn stats(&self) -> Stats {
        if self.shared.quarantine.batches() > 0 {
            local::reap(&self.shared);
        }
        let Shared {
            quarantine,
            enters,
            operations,
            leaked,
            config,
            ..
        } = &*self.shared;
        let registry = self.shared.registry();
        let refused = registry.and_then(|registry| registry.reason());
        Stats {
            enters: enters.load(Ordering::Relaxed),
            operations: operations.load(Ordering::Relaxed),
            quarantined_bytes: quarantine.bytes(),
            quarantined_batches: quarantine.batches(),
            quarantine_bytes_max: config.quarantine_bytes_max,
            registered_bytes: registry.map_or(0, |registry| registry.bytes()),
            unregistered: refused.or_else(|| self.shared.available.unregistered.clone()),
            leaked_operations: leaked.load(Ordering::Relaxed),
        }
    }

    fn threads(&self) -> Result<&Threads, Error> {
        self.threads
            .get_or_try_init(|| Ok(Threads::new(&self.shared)))
    }

    fn io_thread(&self) -> Result<&IoThread, Error> {
        self.io_thread
            .get_or_try_init(|| IoThread::start(&self.shared))
    }
}
