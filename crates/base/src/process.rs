//! Telling a forked child from the process that made something, without a system call.
//!
//! The kernel wipes a page for us when the process forks (`MADV_WIPEONFORK`), by whatever call it does so:
//! `pthread_atfork` would miss a raw `clone`, and `getpid` costs a system call and repeats in a new PID namespace.
//! The page holds the *epoch*: how many forks deep this process is, as far as anybody asked. A wiped page means one more.
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::PollFlags;

use crate::readiness::readiness;
use crate::sys;

/// The last epoch given out; a child inherits a copy, so its own epochs are higher than all of its ancestors'.
static EPOCHS: AtomicU64 = AtomicU64::new(0);

/// A number that differs between a process and everything it was forked from, to tell whose something is.
///
/// Whoever makes what a forked child must not touch keeps the number, and compares it before each use.
/// [`number`] is for messages about it. Where the kernel has no page to wipe, it is the process id.
///
/// Cost: two loads, no system call; without that page, one.
pub fn epoch() -> u64 {
    let Some(mark) = sys::wiped_on_fork() else {
        return u64::from(id()); // no memory for a page: the slower answer
    };
    let seen = mark.load(Ordering::Relaxed);
    if seen != 0 {
        return seen;
    }
    let depth = EPOCHS.fetch_add(1, Ordering::Relaxed) + 1;
    let next = depth << u32::BITS | u64::from(id());
    match mark.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => next,
        Err(seen) => seen, // another thread was first
    }
}

/// The process id that an epoch was given out in, for messages: in a PID namespace, a child may have its parent's.
#[expect(clippy::cast_possible_truncation, reason = "the id is the lower half")]
pub fn number(epoch: u64) -> u32 {
    epoch as u32
}

/// The process id, for messages.
pub fn id() -> u32 {
    rustix::process::getpid()
        .as_raw_nonzero()
        .get()
        .unsigned_abs()
}

/// Whether the process of a pidfd has ended.
pub fn has_ended(pidfd: impl AsFd) -> bool {
    readiness(pidfd, PollFlags::IN).contains(PollFlags::IN)
}

/// Whether `act` is true in a forked child, within 10 s: for tests. It must not panic there.
///
/// # Panics
/// Where there is no process left.
#[cfg(feature = "testing")]
pub fn in_child(act: impl FnOnce() -> bool) -> bool {
    sys::in_child(act)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_epoch_stays_the_same_within_a_process() {
        assert_ne!(super::epoch(), 0);
        assert_eq!(super::epoch(), super::epoch());
        assert_eq!(super::number(super::epoch()), std::process::id());
    }
}
