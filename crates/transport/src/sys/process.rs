//! The own process id at the price of a load.
//!
//! Every operation of a connection asks whether it still runs in the process that made it.
//! `getpid` is a system call, and a hook at fork would miss processes made by `clone`.
//! So the id lies in a page that the kernel empties in a child (`MADV_WIPEONFORK`, madvise(2)):
//! zero means "look again".

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

const PAGE_BYTES: usize = 4096;

/// The id of the calling process.
pub fn current() -> u32 {
    static PAGE: OnceLock<Option<&'static AtomicU32>> = OnceLock::new();
    let Some(cell) = PAGE.get_or_init(mark) else {
        return ask();
    };
    match cell.load(Ordering::Relaxed) {
        0 => {
            let id = ask();
            cell.store(id, Ordering::Relaxed);
            id
        }
        id => id,
    }
}

fn ask() -> u32 {
    rustix::process::getpid()
        .as_raw_nonzero()
        .get()
        .cast_unsigned()
}

fn mark() -> Option<&'static AtomicU32> {
    // SAFETY: a new private mapping, never unmapped, so a 'static reference into it stays valid;
    // it is zeroed by the kernel and aligned to a page.
    unsafe {
        let page = mmap_anonymous(
            std::ptr::null_mut(),
            PAGE_BYTES,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
        .ok()?;
        madvise(page, PAGE_BYTES, Advice::LinuxWipeOnFork).ok()?;
        Some(&*page.cast::<AtomicU32>())
    }
}

/// Whether `act` is true in a forked child, within 10 s. It must not panic there.
#[cfg(test)]
pub fn in_child(act: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child uses what this crate says a child may, and ends without unwinding or exit handlers.
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
