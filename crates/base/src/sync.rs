//! The lock of the queue: std's, or loom's under `--cfg loom`, so that the model runs the code that ships.
#[cfg(loom)]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::sync::{Mutex, MutexGuard};
