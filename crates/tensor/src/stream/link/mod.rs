//! A client's connection, driven by the threads and ports that wait for it, one at a time (see `drivers`).
//!
//! The lock is held for one bounded turn, never across a wait. Lock order: a link's, then a batch's, then a port's.
mod drivers;
mod fabric;
mod inner;
mod lead;
mod shm;
mod verbs;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use forebay_base::wakeup::Wakeup;
use forebay_memory::Lease;
use forebay_transport::stream::Wire;

use super::batch::Batch;
use super::channel::Channel;
use super::error::StreamError;
use super::port::Port;
use crate::fabric::RequesterEndpoint;
use crate::requester::{Limits, Pull, Push};
use inner::Inner;
use shm::SharedMemory;
pub use verbs::VerbsCounters;
use verbs::VerbsPulls;

/// One operation of a batch.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// Pull rows.
    Pull(Pull),
    /// Set rows, or add to them.
    Push(Push),
}

/// One operation of a batch, with the arena block that a pull goes to, if there is one: only such a pull can use verbs.
/// A pull over verbs reports version 0.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The operation.
    pub work: Work,
    /// The block, of a region that the fabric knows.
    pub block: Option<Lease>,
}

impl From<Work> for Submission {
    fn from(work: Work) -> Self {
        Self { work, block: None }
    }
}

/// A fabric that a link pulls over, beside its stream.
pub struct Fabric {
    /// The endpoint, connected to the server's.
    pub endpoint: Box<dyn RequesterEndpoint>,
    /// The stream on which the endpoint was introduced.
    pub lifeline: Wire,
    /// How long the server may be silent.
    pub liveness: Duration,
    /// Whether the link breaks if the fabric is lost; otherwise the stream takes over.
    pub is_needed: bool,
}

/// Settings of a link.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The server's name in error messages: its address.
    pub peer: String,
    /// What the server granted, and local limits.
    pub limits: Limits,
}

/// Bytes copied from shared memory at once for a port, whose thread may be an event loop's; the stream carries the rest
/// in bounded turns.
const TURN_BYTES_MAX: u64 = 2 << 20;

/// What to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// All operations have ended.
    All,
    /// An operation has ended that was not taken yet, or all have.
    More,
}

/// Counters of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Pulls and pushes in flight.
    pub outstanding: usize,
    /// Pulls and pushes that wait for a slot.
    pub waiting: usize,
    /// Bytes sent to the server.
    pub sent_bytes: u64,
    /// Bytes received from it.
    pub received_bytes: u64,
}

/// A connection to one server; `M` keeps the memory of a batch. Every method may be called from any thread.
pub struct Link<M> {
    inner: Mutex<Inner<M>>,
    peer: Arc<str>,
    /// Wakes the leading thread.
    wakeup: Wakeup,
    shm: SharedMemory,
    /// As `VerbsState::presence`.
    has_verbs: Arc<AtomicBool>,
    own: Weak<Self>,
    epoch: u64,
}

