//! A region's chunks, each registered with the device when it is made.
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_memory::{ChunkMemory, Lease, Registrar};
use forebay_tensor::Error;

use crate::discovery::Adapter;
use crate::sys::device::Domain;
use crate::sys::pair::LocalPart;
use crate::sys::registration::Registration;

#[derive(Debug, Default)]
struct Table {
    chunks: Vec<Arc<Registration>>,
    reason: Option<String>,
}

/// The chunks of regions that are registered with a device. Attach it to a region; a chunk is registered once, never
/// for a transfer.
///
/// A chunk that is removed while operations still use it stays pinned until they end.
/// Forking is safe: chunks are shared mappings, so a child's writes do not copy the parent's pages.
#[derive(Debug)]
pub struct Registry {
    domain: Arc<Domain>,
    table: Mutex<Table>,
    count: AtomicU64,
}

impl Registry {
    /// An empty registry; [`forebay_memory::Region::attach`] notifies it of chunks.
    pub fn new(adapter: &Adapter) -> Arc<Self> {
        Arc::new(Self {
            domain: Arc::clone(&adapter.domain),
            table: Mutex::default(),
            count: AtomicU64::new(0),
        })
    }

    /// How often memory was registered, registrations per transfer included.
    /// Does not grow in the steady state.
    pub fn registrations(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Why the last chunk could not be registered.
    pub fn reason(&self) -> Option<String> {
        self.lock().reason.clone()
    }

    /// The registration that contains a block.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if its region was not attached, [`Error::Broken`] if the kernel refused its chunk.
    pub(super) fn find(&self, block: &Lease) -> Result<Arc<Registration>, Error> {
        let table = self.lock();
        let (start, bytes) = (block.as_ptr().as_ptr() as u64, block.len() as u64);
        if let Some(held) = table.chunks.iter().find(|chunk| chunk.holds(start, bytes)) {
            return Ok(Arc::clone(held));
        }
        Err(match &table.reason {
            Some(why) => Error::Broken { why: why.clone() },
            None => Error::Config {
                setting: "the address of a block",
                value: start,
                advice: "attach its region to the registry of the device first",
            },
        })
    }

    /// Register part of a block for one transfer; `allowed` are the rights of its key.
    pub(super) fn register(
        &self,
        block: &Lease,
        at: usize,
        bytes: usize,
        allowed: u32,
    ) -> Result<Registration, Error> {
        self.count.fetch_add(1, Ordering::Relaxed);
        Registration::of_part(&self.domain, block, at, bytes, allowed).map_err(|error| {
            Error::Broken {
                why: refusal(&error, bytes),
            }
        })
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // A panic cannot leave it inconsistent: each field changes in one step.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registrar for Registry {
    fn added(&self, chunk: &ChunkMemory) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let made = Registration::of_chunk(&self.domain, chunk);
        let mut table = self.lock();
        match made {
            Ok(registration) => table.chunks.push(Arc::new(registration)),
            Err(error) => table.reason = Some(refusal(&error, chunk.bytes)),
        }
    }

    fn removed(&self, chunk: &ChunkMemory) {
        let start = chunk.start.as_ptr() as u64;
        let mut table = self.lock();
        let Some(at) = table.chunks.iter().position(|held| held.holds(start, 1)) else {
            return;
        };
        let gone = table.chunks.swap_remove(at);
        drop(table);
        drop(gone); // a system call, so not under the lock
    }
}

fn refusal(error: &io::Error, bytes: usize) -> String {
    if error.raw_os_error() == Some(libc::ENOMEM) {
        return format!(
            "{bytes} bytes exceed what this user may pin for RDMA (ulimit -l); raise the memlock limit, or use tcp"
        );
    }
    format!("the device refused to register {bytes} bytes: {error}")
}

/// A part of a block, as the device addresses it.
///
/// # Panics
///
/// If the part is not inside of the block, or longer than one operation may be.
pub(super) fn local_part(
    registration: &Registration,
    block: &Lease,
    at: usize,
    bytes: usize,
) -> LocalPart {
    assert!(
        at <= block.len() && bytes <= block.len() - at,
        "a part outside of its block"
    );
    LocalPart {
        address: block.as_ptr().as_ptr() as u64 + at as u64,
        bytes: u32::try_from(bytes).expect("pulls are shorter than 4 GiB"),
        key: registration.local_key(),
    }
}
