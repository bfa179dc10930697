//! A region: what a caller sees of chunks, allocator and blocks; all of it under one lock and one limit.
//!
//! One lock per region, held for bookkeeping alone: never for a system call on a chunk, nor for a call into other code.
//! Chunks are mapped and unmapped, and [registrars](Registrar) called, without the lock.
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::backing::Backed;
use crate::chunk::Chunk;
use crate::config::Config;
use crate::error::Error;
use crate::lease::{Block, Lease};
use crate::reference::Reference;
use crate::registrar::Registrar;
use crate::shelf::{self, SHELVED_BYTES_MAX, Shelf};
use crate::state::State;
use crate::stats::Stats;
use forebay_base::process;

/// What blocks share with their region.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) config: Config,
    pub(crate) id: u64,
    /// The next allocation's number, from 1.
    pub(crate) generations: AtomicU64,
    /// Whether shelves may not be taken from, because too much is in quarantine; changed under the lock.
    refusing: AtomicBool,
    /// The process that made it, and its epoch.
    owner: u32,
    epoch: u64,
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
        let state = State::new(config.limit_bytes);
        let (owner, epoch) = (process::id(), process::epoch());
        Ok(Self(Arc::new(Inner {
            config,
            id,
            generations: AtomicU64::new(1),
            refusing: AtomicBool::new(false),
            owner,
            epoch,
            state: Mutex::new(state),
            turns: Condvar::new(),
        })))
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
        inner.check_owner()?;
        if !inner.refusing.load(Ordering::Relaxed)
            && let Some(block) = shelf::take(inner, bytes)
        {
            return Ok(Lease::new(block));
        }
        let found = inner.lock_open()?.allocate(inner, bytes)?;
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
        let (arena, reference) = (&inner.config.name, *reference);
        let state = inner.lock_open()?;
        if reference.region != inner.id {
            return Err(Error::Foreign {
                arena: arena.clone(),
                region: inner.id,
                reference,
            });
        }
        let found = state.find(&reference);
        // Dropped after the lock: it may turn out to be the last lease, whose drop takes the lock.
        drop(state);
        match found.map(Lease::new) {
            Some(lease) if lease.reference() == reference => Ok(lease),
            _ => Err(Error::Stale {
                arena: arena.clone(),
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
        &self.0.config.name
    }

    /// The limit `arena_bytes_max`.
    pub fn limit_bytes(&self) -> u64 {
        self.0.config.limit_bytes
    }

    /// The number that references carry.
    pub fn id(&self) -> u64 {
        self.0.id
    }
}

#[cfg(test)]
impl Region {
    /// What blocks share with it, without keeping it.
    pub(crate) fn watch(&self) -> std::sync::Weak<Inner> {
        Arc::downgrade(&self.0)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // Forked or poisoned: nothing to do, the memory goes with the process.
        let _ = self.close();
    }
}

impl Inner {
    /// Free a block without holders that found no room on a shelf; returns what is to be unmapped.
    pub(crate) fn release(block: Arc<Block>) -> Vec<Chunk> {
        let inner = Arc::clone(block.region());
        inner.make_shelf(block.bytes());
        let Some(block) = shelf::put(block) else {
            return Vec::new();
        };
        match inner.lock() {
            Ok(mut state) => state.release(&inner, block),
            // After a panic the block is kept rather than handed out twice.
            Err(_) => Vec::new(),
        }
    }

    /// Make a shelf for this thread, if it has none and blocks of that size may lie on it.
    fn make_shelf(self: &Arc<Self>, bytes: u64) {
        let bytes_max = self.config.shelf_bytes_max;
        if bytes > SHELVED_BYTES_MAX.min(bytes_max) || shelf::with_own(self.id, |_| ()).is_some() {
            return;
        }
        let made = Arc::new(Shelf::new(bytes_max));
        // A closed one is kept too, so that the next free does not try again.
        if shelf::keep(self, &made) && !self.lock().is_ok_and(|mut state| state.enlist(&made)) {
            made.close();
        }
    }

    /// Take back the shelf of a thread that ends.
    pub(crate) fn retire_shelf(&self, theirs: &Arc<Shelf>) {
        // A forked child leaves it as it is.
        let Ok(mut state) = self.lock() else { return };
        let gone = state.retire_shelf(self, theirs);
        drop(state);
        drop(gone);
    }

    pub(crate) fn enter_quarantine(&self, reference: Reference) {
        // Forked or poisoned: the guard keeps the block all the same.
        if let Ok(mut state) = self.lock() {
            state.enter_quarantine(reference);
            self.note_quarantine(&state);
        }
    }

    pub(crate) fn leave_quarantine(&self, reference: Reference) {
        if let Ok(mut state) = self.lock() {
            state.leave_quarantine(reference);
            self.note_quarantine(&state);
        }
    }

    fn note_quarantine(&self, state: &State) {
        let refusing = state.is_quarantine_full(self);
        self.refusing.store(refusing, Ordering::Relaxed);
    }

    pub(crate) fn share_chunk(&self, chunk: u32) -> Result<OwnedFd, Error> {
        let state = self.lock_open()?;
        let found = state.chunks.iter().find(|at| at.id == chunk);
        let found = found.map(|found| (found.bytes, found.descriptor()));
        drop(state);
        let (bytes, shared) = match found {
            Some((bytes, descriptor)) => (bytes, descriptor.try_clone()),
            None => (0, Err(io::ErrorKind::NotFound.into())),
        };
        shared.map_err(|source| Error::System {
            arena: self.config.name.clone(),
            call: "dup",
            bytes,
            source,
        })
    }

    /// Whether this is the process that made it, not a forked child.
    pub(crate) fn is_owner(&self) -> bool {
        self.epoch == process::epoch()
    }

    pub(crate) fn check_owner(&self) -> Result<(), Error> {
        if self.is_owner() {
            return Ok(());
        }
        Err(Error::Forked {
            arena: self.config.name.clone(),
            owner: self.owner,
            child: process::id(),
        })
    }

    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, State>, Error> {
        self.check_owner()?;
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
                arena: self.config.name.clone(),
            });
        }
        Ok(())
    }

    pub(crate) fn poisoned(&self) -> Error {
        Error::Poisoned {
            arena: self.config.name.clone(),
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
