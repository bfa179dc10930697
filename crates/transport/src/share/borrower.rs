//! What one peer lends us: its mapped chunks and the segments in them.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use forebay_memory::{Backing, Config, Region, Window};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use crate::error::Violation;
use crate::limit::{LENT_FRAMES_MAX, WINDOWS_MAX};
use crate::share::held::{Held, Returns};
use crate::share::return_table;
use crate::stream::shm::Name;
use crate::sys::buffer::{Buffer, SEGMENT_ALIGN};
use crate::sys::shared::OwnBlock;

/// Segments begin at a page and share no page.
const PAGE_BYTES: usize = 4096;

/// Our side of a connection whose peer lends.
#[derive(Debug)]
pub struct Borrower {
    returns: Arc<Returns>,
    windows: HashMap<u32, Chunk>,
}

/// A chunk of the peer.
#[derive(Debug)]
enum Chunk {
    /// Copy-on-write: what is written there is seen here alone.
    Private(Arc<Window>),
    /// `RLIMIT_DATA` left no room for a private map: segments are copied out of it.
    ReadOnly(Arc<Window>),
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
            windows: HashMap::new(),
        };
        Some((borrower, vec![memory, process]))
    }

    /// Map a chunk of the peer.
    pub fn add(&mut self, chunk: u32, memory: &OwnedFd) -> Result<(), Violation> {
        if self.windows.len() == WINDOWS_MAX {
            return Err(Violation::Windows { limit: WINDOWS_MAX });
        }
        let mapped = match Window::private(memory) {
            Ok(window) => Chunk::Private(Arc::new(window)),
            // RLIMIT_DATA counts the whole map, though nothing may ever be written to it.
            Err(forebay_memory::Error::System { .. }) => {
                let window = Window::open(memory).map_err(|error| window_refused(&error))?;
                Chunk::ReadOnly(Arc::new(window))
            }
            Err(error) => return Err(window_refused(&error)),
        };
        self.windows.insert(chunk, mapped);
        Ok(())
    }

    /// The peer has dropped a chunk; segments in it stay readable.
    pub fn remove(&mut self, chunk: u32) {
        self.windows.remove(&chunk);
    }

    /// Releases segments; its [`Returns::restore`] is best called while idle.
    pub fn returns(&self) -> Arc<Returns> {
        Arc::clone(&self.returns)
    }

    /// The segment of a name, every number of which may be invalid.
    pub fn open(&self, name: &Name) -> Result<Buffer, Violation> {
        let wrong = || Violation::Reference {
            chunk: name.chunk,
            offset: name.offset,
            bytes: name.bytes,
        };
        let chunk = self.windows.get(&name.chunk).ok_or_else(wrong)?;
        let (Chunk::Private(window) | Chunk::ReadOnly(window)) = chunk;
        let (offset, bytes) = (usize::try_from(name.offset), usize::try_from(name.bytes));
        let (Ok(offset), Ok(bytes)) = (offset, bytes) else {
            return Err(wrong());
        };
        let pages = bytes.checked_next_multiple_of(PAGE_BYTES);
        let end = pages.and_then(|pages| offset.checked_add(pages));
        if end.is_none_or(|end| end > window.len())
            || !offset.is_multiple_of(PAGE_BYTES)
            || bytes == 0
            || name.slot as usize >= LENT_FRAMES_MAX
            || name.generation == 0
        {
            return Err(wrong());
        }
        self.returns.restore().map_err(Violation::Memory)?;
        let held = Held::new(window, &self.returns, (offset, bytes), name);
        if matches!(chunk, Chunk::ReadOnly(_)) || self.returns.wants_copies() {
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

fn window_refused(error: &forebay_memory::Error) -> Violation {
    Violation::Window(error.to_string())
}
