//! The only place of this crate with `unsafe`: what `rustix` has no safe form for.
#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

/// Process id, 0 where it cannot be seen, and user id of a Unix socket's peer: `SO_PEERCRED`.
pub fn peer_credentials(socket: BorrowedFd<'_>) -> Result<(i32, u32), Errno> {
    let mut credentials = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut bytes =
        libc::socklen_t::try_from(size_of::<libc::ucred>()).map_err(|_| Errno::INVAL)?;
    // SAFETY: both pointers are to locals of the sizes that are given, which the kernel fills with plain integers.
    let failed = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut bytes,
        )
    };
    if failed == 0 {
        return Ok((credentials.pid, credentials.uid));
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::INVAL))
}

/// A word that is zero again in a forked child; `None` if the kernel gives no page for it.
pub fn wiped_on_fork() -> Option<&'static AtomicU64> {
    static MARK: OnceLock<Option<&'static AtomicU64>> = OnceLock::new();
    if cfg!(miri) {
        return None; // it has no madvise, and no fork
    }
    *MARK.get_or_init(|| {
        const PAGE_BYTES: usize = 4096;
        // SAFETY: a fresh private mapping at addresses that the kernel picks.
        let page = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                PAGE_BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
            .ok()?
        };
        // SAFETY: the page was mapped above and nobody else knows it; wiping leaves zeros, a valid word.
        unsafe { madvise(page, PAGE_BYTES, Advice::LinuxWipeOnFork).ok()? };
        // SAFETY: page-aligned, zeroed, never unmapped, and used as this atomic only.
        Some(unsafe { &*page.cast::<AtomicU64>() })
    })
}

/// A value in a box that is set once, by one store: a fork comes upon it whole or not at all, where a `OnceLock` that
/// another thread was setting is never done in the child.
pub struct SetOnce<T> {
    set: AtomicPtr<T>,
    /// It owns the box, and hands references to any thread, as a `OnceLock` does.
    _owned: PhantomData<OnceLock<Box<T>>>,
}

impl<T> SetOnce<T> {
    /// Not set.
    pub const fn new() -> Self {
        Self {
            set: AtomicPtr::new(ptr::null_mut()),
            _owned: PhantomData,
        }
    }

    /// The value, if it was set.
    pub fn get(&self) -> Option<&T> {
        // SAFETY: null, or from a box that was given up in `get_or_set`; it is freed by the drop alone, which needs
        // `self` whole, and is never lent mutably.
        unsafe { self.set.load(Ordering::Acquire).as_ref() }
    }

    /// The value that was set first, which may be this one.
    pub fn get_or_set(&self, value: Box<T>) -> &T {
        let made = Box::into_raw(value);
        let outcome =
            self.set
                .compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire);
        let set = match outcome {
            Ok(_) => made,
            Err(other) => {
                // SAFETY: made above, and nothing else has its address.
                drop(unsafe { Box::from_raw(made) });
                other
            }
        };
        // SAFETY: not null, and as in `get`.
        unsafe { &*set }
    }
}

impl<T> Drop for SetOnce<T> {
    fn drop(&mut self) {
        let set = *self.set.get_mut();
        if !set.is_null() {
            // SAFETY: from a box that was given up in `get_or_set`; no reference outlives `self`.
            drop(unsafe { Box::from_raw(set) });
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for SetOnce<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("SetOnce").field(&self.get()).finish()
    }
}

/// See `process::in_child`.
#[cfg(any(test, feature = "testing"))]
pub fn in_child(act: impl FnOnce() -> bool) -> bool {
    // SAFETY: glibc's fork leaves memory allocation usable, and the child ends without unwinding or exit handlers.
    match unsafe { libc::fork() } {
        -1 => panic!("no process left"),
        0 => {
            // SAFETY: sets a timer of the child, which ends it where `act` hangs.
            unsafe { libc::alarm(10) };
            let failed = !act();
            // SAFETY: ends the child; nothing of it is used afterwards.
            unsafe { libc::_exit(i32::from(failed)) }
        }
        child => {
            let mut status = 0;
            // SAFETY: it is our child, and nobody else waits for it.
            let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
            waited == child && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
        }
    }
}
