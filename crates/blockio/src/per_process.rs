//! A thing that each process makes for itself, because a forked child does not have its parent's threads.
use std::sync::{Mutex, OnceLock, PoisonError};

/// At most one `T` for this process, and one for each process that it was forked from, which stay as they were.
#[derive(Debug)]
pub(crate) struct PerProcess<T> {
    /// Which process the value is of; the first to look decides.
    first: OnceLock<(u64, T)>,
    next: OnceLock<Box<PerProcess<T>>>,
    /// One maker at a time.
    making: Mutex<()>,
}

impl<T> Default for PerProcess<T> {
    fn default() -> Self {
        Self {
            first: OnceLock::new(),
            next: OnceLock::new(),
            making: Mutex::new(()),
        }
    }
}

impl<T> PerProcess<T> {
    /// This process's own, if it was made.
    pub(crate) fn get(&self) -> Option<&T> {
        let (epoch, value) = self.first.get()?;
        if *epoch == forebay_memory::epoch() {
            return Some(value);
        }
        self.next.get()?.get()
    }

    /// This process's own.
    pub(crate) fn get_or_make<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        match self.first.get() {
            Some((epoch, value)) if *epoch == forebay_memory::epoch() => return Ok(value),
            Some(_) => return self.next.get_or_init(Box::default).get_or_make(make),
            None => {}
        }
        let making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if self.first.get().is_none() {
            let value = make()?;
            _ = self.first.set((forebay_memory::epoch(), value));
        }
        drop(making);
        let (_, value) = self.first.get().expect("made above");
        Ok(value)
    }
}
