//! All the `unsafe` of the crate: memory that callers lend, the rings that the kernel shares, the fallback's system calls.
#![allow(unsafe_code)]
mod blocks;
pub(crate) mod lent;
pub(crate) mod ring;
pub(crate) mod signals;
pub(crate) mod transfer;

/// Whether `act` is true in a forked child, within 10 s. It must not panic there.
#[cfg(test)]
pub(crate) fn in_child(act: impl FnOnce() -> bool) -> bool {
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
