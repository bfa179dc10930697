//! Memory of arenas, of this process and of others.
use std::ptr::NonNull;

use forebay_memory::{Lease, Window};

use super::span::Span;

/// The memory of a block, valid for as long as it is leased.
pub(crate) fn of_lease(lease: &Lease) -> Span {
    // SAFETY: a lease's block is mapped, readable and writable while it is leased, which the caller ensures.
    unsafe { Span::new(lease.as_ptr(), lease.len()) }
}

/// The memory of another process's chunk, valid for as long as the window is open. Only to be read.
pub(crate) fn of_window(window: &Window) -> Span {
    let start = NonNull::new(window.as_ptr().cast_mut()).unwrap_or(NonNull::dangling());
    // SAFETY: a window is mapped for reading over its length, and cannot shrink; the caller keeps it and writes
    // nothing. Its owner may write concurrently: bytes are copied out, and used only if the version table confirms
    // one version.
    unsafe { Span::new(start, window.len()) }
}
