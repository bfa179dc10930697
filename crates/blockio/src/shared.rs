//! What the threads and engines of a queue share: its limits, what is registered, its figures, whether it is closed.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use forebay_base::process;

use crate::config::Config;
use crate::engines::ring::driver::{Counts, Driver};
use crate::engines::ring::probe::{self, Availability};
use crate::engines::ring::registry::Registry;
use crate::error::Error;
use crate::file::FileHolder;
use crate::quarantine::Quarantine;
use crate::totals;

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
    /// Check the limits, and find out what the kernel allows.
    pub(crate) fn new(config: Config) -> Result<Self, Error> {
        config.check()?;
        let available = probe::chosen(config.engine)?;
        let registry = if available.ring && available.unregistered.is_none() {
            Registry::new().ok().map(Arc::new)
        } else {
            None
        };
        let quarantine = Arc::new(Quarantine::new(config.quarantine_bytes_max));
        Ok(Self {
            config,
            quarantine,
            available,
            registry,
            epoch: process::epoch(),
            closed: AtomicBool::new(false),
            enters: AtomicU64::new(0),
            operations: AtomicU64::new(0),
            leaked: AtomicU64::new(0),
        })
    }

    /// What carries out operations, and why.
    pub(crate) fn availability(&self) -> &Availability {
        &self.available
    }

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
    pub(crate) fn registry(&self) -> Option<&Arc<Registry>> {
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

    /// Refuse new work from now on.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    pub(crate) fn count(&self, done: Counts) {
        self.enters.fetch_add(done.enters, Ordering::Relaxed);
        self.operations
            .fetch_add(done.operations, Ordering::Relaxed);
    }

    /// One operation was carried out without an engine.
    pub(crate) fn count_cached_read(&self) {
        self.operations.fetch_add(1, Ordering::Relaxed);
        totals::note([1, 0, 0, 0], self.available.ring);
    }

    /// The kernel did not let go of the memory of so many operations; it is lost.
    pub(crate) fn note_leak(&self, operations: u32) {
        self.leaked
            .fetch_add(u64::from(operations), Ordering::Relaxed);
    }

    /// Figures at this moment.
    pub(crate) fn stats(&self) -> Stats {
        let Shared {
            quarantine,
            enters,
            operations,
            leaked,
            config,
            ..
        } = self;
        let registry = self.registry();
        let refused = registry.and_then(|registry| registry.reason());
        Stats {
            enters: enters.load(Ordering::Relaxed),
            operations: operations.load(Ordering::Relaxed),
            quarantined_bytes: quarantine.bytes(),
            quarantined_batches: quarantine.batches(),
            quarantine_bytes_max: config.quarantine_bytes_max,
            registered_bytes: registry.map_or(0, |registry| registry.bytes()),
            unregistered: refused.or_else(|| self.available.unregistered.clone()),
            leaked_operations: leaked.load(Ordering::Relaxed),
        }
    }
}
