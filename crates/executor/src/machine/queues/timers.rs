//! The times at which requests are looked at again.

use std::collections::BTreeSet;

use crate::machine::register::Key;
use crate::request::Millis;

/// At most one time per request, removed when it no longer matters: requests that end within milliseconds of a time-out
/// of an hour leave nothing behind.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    due: BTreeSet<(Millis, Key)>,
}

impl Timers {
    /// Moves a request's time from `old` to `new`.
    pub(crate) fn set(&mut self, key: Key, old: Option<Millis>, new: Option<Millis>) {
        if old == new {
            return;
        }
        if let Some(at) = old {
            self.due.remove(&(at, key));
        }
        if let Some(at) = new {
            self.due.insert((at, key));
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.due.len()
    }

    pub(crate) fn first(&self) -> Option<Millis> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes a request whose time has come. The caller clears the time in its entry.
    pub(crate) fn pop(&mut self, now: Millis) -> Option<Key> {
        self.due.first().filter(|(at, _)| *at <= now)?;
        self.due.pop_first().map(|(_, key)| key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_was_moved_comes_once() {
        let mut timers = Timers::default();
        timers.set(1, None, Some(10));
        timers.set(1, Some(10), Some(5));
        assert_eq!((timers.first(), timers.pop(4)), (Some(5), None));
        assert_eq!((timers.pop(9), timers.pop(20)), (Some(1), None));
    }
}
