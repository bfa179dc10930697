//! A region: what a caller sees of chunks, allocator and blocks; all of it under one lock and one limit.
//!
//! One lock per region, held for bookkeeping alone: never for a system call on a chunk, nor for a call into other code.
//! Chunks are mapped and unmapped, and [registrars](Registrar) called, without the lock.
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};

use crate::backing::Backed;
use crate::block::{Block, BlockRegion};
use crate::chunk::Unused;
use crate::config::Config;
use crate::error::Error;
use crate::identity::Identity;
use crate::lease::Lease;
use crate::reference::Reference;
use crate::registrar::Registrar;
use crate::shelf::{self, SHELVED_BYTES_MAX, Shelf, ShelfRegion};
use crate::state::State;
use crate::stats::Stats;

/// What blocks share with their region.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) identity: Identity,
    /// Whether shelves may not be taken from, because too much is in quarantine; changed under the lock.
    refusing: AtomicBool,
    state: Mutex<State>,
    /// Signalled when the turn to get a chunk ends, and when the region is closed.
    pub(crate) turns: Condvar,
}

/// Memory that this process owns and others may map for reading.
///
/// Thread-safe. Dropping it closes it; blocks under a lease stay valid.
#[derive(Debug)]
pub struct Region(Arc<Inner>);

impl Region {
    /// Make a region. Nothing is mapped before the first allocation.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a limit below a page, [`Error::Name`] for a name that cannot be one,
    /// [`Error::System`] if the kernel gives no random number.
    pub fn new(config: Config) -> Result<Self, Error> {
        config.check()?;
        let id = random_id().map_err(|source| Error::System {
            arena: config.name.clone(),
            call: "getrandom",
            bytes: 0,
            source,
        })?;
        let inner = |inner: &Weak<Inner>| Inner {
            state: Mutex::new(State::new(config.limit_bytes, inner.clone())),
            identity: Identity::new(config, id),
            refusing: AtomicBool::new(false),
            turns: Condvar::new(),
        };
        Ok(Self(Arc::new_cyclic(inner)))
    }

    /// Allocate `bytes`, at a cache line, or at a page from 64 KiB up. What they hold is undefined.
    ///
    /// Cost: tens of nanoseconds for a size up to 256 KiB that this thread has freed before; else a lock and a search in
    /// constant time; when no free piece fits, a chunk is mapped, and registrars are called for it.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] when the limit leaves no room, [`Error::Quarantine`] when too much may still be written by others,
    /// [`Error::System`] when the kernel refuses a chunk, [`Error::Nested`] for a registrar that would need one,
    /// [`Error::Closed`], [`Error::Forked`].
    pub fn allocate(&self, bytes: usize) -> Result<Lease, Error> {
        let inner = &self.0;
        let bytes = bytes as u64;
        inner.identity.check_owner()?;
        if !inner.refusing.load(Ordering::Relaxed)
            && let Some(block) = shelf::take(&inner.identity, bytes)
        {
            return Ok(Lease::new(block));
        }
        let found = inner.lock_open()?.allocate(&inner.identity, bytes)?;
        let block = match found {
            Some(block) => block,
            None => inner.grow(bytes)?,
        };
        Ok(Lease::new(block))
    }

    /// Take a further lease of the block that `reference` names.
    ///
    /// # Errors
    ///
    /// [`Error::Stale`] if the block was freed, even if another one lies there now; [`Error::Foreign`] for another
    /// region's reference; [`Error::Closed`], [`Error::Forked`].
    pub fn lease(&self, reference: &Reference) -> Result<Lease, Error> {
        let inner = &self.0;
        let (arena, reference) = (inner.identity.name(), *reference);
        let state = inner.lock_open()?;
        if reference.region != inner.identity.id() {
            return Err(Error::Foreign {
                arena: arena.to_owned(),
                region: inner.identity.id(),
                reference,
            });
        }
        let found = state.find(&reference);
        // Dropped after the lock: it may turn out to be the last lease, whose drop takes the lock.
        drop(state);
        match found.map(Lease::new) {
            Some(lease) if lease.reference() == reference => Ok(lease),
            _ => Err(Error::Stale {
                arena: arena.to_owned(),
                reference,
            }),
        }
    }

    /// A descriptor of a chunk for another process, which can map it for reading and nothing else.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if there is no such chunk or no descriptor left; [`Error::Closed`], [`Error::Forked`].
    pub fn share_chunk(&self, chunk: u32) -> Result<OwnedFd, Error> {
        self.0.share_chunk(chunk)
    }

    /// Notify `registrar` of the chunks that exist, and of all that come and go.
    ///
    /// It is kept until the region is closed and the last chunk that it knows is gone, or until it is detached.
    /// Attaching the same one again has no effect.
    ///
    /// # Errors
    ///
    /// [`Error::Registrars`] when there are too many, [`Error::Nested`] from within a registrar,
    /// [`Error::Closed`], [`Error::Forked`].
    pub fn attach(&self, registrar: Arc<dyn Registrar>) -> Result<(), Error> {
        self.0.attach(registrar)
    }

    /// Notify `registrar` of the removal of all chunks, which stay mapped, and let go of it. Idempotent.
    ///
    /// # Errors
    ///
    /// [`Error::Nested`] from within a registrar, [`Error::Forked`].
    pub fn detach(&self, registrar: &Arc<dyn Registrar>) -> Result<(), Error> {
        self.0.detach(registrar)
    }

    /// Unmap the chunks in which nothing is allocated; returns how many bytes that gave back.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], [`Error::Forked`].
    pub fn trim(&self) -> Result<u64, Error> {
        let mut state = self.0.lock_open()?;
        state.collect();
        let gone = state.take_empty();
        drop(state);
        Ok(gone.iter().map(|chunk| chunk.bytes).sum())
    }

