//! A spin lock for a few instructions, which its usual holder never waits for.
//!
//! The standard mutex takes an atomic exchange to unlock, because a thread may sleep on it; here none does:
//! the thread that owns the value does without it while the lock is taken, and others, which are in no hurry, yield.
//! That halves the cost of taking a block from a shelf.
//!
//! Self-contained, so that the test `loom` can check every interleaving.
#![allow(unsafe_code)]
#[cfg(loom)]
use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicBool, Ordering},
    thread::yield_now,
};
#[cfg(not(loom))]
use std::{
    cell::UnsafeCell,
    sync::atomic::{AtomicBool, Ordering},
    thread::yield_now,
};

/// Holds a value for one thread at a time.
#[derive(Debug)]
pub(crate) struct SpinLock<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `taken` lets one thread at a time have the value, which may thus go from thread to thread: `T: Send`.
unsafe impl<T: Send> Sync for SpinLock<T> {}

/// Lets go when it is dropped, by a panic too.
struct Taken<'a>(&'a AtomicBool);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl<T> SpinLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            taken: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Act on the value, unless another thread does.
    pub(crate) fn try_with<R>(&self, act: impl FnOnce(&mut T) -> R) -> Option<R> {
        if !self.take() {
            return None;
        }
        let _taken = Taken(&self.taken);
        Some(self.with_taken(act))
    }

    /// Act on the value once no other thread does.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        while !self.take() {
            yield_now();
        }
        let _taken = Taken(&self.taken);
        self.with_taken(act)
    }

    /// An exchange that changes nothing where it is refused: loom lets a plain one overwrite a letting go that is later.
    fn take(&self) -> bool {
        (self.taken)
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[cfg(not(loom))]
    fn with_taken<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: both callers have set `taken`, which was unset, and unset it after this has returned;
        // the reference does not leave `act`, and `act` cannot come here again, because it finds `taken` set.
        act(unsafe { &mut *self.value.get() })
    }

    #[cfg(loom)]
    fn with_taken<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: as above; loom checks that no other thread has the value meanwhile.
        self.value.with_mut(|value| act(unsafe { &mut *value }))
    }
}
