//! The peer's side: its announced chunks, mapped read-only, and frames in them.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use forebay_base::process;
use forebay_memory::Window;
use rustix::fs::{OFlags, fcntl_getfl};

use crate::error::Violation;
use crate::share::loans::PeerLoans;
use crate::share::return_table;
use crate::share::windows::Windows;
use crate::stream::shm::{Name, layout};
use crate::sys::buffer::Buffer;
use crate::sys::shared::{OwnBlock, PeerBlock};

/// The region of the other end.
#[derive(Debug)]
pub struct PeerRegion {
    pub control: PeerBlock,
    /// The peer's eventfd, which came with its hello.
    pub wakeup: OwnedFd,
    /// What it may read of us.
    pub loans: Arc<PeerLoans>,
    windows: Windows,
}

/// A received frame, until it is released.
///
/// It keeps our control block, which shows that. Frames are mapped for reading alone, so that there are no pages to
/// restore as `share::held` does for segments of calls. They are not copied before a fork either: a forked child's map
/// follows what the owner writes, and holds nothing back. What the child reads of a frame is right only for as long as
/// its parent holds the frame, so a child must not use what its parent received.
#[derive(Debug)]
struct Held {
    own: Arc<OwnBlock>,
    slot: usize,
    generation: u64,
    owner: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        // A forked child shares the control block: the frame is its parent's to release.
        if process::epoch() == self.owner {
            self.show(false);
        }
    }
}

impl Held {
    /// Show in our return table whether it is held.
    fn show(&self, held: bool) {
        let at = layout::RETURNED + return_table::slot_offset(self.slot);
        return_table::show(self.own.word(at), self.generation, held);
    }
}

impl PeerRegion {
    /// Map what came with the peer's hello.
    pub fn new(
        chunk: u32,
        offset: u64,
        bytes: u64,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Self, Violation> {
        let Ok([memory, wakeup, process]) = <[OwnedFd; 3]>::try_from(descriptors) else {
            return Err(Violation::Descriptors);
        };
        // Waking must never block, whatever descriptor came for the wakeup. The flag is of the open file, which the peer shares: it could
        // take it back later and fill the counter, and the next wake would block. It is a process of the same user, which
        // could stop this one by a signal as well; looking before each wake would cost every wake-up a system call.
        if !fcntl_getfl(&wakeup).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK)) {
            return Err(Violation::Descriptors);
        }
        let mut windows = Windows::default();
        let window = windows.add(chunk, || Window::open(&memory))?;
        let geometry = Violation::Geometry {
            bytes,
            expected: layout::BYTES as u64,
        };
        if bytes != layout::BYTES as u64 {
            return Err(geometry);
        }
        let part = |skipped: usize, bytes| {
            let window = Arc::clone(&window);
            PeerBlock::new(window, offset.checked_add(skipped as u64)?, bytes)
        };
        let control = part(0, layout::BYTES).ok_or(geometry.clone())?;
        let returns = part(layout::RETURNED, return_table::BYTES).ok_or(geometry)?;
        Ok(Self {
            control,
            wakeup,
            loans: PeerLoans::new(returns, process),
            windows,
        })
    }

    /// Map a further chunk.
    pub fn add(&mut self, chunk: u32, descriptors: Vec<OwnedFd>) -> Result<(), Violation> {
        let Ok([memory]) = <[OwnedFd; 1]>::try_from(descriptors) else {
            return Err(Violation::Descriptors);
        };
        self.windows.add(chunk, || Window::open(&memory)).map(drop)
    }

    /// The peer has dropped a chunk; frames in it stay readable.
    pub fn remove(&mut self, chunk: u32) {
        self.windows.remove(chunk);
    }

    /// Whether a chunk is mapped.
    pub fn has(&self, chunk: u32) -> bool {
        self.windows.has(chunk)
    }

    /// The frame of a name, every number of which may be invalid.
    pub fn open(&self, name: &Name, own: &Arc<OwnBlock>) -> Result<Buffer, Violation> {
        let (window, offset, bytes) = self.windows.find(name)?;
        let held = Held {
            own: Arc::clone(own),
            slot: name.slot as usize,
            generation: name.generation,
            owner: process::epoch(),
        };
        held.show(true);
        Ok(Buffer::shared(Arc::clone(window), offset, bytes, held))
    }
}
