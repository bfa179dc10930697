//! Tests that cannot run beside each other.

use std::sync::{Mutex, MutexGuard, PoisonError};

use forebay_base::PerProcess;

/// For one test at a time: the share pool and the list of sockets are the process's, and a child that is forked while
/// another thread has the list's lock releases nothing.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: PerProcess<Mutex<()>> = PerProcess::new();
    let locked = ALONE.get_or_init(Mutex::default).lock();
    locked.unwrap_or_else(PoisonError::into_inner)
}
