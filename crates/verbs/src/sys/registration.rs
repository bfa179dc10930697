//! Memory registered with a device: pinned until the registration ends, even if it is unmapped.
use std::ffi::c_int;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use forebay_memory::{ChunkMemory, Lease};

use super::device::Domain;
use super::layout::{MemoryRegion, access};
use super::library::given;

/// Memory registered with a domain. Holds no lease: the poster of an operation does.
#[derive(Debug)]
pub(crate) struct Registration {
    domain: Arc<Domain>,
    region: NonNull<MemoryRegion>,
    start: u64,
    bytes: u64,
}

// SAFETY: libibverbs' objects may be used by any thread, several at once.
unsafe impl Send for Registration {}
// SAFETY: as above.
unsafe impl Sync for Registration {}

impl Registration {
    /// Register a chunk, for local operations and windows. The peer gets no key of the registration.
    pub(crate) fn of_chunk(domain: &Arc<Domain>, chunk: &ChunkMemory) -> io::Result<Self> {
        let allowed = access::LOCAL_WRITE | access::BIND;
        Self::new(domain, chunk.start, chunk.bytes, allowed)
    }

    /// Register a part of a block, with a key that grants the peer `allowed` until the registration ends.
    ///
    /// # Panics
    ///
    /// If the part is not inside of the block.
    pub(crate) fn of_part(
        domain: &Arc<Domain>,
        block: &Lease,
        at: usize,
        bytes: usize,
        allowed: u32,
    ) -> io::Result<Self> {
        assert!(
            at <= block.len() && bytes <= block.len() - at,
            "a part outside of its block"
        );
        let local = if allowed & access::REMOTE_WRITE == 0 {
            0
        } else {
            access::LOCAL_WRITE
        };
        // SAFETY: inside of the block.
        let start = unsafe { block.as_ptr().add(at) };
        Self::new(domain, start, bytes, local | allowed)
    }

    fn new(
        domain: &Arc<Domain>,
        start: NonNull<u8>,
        bytes: usize,
        allowed: u32,
    ) -> io::Result<Self> {
        let flags = c_int::try_from(allowed).expect("flags are small");
        // SAFETY: the kernel checks the addresses and pins what is there; the domain is held.
        let region = given(unsafe {
            (domain.library.ibv_reg_mr)(domain.as_ptr(), start.as_ptr().cast(), bytes, flags)
        })?;
        Ok(Self {
            domain: Arc::clone(domain),
            region,
            start: start.as_ptr() as u64,
            bytes: bytes as u64,
        })
    }

    /// Whether all of these bytes are in it.
    pub(crate) fn holds(&self, address: u64, bytes: u64) -> bool {
        address >= self.start && bytes <= self.bytes && address - self.start <= self.bytes - bytes
    }

    pub(crate) fn as_ptr(&self) -> *mut MemoryRegion {
        self.region.as_ptr()
    }

    pub(crate) fn local_key(&self) -> u32 {
        // SAFETY: filled by the library, constant until `drop`.
        unsafe { (*self.region.as_ptr()).lkey }
    }

    pub(crate) fn remote_key(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.region.as_ptr()).rkey }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if self.domain.is_foreign() {
            return;
        }
        // SAFETY: ended once; windows on it hold it, and the device refuses operations that come later.
        unsafe { (self.domain.library.ibv_dereg_mr)(self.region.as_ptr()) };
    }
}
