//! A chunk's memory, and the registrars that know it.
//!
//! Each block owns a share of it, and the region one for as long as it has the chunk.
//! The drop of the last share, on any thread and with no lock held, first notifies the registrars, then unmaps.
//! So a registrar never acts on an address that means something else by then.
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::registrar::{ChunkMemory, Registrar, Registrars, call_out};
use crate::sys::Mapping;
use forebay_base::process;

#[derive(Debug)]
pub(crate) struct ChunkMapping {
    region: u64,
    chunk: u32,
    /// Notified of the end.
    registrars: Mutex<Registrars>,
    mapping: Mapping,
    epoch: u64,
}

impl ChunkMapping {
    /// Of a fresh mapping, which no registrar knows yet.
    pub(crate) fn new(region: u64, chunk: u32, mapping: Mapping) -> Self {
        Self {
            region,
            chunk,
            registrars: Mutex::new(Registrars::new()),
            mapping,
            epoch: process::epoch(),
        }
    }

    /// Number of the region, as in references.
    pub(crate) fn region(&self) -> u64 {
        self.region
    }

    /// Whether this is the process that mapped it, not a forked child.
    pub(crate) fn is_owner(&self) -> bool {
        self.epoch == process::epoch()
    }

    /// The address of the byte at `offset`, with room for `length` bytes behind it.
    pub(crate) fn at(&self, offset: usize, length: usize) -> NonNull<u8> {
        self.mapping.at(offset, length)
    }

    /// Notify a registrar of this chunk, and keep it, to notify it of the end.
    pub(crate) fn announce(&self, registrar: &Arc<dyn Registrar>) {
        // Kept first: a registrar that panics halfway may have made the chunk known, and must be notified of the end.
        self.registrars().add(Arc::clone(registrar));
        call_out(|| registrar.added(&self.memory()));
    }

    /// Notify a registrar that this chunk is withdrawn from it.
    pub(crate) fn withdraw(&self, registrar: &Arc<dyn Registrar>) {
        let removed = self.registrars().remove(registrar);
        if let Some(registrar) = removed {
            call_out(|| registrar.removed(&self.memory()));
        }
    }

    fn memory(&self) -> ChunkMemory {
        ChunkMemory {
            region: self.region,
            chunk: self.chunk,
            start: self.at(0, self.mapping.len()),
            bytes: self.mapping.len(),
        }
    }

    fn registrars(&self) -> MutexGuard<'_, Registrars> {
        // Held for a push or a removal; there is nothing half done.
        self.registrars
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ChunkMapping {
    fn drop(&mut self) {
        let memory = self.memory();
        let registrars = self
            .registrars
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        for registrar in registrars.take() {
            call_out(move || registrar.removed(&memory));
        }
        // Where something marked the parent's memory as not to be inherited (`MADV_DONTFORK`, as libibverbs can),
        // these addresses may be another mapping's in a child: it leaves them alone, and they go with it.
        if !self.is_owner() {
            self.mapping.forget();
        }
    }
}

/// Tells whether a chunk is still mapped by its owner.
#[derive(Clone, Debug)]
pub struct ChunkMark(Weak<ChunkMapping>);

impl ChunkMark {
    pub(crate) fn of(mapping: &Arc<ChunkMapping>) -> Self {
        Self(Arc::downgrade(mapping))
    }

    /// Whether its region has given it up; nothing will ever lie in it again.
    pub fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }
}
