//! What one peer lends us: its mapped chunks and the segments in them.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use forebay_memory::{Backing, Config, Region, Window};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use crate::error::Violation;
use crate::share::held::{Held, Returns};
use crate::share::return_table;
use crate::share::windows::{self, Windows};
use crate::stream::shm::Name;
use crate::sys::buffer::{Buffer, SEGMENT_ALIGN};
use crate::sys::shared::OwnBlock;

/// Segments begin at a page and share no page.
const PAGE_BYTES: usize = 4096;

/// Our side of a connection whose peer lends.
#[derive(Debug)]
pub struct Borrower {
    returns: Arc<Returns>,
    /// Copy-on-write: what is written there is seen here alone. Where `RLIMIT_DATA` left no room for a private map it is
    /// one for reading, and segments are copied out of it.
    windows: Windows,
}

impl Borrower {
    /// Make a return table, and the descriptors by which the peer reads it; `None` without memory or descriptors.
    pub fn new() -> Option<(Self, Vec<OwnedFd>)> {
        let config = Config::new("returns", return_table::BYTES as u64).backing(Backing::Pages);
        let region = Region::new(config).ok()?;
        let lease = region.allocate(return_table::BYTES).ok()?;
        let memory = lease.share_chunk().ok()?;
        let process = pidfd_open(getpid(), PidfdFlags::empty()).ok()?;
        let borrower = Self {
            returns: Arc::new(Returns::new(OwnBlock::new(lease))),
            windows: Windows::default(),
        };
        Some((borrower, vec![memory, process]))
    }

    /// Map a chunk of the peer.
    pub fn add(&mut self, chunk: u32, memory: &OwnedFd) -> Result<(), Violation> {
        self.windows.add(chunk, || match Window::private(memory) {
            // RLIMIT_DATA counts the whole map, though nothing may ever be written to it.
            Err(forebay_memory::Error::System { .. }) => Window::open(memory),
            outcome => outcome,
        })?;
        Ok(())
    }

    /// The peer has dropped a chunk; segments in it stay readable.
    pub fn remove(&mut self, chunk: u32) {
        self.windows.remove(chunk);
    }

    /// Releases segments; its [`Returns::restore`] is best called while idle.
    pub fn returns(&self) -> Arc<Returns> {
        Arc::clone(&self.returns)
    }

    /// The segment of a name, every number of which may be invalid.
    pub fn open(&self, name: &Name) -> Result<Buffer, Violation> {
        let (window, offset, bytes) = self.windows.find(name)?;
        // Inside, so that neither overflows.
        let end = offset + bytes.next_multiple_of(PAGE_BYTES);
        if end > window.len() || !offset.is_multiple_of(PAGE_BYTES) || bytes == 0 {
            return Err(windows::invalid(name));
        }
        self.returns.restore().map_err(Violation::Memory)?;
        let held = Held::new(window, &self.returns, (offset, bytes), name);
        if !window.is_private() || self.returns.wants_copies() {
            let mut copy =
                Buffer::with_capacity(bytes, SEGMENT_ALIGN).ok_or(Violation::Memory(bytes))?;
            held.copy_into(&mut copy);
            return Ok(copy);
        }
        Ok(held.into_buffer())
    }
}

impl Drop for Borrower {
    fn drop(&mut self) {
        self.returns.close();
    }
}
