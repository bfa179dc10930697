//! Windows of type 2B: keys on a part of a registration, for one queue pair, revoked without unpinning memory.
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use super::device::{Domain, entry};
use super::layout::{MemoryWindow, WINDOW_TYPE_2};
use super::library::given;

/// A window; each binding has another key.
#[derive(Debug)]
pub(crate) struct Window {
    domain: Arc<Domain>,
    handle: NonNull<MemoryWindow>,
}

// SAFETY: libibverbs' objects may be used by any thread.
unsafe impl Send for Window {}

impl Window {
    pub(crate) fn new(domain: &Arc<Domain>) -> io::Result<Self> {
        // SAFETY: the context is open; the entry is constant once it is.
        let allocate = entry(unsafe { (*domain.context()).alloc_mw })?;
        // SAFETY: the domain is held by what is made here.
        let window = given(unsafe { allocate(domain.as_ptr(), WINDOW_TYPE_2) })?;
        Ok(Self {
            domain: Arc::clone(domain),
            handle: window,
        })
    }

    /// A key that none of the last 255 bindings had: its low byte is a counter, the device chooses the others.
    pub(crate) fn next_key(&self) -> u32 {
        let key = self.key();
        (key & !0xff) | (key.wrapping_add(1) & 0xff)
    }

    /// The key of the last posted binding, or the initial one of the device.
    fn key(&self) -> u32 {
        // SAFETY: filled by the library, and changed by `set_key` alone.
        unsafe { (*self.handle.as_ptr()).rkey }
    }

    /// Record the key of a posted binding. Drivers read it to compute the next one.
    pub(crate) fn set_key(&mut self, key: u32) {
        // SAFETY: as above; `self` is borrowed alone.
        unsafe { (*self.handle.as_ptr()).rkey = key };
    }

    pub(crate) fn as_ptr(&self) -> *mut MemoryWindow {
        self.handle.as_ptr()
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if self.domain.is_foreign() {
            return;
        }
        // SAFETY: as in `new`; ended once. The device takes its key back with it.
        unsafe {
            if let Some(free) = (*self.domain.context()).dealloc_mw {
                free(self.handle.as_ptr());
            }
        }
    }
}
