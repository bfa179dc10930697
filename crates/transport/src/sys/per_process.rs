//! A value of each process's own, although a fork copies all memory.
//!
//! A lock that another thread held during a fork stays locked in the child for ever, and a `Once` that it was running is
//! never done. So a child does not touch its parent's value: it makes its own, and leaves the copy as it is.

use std::sync::atomic::{AtomicPtr, Ordering};

use forebay_base::process;

/// Made by the first use in a process; never dropped.
pub struct PerProcess<T>(AtomicPtr<Owned<T>>);

struct Owned<T> {
    owner: u64,
    value: T,
}

impl<T: Default + Send + Sync + 'static> PerProcess<T> {
    /// For a static.
    pub const fn empty() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// The parent's value as of the fork; `None` in a process that has its own.
    pub fn inherited(&'static self) -> Option<&'static T> {
        // SAFETY: as below.
        let found = unsafe { self.0.load(Ordering::Acquire).as_ref() };
        found
            .filter(|owned| owned.owner != process::epoch())
            .map(|owned| &owned.value)
    }

    /// This process's value.
    pub fn get(&'static self) -> &'static T {
        let here = process::epoch();
        let mut found = self.0.load(Ordering::Acquire);
        loop {
            // SAFETY: null, or from a box that was leaked below and is never freed; there is no mutable reference to it.
            if let Some(owned) = unsafe { found.as_ref() }
                && owned.owner == here
            {
                return &owned.value;
            }
            let made = Box::into_raw(Box::new(Owned {
                owner: here,
                value: T::default(),
            }));
            let swapped = self
                .0
                .compare_exchange(found, made, Ordering::AcqRel, Ordering::Acquire);
            found = match swapped {
                Ok(_) => made,
                Err(other) => {
                    // SAFETY: made above, and not published.
                    drop(unsafe { Box::from_raw(made) });
                    other
                }
            };
        }
    }
}

/// For one test at a time: the share pool and the list of sockets are the process's, and a child that is forked while
/// another thread has the list's lock releases nothing.
#[cfg(test)]
pub fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: PerProcess<std::sync::Mutex<()>> = PerProcess::empty();
    let locked = ALONE.get().lock();
    locked.unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier, Mutex};

    use super::*;
    use forebay_base::process::in_child;

    #[test]
    fn threads_of_a_process_share_one() {
        static COUNT: PerProcess<Mutex<u32>> = PerProcess::empty();
        let together = Arc::new(Barrier::new(4));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    together.wait();
                    *COUNT.get().lock().expect("unpoisoned") += 1;
                });
            }
        });
        assert_eq!(*COUNT.get().lock().expect("unpoisoned"), 4);
    }

    #[test]
    fn a_child_has_its_own_though_the_parents_is_locked() {
        static COUNT: PerProcess<Mutex<u32>> = PerProcess::empty();
        let mut locked = COUNT.get().lock().expect("unpoisoned");
        *locked = 7;
        assert!(in_child(|| COUNT
            .get()
            .lock()
            .is_ok_and(|count| *count == 0)));
        drop(locked);
        assert_eq!(*COUNT.get().lock().expect("unpoisoned"), 7);
    }
}
