//! The ground that blocks stand on: a chunk's memory, with those who were told of it.
//!
//! Each block owns a share of it, and the region one for as long as it has the chunk.
//! Whoever drops the last share, on any thread and with no lock held, first tells the end of it, then unmaps it.
//! So nobody learns of an address after it means something else.
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::registrar::{ChunkMemory, Registrar, Registrars, call_out};
use crate::sys::Mapping;
use forebay_base::process;

#[derive(Debug)]
pub(crate) struct Ground {
    region: u64,
    chunk: u32,
    /// Who is to be told of the end.
    told: Mutex<Registrars>,
    mapping: Mapping,
    epoch: u64,
}

impl Ground {
    /// Make it of a mapping that nobody knows yet.
    pub(crate) fn new(region: u64, chunk: u32, mapping: Mapping) -> Self {
        Self {
            region,
            chunk,
            told: Mutex::new(Registrars::new()),
            mapping,
            epoch: process::epoch(),
        }
    }

    /// The address of the byte at `offset`, with room for `length` bytes behind it.
    pub(crate) fn at(&self, offset: usize, length: usize) -> NonNull<u8> {
        self.mapping.at(offset, length)
    }

    /// Tell a registrar of this chunk, and keep it to be told of the end.
    pub(crate) fn tell(&self, registrar: &Arc<dyn Registrar>) {
        // Kept first: who panics halfway through may have made the chunk known, and must hear of the end.
        self.told().add(Arc::clone(registrar));
        call_out(|| registrar.added(&self.memory()));
    }

    /// Tell a registrar that this chunk is no longer its business.
    pub(crate) fn tell_end(&self, registrar: &Arc<dyn Registrar>) {
        let told = self.told().remove(registrar);
        if let Some(registrar) = told {
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

    fn told(&self) -> MutexGuard<'_, Registrars> {
        // Held for a push or a removal; there is nothing half done.
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let memory = self.memory();
        let told = self.told.get_mut().unwrap_or_else(PoisonError::into_inner);
        for registrar in told.take() {
            call_out(move || registrar.removed(&memory));
        }
        // Where something marked the parent's memory as not to be inherited (`MADV_DONTFORK`, as libibverbs can),
        // these addresses may be another mapping's in a child: it leaves them alone, and they go with it.
        if self.epoch != process::epoch() {
            self.mapping.forget();
        }
    }
}
