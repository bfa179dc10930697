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
    /// Of the last binding, or what the device began with.
    key: u32,
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
            // SAFETY: filled by the library.
            key: unsafe { (*window.as_ptr()).rkey },
        })
    }

    /// A key that no binding of the last 255 had: its low byte counts, the device decides the rest.
    pub(crate) fn next_key(&mut self) -> u32 {
        self.key = (self.key & !0xff) | (self.key.wrapping_add(1) & 0xff);
        self.key
    }

    pub(crate) fn as_ptr(&self) -> *mut MemoryWindow {
        self.handle.as_ptr()
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: as in `new`; ended once. The device takes its key back with it.
        unsafe {
            if let Some(free) = (*self.domain.context()).dealloc_mw {
                free(self.handle.as_ptr());
            }
        }
    }
}
