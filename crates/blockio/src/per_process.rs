//! A thing that each process makes for itself, because a forked child does not have its parent's threads.
//!
//! A thread of the parent may be making its thing while another one forks: the child then finds nothing made, and a lock
//! whose holder it does not have. So a process takes the lock of a node of its own alone, and passes by those of its
//! ancestors.
use std::sync::{Mutex, OnceLock, PoisonError};

use forebay_base::process;

/// At most one `T` for this process, and one for each process that it was forked from, which stay as they were.
#[derive(Debug)]
pub(crate) struct PerProcess<T> {
    /// Which process the value is of: the one that made this node.
    owner: u64,
    own: OnceLock<T>,
    /// Of a forked child.
    next: OnceLock<Box<PerProcess<T>>>,
    /// One maker at a time.
    making: Mutex<()>,
}

impl<T> Default for PerProcess<T> {
    fn default() -> Self {
        Self {
            owner: process::epoch(),
            own: OnceLock::new(),
            next: OnceLock::new(),
            making: Mutex::new(()),
        }
    }
}

impl<T> PerProcess<T> {
    /// This process's own, if it was made.
    pub(crate) fn get(&self) -> Option<&T> {
        if self.is_own() {
            return self.own.get();
        }
        self.next.get()?.get()
    }

    /// This process's own.
    pub(crate) fn get_or_make<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        if !self.is_own() {
            return self.next().get_or_make(make);
        }
        if let Some(value) = self.own.get() {
            return Ok(value);
        }
        let making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if self.own.get().is_none() {
            let value = make()?;
            _ = self.own.set(value);
        }
        drop(making);
        Ok(self.own.get().expect("made above"))
    }

    fn is_own(&self) -> bool {
        self.owner == process::epoch()
    }

    fn next(&self) -> &Self {
        if let Some(next) = self.next.get() {
            return next;
        }
        // Made before, so that a fork cannot come upon it half made: what is left is the store of an address.
        let made = Box::default();
        self.next.get_or_init(|| made)
    }
}

#[cfg(test)]
#[cfg_attr(miri, ignore = "forks, which miri has not")]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use forebay_base::process::in_child;

    #[test]
    fn a_child_makes_its_own_while_a_thread_of_its_parent_makes_one() {
        let each = &PerProcess::default();
        let (begun, begins) = mpsc::channel();
        let (forked, goes_on) = mpsc::channel();
        std::thread::scope(|scope| {
            let made = scope.spawn(move || {
                each.get_or_make(|| {
                    begun.send(()).expect("it is awaited");
                    goes_on.recv().map(|()| 7)
                })
            });
            begins.recv().expect("it begins");
            let is_own = in_child(|| {
                each.get().is_none()
                    && each.get_or_make(|| Ok::<_, ()>(9)) == Ok(&9)
                    && each.get() == Some(&9)
            });
            forked.send(()).expect("it is awaited");
            assert_eq!(made.join().expect("no panic"), Ok(&7));
            assert!(
                is_own,
                "the child waited for a thread that it does not have"
            );
        });
        assert_eq!(each.get(), Some(&7));
    }

    #[test]
    fn what_cannot_be_made_is_made_the_next_time() {
        let each = PerProcess::default();
        assert_eq!(each.get_or_make(|| Err(3)), Err(3));
        assert_eq!(each.get(), None);
        assert_eq!(each.get_or_make(|| Ok::<_, ()>(7)), Ok(&7));
        assert_eq!(each.get_or_make(|| Ok::<_, ()>(9)), Ok(&7), "made once");
    }
}
