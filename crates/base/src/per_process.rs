//! A value that each process makes for itself, though a fork copies all memory.
//!
//! A forked child has neither its parent's threads nor the right to its parent's locks: a lock that another thread held
//! at the fork is locked for ever in the child, and a `Once` that was running never ends. So a process uses a *node* of its
//! own, and passes by those of its ancestors without their locks. Nodes are linked by one store of an address each
//! ([`SetOnce`]), which a fork cannot come upon half done.
//!
//! Alternatives: `pthread_atfork` misses a raw `clone`; resetting the value after a fork needs a hook of each user.

use std::sync::{Mutex, OnceLock, PoisonError};

use crate::process;
use crate::sys::SetOnce;

/// At most one `T` for this process, and one for each process that it was forked from, which stay as they were.
///
/// Dropping it drops the values of the ancestors, too: they are this process's copies.
#[derive(Debug)]
pub struct PerProcess<T>(SetOnce<Node<T>>);

#[derive(Debug)]
struct Node<T> {
    /// The process that made this node, and the value in it.
    owner: u64,
    value: OnceLock<T>,
    /// One maker at a time.
    making: Mutex<()>,
    /// Of a forked child.
    next: SetOnce<Node<T>>,
}

impl<T> Node<T> {
    fn of(owner: u64) -> Self {
        Self {
            owner,
            value: OnceLock::new(),
            making: Mutex::new(()),
            next: SetOnce::new(),
        }
    }
}

impl<T> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> PerProcess<T> {
    /// Nothing yet; also for a static.
    pub const fn new() -> Self {
        Self(SetOnce::new())
    }

    /// This process's own, if it was made. Cost: two loads beside those of [`process::epoch`].
    pub fn get(&self) -> Option<&T> {
        self.find(process::epoch())?.value.get()
    }

    /// This process's own.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        match self.get_or_try_init(|| Ok::<_, std::convert::Infallible>(make())) {
            Ok(value) => value,
            Err(never) => match never {},
        }
    }

    /// This process's own. A value that could not be made is made by the next call.
    ///
    /// # Errors
    /// Those of `make`.
    ///
    /// # Panics
    /// Where `make` does.
    pub fn get_or_try_init<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        let node = self.node();
        if let Some(value) = node.value.get() {
            return Ok(value);
        }
        let making = node.making.lock().unwrap_or_else(PoisonError::into_inner);
        if node.value.get().is_none() {
            let value = make()?;
            _ = node.value.set(value);
        }
        drop(making);
        Ok(node.value.get().expect("made above"))
    }

    /// The value of the nearest ancestor that had one when it forked; `None` in a process that has begun its own.
    pub fn inherited(&self) -> Option<&T> {
        let here = process::epoch();
        let mut inherited = None;
        let mut at = self.0.get();
        while let Some(node) = at {
            if node.owner == here {
                return None;
            }
            inherited = node.value.get().or(inherited);
            at = node.next.get();
        }
        inherited
    }

    fn find(&self, here: u64) -> Option<&Node<T>> {
        let mut node = self.0.get()?;
        while node.owner != here {
            node = node.next.get()?;
        }
        Some(node)
    }

    /// The node of this process, behind those of its ancestors.
    fn node(&self) -> &Node<T> {
        let here = process::epoch();
        let mut end = &self.0;
        loop {
            // Boxed before, so that what a fork may come upon is the store of an address.
            let node = match end.get() {
                Some(node) => node,
                None => end.get_or_set(Box::new(Node::of(here))),
            };
            if node.owner == here {
                return node;
            }
            end = &node.next;
        }
    }
}

#[cfg(test)]
#[cfg_attr(miri, ignore = "forks, which miri has not")]
mod tests {
    use std::sync::{Arc, Barrier, mpsc};

    use super::*;
    use crate::sys::in_child;

    #[test]
    fn threads_of_a_process_share_one() {
        static COUNT: PerProcess<Mutex<u32>> = PerProcess::new();
        let together = Arc::new(Barrier::new(4));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    together.wait();
                    *COUNT
                        .get_or_init(Mutex::default)
                        .lock()
                        .expect("unpoisoned") += 1;
                });
            }
        });
        let count = COUNT.get().expect("made");
        assert_eq!(*count.lock().expect("unpoisoned"), 4);
    }

    #[test]
    fn a_child_has_its_own_though_the_parents_is_locked() {
        static COUNT: PerProcess<Mutex<u32>> = PerProcess::new();
        let mut locked = COUNT
            .get_or_init(Mutex::default)
            .lock()
            .expect("unpoisoned");
        *locked = 7;
        assert!(COUNT.inherited().is_none());
        assert!(in_child(|| {
            let is_locked = COUNT
                .inherited()
                .is_some_and(|count| count.try_lock().is_err());
            let own = COUNT.get_or_init(Mutex::default);
            let is_new = own.lock().is_ok_and(|count| *count == 0);
            is_locked && is_new && COUNT.inherited().is_none()
        }));
        drop(locked);
        let count = COUNT.get().expect("made");
        assert_eq!(*count.lock().expect("unpoisoned"), 7);
    }

    #[test]
    fn a_child_makes_its_own_while_a_thread_of_its_parent_makes_one() {
        let each = &PerProcess::new();
        let (begun, begins) = mpsc::channel();
        let (forked, goes_on) = mpsc::channel();
        std::thread::scope(|scope| {
            let made = scope.spawn(move || {
                each.get_or_try_init(|| {
                    begun.send(()).expect("it is awaited");
                    goes_on.recv().map(|()| 7)
                })
            });
            begins.recv().expect("it begins");
            let is_own = in_child(|| {
                each.get().is_none()
                    && each.get_or_try_init(|| Ok::<_, ()>(9)) == Ok(&9)
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
        let each = PerProcess::new();
        assert_eq!(each.get_or_try_init(|| Err(3)), Err(3));
        assert_eq!(each.get(), None);
        assert_eq!(each.get_or_try_init(|| Ok::<_, ()>(7)), Ok(&7));
        assert_eq!(each.get_or_try_init(|| Ok::<_, ()>(9)), Ok(&7), "made once");
    }
}
