//! The signal that interrupts a run in its worker.

use std::os::fd::AsFd;

use rustix::process::{Signal, pidfd_send_signal};

/// Above `SIGRTMIN`, which the C library may use for itself; the worker's handler is at the same number.
const ABOVE_FIRST: i32 = 7;

/// Send it to a worker. One that has ended needs none.
pub(crate) fn interrupt(pidfd: impl AsFd) {
    // SAFETY: a number between SIGRTMIN and SIGRTMAX (of which POSIX has at least eight) is none that the C library
    // keeps for itself.
    let signal = unsafe { Signal::from_raw_unchecked(libc::SIGRTMIN() + ABOVE_FIRST) };
    let _ = pidfd_send_signal(pidfd, signal);
}
