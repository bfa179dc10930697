//! Which process this is, and what a test does in a forked child.

#[cfg(test)]
use std::sync::{Mutex, MutexGuard, PoisonError};

#[cfg(test)]
use crate::sys::per_process::PerProcess;

/// What tells this process from all that it was forked from: two loads, no system call.
///
/// It is no process id: a child in a new PID namespace may have its parent's.
pub fn current() -> u64 {
    forebay_wake::process::epoch()
}

/// For one test at a time: the depot and the list of sockets are the process's, and a child that is made while another
/// thread has the list's lock lets go of nothing.
#[cfg(test)]
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: PerProcess<Mutex<()>> = PerProcess::empty();
    ALONE.get().lock().unwrap_or_else(PoisonError::into_inner)
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
