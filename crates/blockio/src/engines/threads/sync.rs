//! Locks, threads and the futex of the fallback. `tests/loom.rs` compiles `pool` and `waiter` over loom's instead.
pub(crate) use std::sync::atomic::AtomicU32;
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
pub(crate) use std::thread;

pub(crate) use rustix::thread::futex;
