//! A client's connection: driven by whoever waits for it, one at a time.
//!
//! The lock is held for one bounded turn, never across a wait. Lock order: a link's, then a batch's, then a port's.
mod fabric;
mod inner;
mod lead;
mod shm;
mod verbs;

use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use forebay_transport::Wire;
use rustix::event::{EventfdFlags, eventfd};

use super::batch::Batch;
use super::channel::Channel;
use super::error::StreamError;
use super::port::{Core, Port};
use crate::requester::{Limits, Pull, Push};
pub use fabric::{Fabric, Submission};
use inner::{Inner, Lead};
use shm::SharedMemory;
pub use verbs::VerbsCounters;

/// One of a batch's operations.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// Rows to get.
    Pull(Pull),
    /// Rows to set, or to add to.
    Push(Push),
}

/// How a link is made.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What errors call the server: its address.
    pub peer: String,
    /// What the server granted, and our own.
    pub limits: Limits,
}

/// Bytes that are copied at once for a port, whose thread has other things to do; more comes by the stream, in turns.
const TURN_BYTES_MAX: u64 = 2 << 20;

/// What a wait is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// All of the batch has ended.
    All,
    /// Something of it has ended that was not taken yet, or all has.
    More,
}

/// What a link has counted and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Pulls and pushes that are with the server.
    pub outstanding: usize,
    /// Those that wait for a slot.
    pub waiting: usize,
    /// To the server.
    pub sent_bytes: u64,
    /// From it.
    pub received_bytes: u64,
}

/// A connection to one server; `M` keeps the memory of a batch. Every method may be called from any thread.
pub struct Link<M> {
    inner: Mutex<Inner<M>>,
    peer: Arc<str>,
    /// Wakes the thread that leads.
    wake: OwnedFd,
    shm: SharedMemory,
    /// As [`Inner::has_verbs`].
    has_verbs: Arc<AtomicBool>,
    own: Weak<Self>,
    epoch: u64,
}

impl<M: Send + Sync + 'static> Link<M> {
    /// Go on with a stream on which the server has said welcome.
    ///
    /// # Errors
    ///
    /// [`StreamError::System`] where no descriptor is left; [`StreamError::Transport`] for shared memory; [`StreamError::Tensor`] for limits
    /// that cannot be.
    pub fn new(wire: Wire, settings: Settings) -> Result<Arc<Self>, StreamError> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = wake.map_err(StreamError::system("eventfd"))?;
        let peer: Arc<str> = settings.peer.into();
        let channel = Channel::new(wire)?;
        let inner = Inner::new(channel, settings.limits, Arc::clone(&peer));
        let inner = inner.map_err(|error| StreamError::Tensor {
            peer: Arc::clone(&peer),
            error,
        })?;
        let has_verbs = Arc::clone(&inner.has_verbs);
        Ok(Arc::new_cyclic(|own| Self {
            inner: Mutex::new(inner),
            peer,
            wake,
            shm: SharedMemory::default(),
            has_verbs,
            own: Weak::clone(own),
            epoch: forebay_memory::epoch(),
        }))
    }

    /// What errors call the server.
    pub fn peer(&self) -> &Arc<str> {
        &self.peer
    }

    /// Begin what is asked for, as operations 0 and on of the batch, without waiting. What is refused has ended then.
    ///
    /// # Errors
    ///
    /// [`StreamError::Forked`]; nothing has begun.
    ///
    /// # Panics
    ///
    /// Where the batch was made for another number of them.
    pub fn begin(
        &self,
        batch: &Arc<Batch<M>>,
        works: impl IntoIterator<Item = impl Into<Submission>>,
        timeout: Option<Duration>,
    ) -> Result<(), StreamError> {
        self.submit(batch, works, (timeout, None), u64::MAX)
    }

    /// The same for a batch of which a port hears under the number `ticket`: at each end, or at the last one.
    ///
    /// That port drives it too, unless `driver` is another: for whoever does other things between two ends.
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

    /// Answer what can be from memory, up to `bytes_max`, and ask for the rest.
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
        assert_eq!(count, batch.len(), "a batch of another size");
        Ok(())
    }

    /// A port has a batch more: known before any of it can end, at whose last end it is counted out.
    fn count_batch(&self, inner: &mut Inner<M>, batch: &Batch<M>, port: Option<&Port<M>>) {
        if let Some(port) = port
            && !batch.is_done()
        {
            inner.add_batch(&self.own, &port.core);
        }
    }

    /// Ask what names mean, as the one operation of a batch; a port hears of it under a number where there is one.
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

    /// Give up what of the batch has not ended: it ends with [`StreamError::Canceled`], and its memory is kept until nobody
    /// moves bytes there. Idempotent.
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

    /// Look at the socket without waiting, or beside shared memory at whether the owner is there; whether the link may be
    /// used.
    pub fn probe(&self) -> bool {
        if self.is_owner_alive() {
            return true;
        }
        let now = Instant::now();
        let Ok(mut inner) = self.lock() else {
            return false;
        };
        // A thread that leads sleeps on the socket: it sees its end itself, and would not see what is received here.
        if !matches!(inner.lead, Lead::Thread(_)) {
            inner.turn_stream(now);
            inner.update_leader();
        }
        inner.is_open()
    }

    /// Whether it was not closed and is not known to be broken.
    pub fn is_open(&self) -> bool {
        self.lock().is_ok_and(|inner| inner.is_open())
    }

    /// What was counted.
    pub fn counters(&self) -> LinkCounters {
        self.lock()
            .map(|inner| inner.counters())
            .unwrap_or_default()
    }

    /// Close now: what is outstanding ends with [`StreamError::Closed`]. Idempotent.
    ///
    /// In a forked child only the descriptor is closed; the server notices nothing.
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
        self.wake_leader();
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

    fn wake_leader(&self) {
        _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes()); // a full counter is readable too
    }

    /// A port's turn of this link, if it leads it.
    pub(super) fn turn_of(&self, port: &Arc<Core<M>>, now: Instant) {
        if let Ok(mut inner) = self.lock()
            && inner.is_led_by(port)
        {
            inner.turn(now);
            inner.update_leader();
        }
    }
}

impl<M> Drop for Link<M> {
    fn drop(&mut self) {
        // Nobody waits for it any more, so nobody has to be told.
        let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
        if self.epoch == forebay_memory::epoch() {
            inner.fence();
        }
    }
}
