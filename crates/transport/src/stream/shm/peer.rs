//! The peer's side: its announced chunks, mapped read-only, and frames in them.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_base::process;
use forebay_memory::Window;
use rustix::fs::{OFlags, fcntl_getfl};

use crate::error::Violation;
use crate::limit::{LENT_FRAMES_MAX, WINDOWS_MAX};
use crate::stream::shm::{Name, layout};
use crate::sys::buffer::Buffer;
use crate::sys::shared::{OwnBlock, PeerBlock};

/// The region of the other end.
#[derive(Debug)]
pub struct PeerRegion {
    pub control: PeerBlock,
    /// The peer's eventfd, which came with its hello.
    pub wakeup: OwnedFd,
    /// A pidfd of the peer: readable once it has ended.
    pub process: OwnedFd,
    windows: HashMap<u32, Arc<Window>>,
}

/// A received frame, until it is released.
///
/// It keeps our control block, which shows its release.
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
            let at = layout::RETURNED + self.slot * size_of::<u64>();
            self.own.word(at).store(self.generation, Ordering::Release);
        }
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
        let window = open(&memory)?;
        let geometry = Violation::Geometry {
            bytes,
            expected: layout::BYTES as u64,
        };
        if bytes != layout::BYTES as u64 {
            return Err(geometry);
        }
        let control = PeerBlock::new(Arc::clone(&window), offset, layout::BYTES).ok_or(geometry)?;
        Ok(Self {
            control,
            wakeup,
            process,
            windows: HashMap::from([(chunk, window)]),
        })
    }

    /// Map a further chunk.
    pub fn add(&mut self, chunk: u32, descriptors: Vec<OwnedFd>) -> Result<(), Violation> {
        let Ok([memory]) = <[OwnedFd; 1]>::try_from(descriptors) else {
            return Err(Violation::Descriptors);
        };
        if self.windows.len() == WINDOWS_MAX {
            return Err(Violation::Windows { limit: WINDOWS_MAX });
        }
        self.windows.insert(chunk, open(&memory)?);
        Ok(())
    }

    /// The peer has dropped a chunk; frames in it stay readable.
    pub fn remove(&mut self, chunk: u32) {
        self.windows.remove(&chunk);
    }

    /// The generation that the peer shows at a slot.
    pub fn returned(&self, slot: u32) -> u64 {
        let at = layout::RETURNED + slot as usize * size_of::<u64>();
        self.control.load(at, Ordering::Acquire)
    }

    /// Whether a chunk is mapped.
    pub fn has(&self, chunk: u32) -> bool {
        self.windows.contains_key(&chunk)
    }

    /// The frame of a name, every number of which may be invalid.
    pub fn open(&self, name: &Name, own: &Arc<OwnBlock>) -> Result<Buffer, Violation> {
        let wrong = Violation::Reference {
            chunk: name.chunk,
            offset: name.offset,
            bytes: name.bytes,
        };
        let window = self.windows.get(&name.chunk).ok_or(wrong.clone())?;
        let slot = name.slot as usize;
        let (offset, bytes) = (usize::try_from(name.offset), usize::try_from(name.bytes));
        let (Ok(offset), Ok(bytes)) = (offset, bytes) else {
            return Err(wrong);
        };
        let end = offset.checked_add(bytes);
        if end.is_none_or(|end| end > window.len())
            || slot >= LENT_FRAMES_MAX
            || name.generation == 0
        {
            return Err(wrong);
        }
        let held = Held {
            own: Arc::clone(own),
            slot,
            generation: name.generation,
            owner: process::epoch(),
        };
        Ok(Buffer::shared(Arc::clone(window), offset, bytes, held))
    }
}

fn open(memory: &OwnedFd) -> Result<Arc<Window>, Violation> {
    Window::open(memory)
        .map(Arc::new)
        .map_err(|error| Violation::Window(error.to_string()))
}
