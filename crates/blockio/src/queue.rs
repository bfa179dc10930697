//! A queue: one set of limits, one set of engines, for all threads of a process.
use std::sync::Arc;

use forebay_base::PerProcess;

use crate::batch::Batch;
use crate::completion::{Completions, GivingUp};
use crate::config::Config;
use crate::engines::ring::io_thread::IoThread;
use crate::engines::ring::local;
use crate::engines::ring::probe::Availability;
use crate::engines::threads::Threads;
use crate::error::Error;
use crate::file::BlockFile;
use crate::flight::Keeper;
use crate::shared::{Shared, Stats, close_deadline};
use crate::sys::lent::Memory;
use crate::sys::transfer::Transfer;
use crate::totals;

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
        Ok(Self {
            shared: Arc::new(Shared::new(config)?),
            threads: Arc::default(),
            io_thread: Arc::default(),
        })
    }

    /// What carries out operations, and why.
    pub fn availability(&self) -> &Availability {
        self.shared.availability()
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
        self.check_open()?;
        // While there is anything in quarantine rings are used, because that is what lets its memory go.
        if file.is_direct() || !memory.is_writable() || self.shared.quarantine.batches() > 0 {
            return Ok(None);
        }
        let read = Transfer::cached(file, offset, memory).and_then(|read| read.read_now());
        if read.is_some() {
            self.shared.count_cached_read();
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
        self.check_open()?;
        if batch.count() == 0 {
            return Ok(());
        }
        totals::note(batch.kinds, self.shared.availability().ring);
        if self.shared.availability().ring {
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
        self.check_open()?;
        totals::note(batch.kinds, self.shared.availability().ring);
        if self.shared.availability().ring {
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

    /// Refuse further batches, cancel what is in flight, wait until the kernel has let go of its memory. Idempotent.
    ///
    /// Returns the operations that it did not let go of within five seconds; their memory is never used again.
    /// Rings of other threads end with those threads, or when they use the queue again.
    pub fn close(&self) -> u64 {
        self.shared.close();
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
        self.shared.stats()
    }

    /// What its engines share.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Refuse new work once the queue is closed, or while too much memory is in quarantine.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.is_closed() {
            return Err(Error::Closed);
        }
        self.shared.quarantine.check().or_else(|_| {
            // Only this thread can reap its rings, and otherwise does so with its next batch.
            local::reap(&self.shared);
            self.shared.quarantine.check()
        })
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