impl<M: Send + Sync + 'static> Link<M> {
    /// Make a link of a stream on which the server has sent its welcome.
    ///
    /// # Errors
    ///
    /// [`StreamError::System`] if no descriptor is left; [`StreamError::Transport`] for shared memory;
    /// [`StreamError::Tensor`] for invalid limits.
    pub fn new(wire: Wire, settings: Settings) -> Result<Arc<Self>, StreamError> {
        let wakeup = Wakeup::new().map_err(|error| StreamError::eventfd(&error))?;
        let peer: Arc<str> = settings.peer.into();
        let channel = Channel::new(wire)?;
        let inner = Inner::new(channel, settings.limits, Arc::clone(&peer));
        let inner = inner.map_err(|error| StreamError::Tensor {
            peer: Arc::clone(&peer),
            error,
        })?;
        let has_verbs = inner.verbs.presence();
        Ok(Arc::new_cyclic(|own| Self {
            inner: Mutex::new(inner),
            peer,
            wakeup,
            shm: SharedMemory::default(),
            has_verbs,
            own: Weak::clone(own),
            epoch: forebay_memory::epoch(),
        }))
    }

    /// The server's name in error messages.
    pub fn peer(&self) -> &Arc<str> {
        &self.peer
    }

    /// Begin the operations of a batch, without waiting. Refused ones have ended when this returns.
    ///
    /// # Errors
    ///
    /// [`StreamError::Forked`]; nothing was begun.
    ///
    /// # Panics
    ///
    /// If the batch was made for another number of operations.
    pub fn begin(
        &self,
        batch: &Arc<Batch<M>>,
        works: impl IntoIterator<Item = impl Into<Submission>>,
        timeout: Option<Duration>,
    ) -> Result<(), StreamError> {
        self.submit(batch, works, (timeout, None), u64::MAX)
    }

    /// The same for a batch that notifies a port by `ticket`: at each end, or at the last one.
    ///
    /// That port also drives it, unless there is a `driver`: for a caller that does not turn its port between two ends.
    ///
    /// # Errors
    ///
    /// As [`Self::begin`].
    ///
    /// # Panics
    ///
    /// As [`Self::begin`].
    pub fn start(
        &self,
        (port, ticket, each): (&Port<M>, u64, bool),
        lent: (M, usize),
        works: impl IntoIterator<Item = impl Into<Submission>>,
        (timeout, driver): (Option<Duration>, Option<&Port<M>>),
    ) -> Result<Arc<Batch<M>>, StreamError> {
        let driver = driver.unwrap_or(port);
        let observer = (&port.core.ready, ticket);
        let batch = Batch::with_port(lent, observer, &driver.core.ready, each);
        self.submit(&batch, works, (timeout, Some(driver)), TURN_BYTES_MAX)?;
        Ok(batch)
    }

    /// Answer from shared memory what can be, up to `bytes_max`, and submit the rest.
    fn submit(
        &self,
        batch: &Arc<Batch<M>>,
        works: impl IntoIterator<Item = impl Into<Submission>>,
        (timeout, port): (Option<Duration>, Option<&Port<M>>),
        bytes_max: u64,
    ) -> Result<(), StreamError> {
        let mut count = 0;
        let works = works.into_iter().map(Into::into);
        let numbered = (0u32..).zip(works).inspect(|_| count += 1);
        if let Some(owner_memory) = self.owner_memory() {
            let remaining = shm::pull_from_memory(&owner_memory.reader, batch, numbered, bytes_max);
            if !remaining.is_empty() {
                let mut inner = self.lock()?;
                self.count_batch(&mut inner, batch, port);
                inner.submit(batch, remaining);
                self.send_by(inner, batch, timeout);
            }
        } else {
            let mut inner = self.lock()?;
            self.count_batch(&mut inner, batch, port);
            inner.submit(batch, numbered);
            self.send_by(inner, batch, timeout);
        }
        assert_eq!(
            count,
            batch.len(),
            "the batch has another number of operations"
        );
        Ok(())
    }

    /// Count a batch for its port. Must precede the first end: the last one decrements the count.
    fn count_batch(&self, inner: &mut Inner<M>, batch: &Batch<M>, port: Option<&Port<M>>) {
        if let Some(port) = port
            && !batch.is_done()
        {
            let (drivers, interest) = inner.drivers();
            drivers.add_batch(&self.own, &port.core, &interest);
        }
    }

    /// Look names up, as the only operation of a batch, which notifies `port` by its ticket.
    ///
    /// # Errors
    ///
    /// As [`Self::begin`].
    pub fn look_up(
        &self,
        memory: M,
        names: &[&str],
        timeout: Option<Duration>,
        port: Option<(&Port<M>, u64)>,
    ) -> Result<Arc<Batch<M>>, StreamError> {
        let batch = match port {
            None => Batch::new(memory, 1),
            Some((port, ticket)) => {
                let ready = &port.core.ready;
                Batch::with_port((memory, 1), (ready, ticket), ready, false)
            }
        };
        let mut inner = self.lock()?;
        self.count_batch(&mut inner, &batch, port.map(|(port, _)| port));
        inner.submit_names(&batch, names);
        self.send_by(inner, &batch, timeout);
        Ok(batch)
    }

    /// Cancel the unfinished operations of a batch: they end with [`StreamError::Canceled`], and their memory is kept
    /// while bytes may be moved there. Idempotent.
    pub fn cancel(&self, batch: &Arc<Batch<M>>) {
        if let Ok(mut inner) = self.lock() {
            inner.give_up(
                batch,
                &StreamError::Canceled {
                    what: Arc::clone(&self.peer),
                },
            );
            self.send(inner);
        }
    }

    /// Check the socket without waiting, or, with shared memory, that the owner is alive; returns whether the link is
    /// usable.
    pub fn probe(&self) -> bool {
        if self.is_owner_alive() {
            return true;
        }
        let now = Instant::now();
        let Ok(mut inner) = self.lock() else {
            return false;
        };
        // A leading thread sleeps on the socket: it notices the end itself, and would sleep on if bytes were received
        // here.
        if !inner.drivers.has_leading_thread() {
            inner.turn_stream(now);
            inner.update_leader();
        }
        inner.is_open()
    }

    /// Whether the link is neither closed nor known to be broken.
    pub fn is_open(&self) -> bool {
        self.lock().is_ok_and(|inner| inner.is_open())
    }

    /// Its counters.
    pub fn counters(&self) -> LinkCounters {
        self.lock()
            .map(|inner| inner.counters())
            .unwrap_or_default()
    }

    /// Pull over a fabric from now on, where possible.
    ///
    /// # Errors
    ///
    /// [`StreamError::Forked`], [`StreamError::System`].
    pub fn attach_fabric(&self, fabric: Fabric) -> Result<(), StreamError> {
        let Fabric {
            endpoint,
            lifeline,
            liveness,
            is_needed,
        } = fabric;
        let socket = Arc::clone(lifeline.socket());
        let mut inner = self.lock()?;
        if inner.is_open() {
            let verbs = VerbsPulls::new(endpoint, socket, liveness, is_needed);
            let verbs = verbs.map_err(StreamError::system("a descriptor"))?;
            inner.verbs.attach(verbs);
            inner.turn_verbs(Instant::now()); // arms the fabric's descriptor
        }
        Ok(())
    }

    /// Counters of the fabric; the reason once it was lost; `None` if there was none.
    pub fn verbs_counters(&self) -> Option<Result<VerbsCounters, String>> {
        self.lock().ok()?.verbs.report()
    }

    /// Whether pulls use a fabric. It takes no lock, so it may be called under one such as Python's GIL.
    pub fn has_verbs(&self) -> bool {
        self.has_verbs.load(Ordering::Acquire)
    }

    /// Release the blocks that the endpoint keeps for the next pull: the arena is full. Waits for the device.
    pub fn release_blocks(&self) {
        let Ok(mut inner) = self.lock() else { return };
        if let Some(verbs) = inner.verbs.pulls_mut()
            && let Err(error) = verbs.release_blocks()
        {
            inner.lose_verbs(&error);
        }
        let now = Instant::now();
        inner.turn_verbs(now);
        inner.update_leader();
    }

    /// Close now: outstanding operations end with [`StreamError::Closed`]. Idempotent.
    ///
    /// In a forked child only the descriptor is closed; the parent's connection stays open.
    pub fn close(&self) {
        if self.epoch != forebay_memory::epoch() {
            if let Ok(mut inner) = self.inner.try_lock() {
                inner.close_descriptor();
            }
            return;
        }
        self.shm.close();
        let mut inner = self.lock_any();
        inner.close();
        inner.update_leader();
        self.wakeup.raise();
    }

    fn lock(&self) -> Result<MutexGuard<'_, Inner<M>>, StreamError> {
        if self.epoch == forebay_memory::epoch() {
            return Ok(self.lock_any());
        }
        Err(StreamError::Forked {
            what: Arc::clone(&self.peer),
        })
    }

    fn lock_any(&self) -> MutexGuard<'_, Inner<M>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M> Drop for Link<M> {
    fn drop(&mut self) {
        // No thread or port refers to it any more, so there is nothing to notify.
        let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
        if self.epoch == forebay_memory::epoch() {
            inner.fence();
        }
    }
}
