//! Which process this is.

#[cfg(test)]
use std::sync::{Mutex, MutexGuard, PoisonError};

#[cfg(test)]
use crate::sys::per_process::PerProcess;

/// The fork epoch, which differs between this process and all its ancestors: two loads, no system call.
///
/// A process id would not do: a child in a new PID namespace may have its parent's.
pub fn current() -> u64 {
    forebay_base::process::epoch()
}

/// For one test at a time: the depot and the list of sockets are the process's, and a child that is made while another
/// thread has the list's lock lets go of nothing.
#[cfg(test)]
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: PerProcess<Mutex<()>> = PerProcess::empty();
    ALONE.get().lock().unwrap_or_else(PoisonError::into_inner)
}