    /// Refuse further allocations and leases, and unmap what is not in use. Idempotent.
    ///
    /// Returns how many blocks are still under a lease; each chunk goes with its last one.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`].
    pub fn close(&self) -> Result<u64, Error> {
        let mut state = self.0.lock()?;
        let gone = state.close();
        let blocks = state.live();
        // Each chunk that is left keeps the registrars that it has to notify.
        let registrars = state.registrars.take();
        drop(state);
        self.0.turns.notify_all();
        drop((gone, registrars));
        Ok(blocks)
    }

    /// Figures of this moment, for a closed region too.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`].
    pub fn stats(&self) -> Result<Stats, Error> {
        Ok(self.0.lock()?.stats())
    }

    /// What the last chunk was made of; `None` before there is one.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`].
    pub fn backed(&self) -> Result<Option<Backed>, Error> {
        Ok(self.0.lock()?.backed.clone())
    }

    /// Whether it was closed.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`].
    pub fn is_closed(&self) -> Result<bool, Error> {
        Ok(self.0.lock()?.closed)
    }

    /// The name that messages use.
    pub fn name(&self) -> &str {
        self.0.identity.name()
    }

    /// The limit `arena_bytes_max`.
    pub fn limit_bytes(&self) -> u64 {
        self.0.identity.config().limit_bytes
    }

    /// The number that references carry.
    pub fn id(&self) -> u64 {
        self.0.identity.id()
    }
}

#[cfg(test)]
impl Region {
    /// What blocks share with it, without keeping it.
    pub(crate) fn watch(&self) -> Weak<Inner> {
        Arc::downgrade(&self.0)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // Forked or poisoned: nothing to do, the memory goes with the process.
        let _ = self.close();
    }
}

impl BlockRegion for Inner {
    fn release(self: Arc<Self>, block: Arc<Block>) -> Unused {
        self.make_shelf(block.bytes());
        let Some(block) = shelf::put(block) else {
            return Unused::new(Vec::new());
        };
        let gone = match self.lock() {
            Ok(mut state) => state.release(&self.identity, block),
            // After a panic the block is kept rather than handed out twice.
            Err(_) => Vec::new(),
        };
        Unused::new(gone)
    }

    fn share_chunk(&self, chunk: u32) -> Result<OwnedFd, Error> {
        let state = self.lock_open()?;
        let found = state.chunks.iter().find(|at| at.id == chunk);
        let found = found.map(|found| (found.bytes, found.descriptor()));
        drop(state);
        let (bytes, shared) = match found {
            Some((bytes, descriptor)) => (bytes, descriptor.try_clone()),
            None => (0, Err(io::ErrorKind::NotFound.into())),
        };
        shared.map_err(|source| Error::System {
            arena: self.identity.name().to_owned(),
            call: "dup",
            bytes,
            source,
        })
    }

    fn enter_quarantine(&self, reference: Reference) {
        // Forked or poisoned: the guard keeps the block all the same.
        if let Ok(mut state) = self.lock() {
            state.enter_quarantine(reference);
            self.note_quarantine(&state);
        }
    }

    fn leave_quarantine(&self, reference: Reference) {
        if let Ok(mut state) = self.lock() {
            state.leave_quarantine(reference);
            self.note_quarantine(&state);
        }
    }

    fn forked(&self) -> Error {
        self.identity.forked()
    }
}

impl ShelfRegion for Inner {
    fn retire_shelf(&self, theirs: &Arc<Shelf>) {
        // A forked child leaves it as it is.
        let Ok(mut state) = self.lock() else { return };
        let gone = state.retire_shelf(&self.identity, theirs);
        drop(state);
        drop(gone);
    }
}

impl Inner {
    /// Make a shelf for this thread, if it has none and blocks of that size may lie on it.
    fn make_shelf(self: &Arc<Self>, bytes: u64) {
        let (id, bytes_max) = (self.identity.id(), self.identity.config().shelf_bytes_max);
        if bytes > SHELVED_BYTES_MAX.min(bytes_max) || shelf::with_own(id, |_| ()).is_some() {
            return;
        }
        let made = Arc::new(Shelf::new(bytes_max));
        let kept = shelf::keep(id, Arc::<Self>::downgrade(self), &made);
        // A closed one is kept too, so that the next free does not try again.
        if kept && !self.lock().is_ok_and(|mut state| state.enlist(&made)) {
            made.close();
        }
    }

    fn note_quarantine(&self, state: &State) {
        let refusing = state.is_quarantine_full(&self.identity);
        self.refusing.store(refusing, Ordering::Relaxed);
    }

    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, State>, Error> {
        self.identity.check_owner()?;
        self.state.lock().map_err(|_| self.poisoned())
    }

    pub(crate) fn lock_open(&self) -> Result<MutexGuard<'_, State>, Error> {
        let state = self.lock()?;
        self.check_open(&state)?;
        Ok(state)
    }

    pub(crate) fn check_open(&self, state: &State) -> Result<(), Error> {
        if state.closed {
            return Err(Error::Closed {
                arena: self.identity.name().to_owned(),
            });
        }
        Ok(())
    }

    pub(crate) fn poisoned(&self) -> Error {
        Error::Poisoned {
            arena: self.identity.name().to_owned(),
        }
    }
}

fn random_id() -> io::Result<u64> {
    let mut id = [0_u8; 8];
    let count = rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())?;
    // Source: getrandom(2): requests of up to 256 bytes are never cut short.
    debug_assert_eq!(count, id.len());
    Ok(u64::from_ne_bytes(id))
}
