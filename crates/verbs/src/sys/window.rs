//! Windows of type 2B: keys on a part of a registration, for one queue pair, taken back without unpinning anything.
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use super::device::{Domain, entry};
use super::layout::{MemoryWindow, WINDOW_TYPE_2};
use super::library::given;

/// A window, which may be bound again and again, each time with another key.
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

    /// A key that no binding of the last 255 had: its low byte counts, the device decides the rest.
    pub(crate) fn next_key(&self) -> u32 {
        let key = self.key();
        (key & !0xff) | (key.wrapping_add(1) & 0xff)
    }

    /// The key of the last binding that was posted, or what the device began with.
    fn key(&self) -> u32 {
        // SAFETY: filled by the library, and changed by `set_key` alone.
        unsafe { (*self.handle.as_ptr()).rkey }
    }

    /// A binding with this key was posted. Drivers look here for what the next one is to replace.
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
