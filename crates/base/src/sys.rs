//! The only place of this crate with `unsafe`: what `rustix` has no safe form for.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

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

/// See [`crate::process::in_child`].
#[cfg(feature = "testing")]
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
