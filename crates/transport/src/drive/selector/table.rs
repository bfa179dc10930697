//! The watched descriptors: by their token, which an event carries, and by their number, which the program names.

use std::collections::HashMap;
use std::os::fd::RawFd;

use forebay_base::slots::{Key, Slots};

/// Who handles an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchKind {
    /// The caller of the wait gets it in a list.
    Registered,
    /// It is handled within the wait.
    Attached,
}

/// A watched descriptor.
#[derive(Debug)]
pub struct Entry<T> {
    pub descriptor: RawFd,
    pub kind: WatchKind,
    pub interest: super::Interest,
    pub payload: T,
}

#[derive(Debug)]
pub struct WatchTable<T> {
    entries: Slots<Entry<T>>,
    by_descriptor: HashMap<RawFd, Key>,
}

impl<T> WatchTable<T> {
    pub fn new() -> Self {
        Self {
            entries: Slots::new(),
            by_descriptor: HashMap::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.by_descriptor.len()
    }

    /// Add an entry for a descriptor that has none.
    pub fn insert(
        &mut self,
        descriptor: RawFd,
        kind: WatchKind,
        interest: super::Interest,
        payload: T,
    ) -> Key {
        debug_assert!(!self.by_descriptor.contains_key(&descriptor));
        let token = self.entries.insert(Entry {
            descriptor,
            kind,
            interest,
            payload,
        });
        self.by_descriptor.insert(descriptor, token);
        token
    }

    /// Take an entry out; its token means nothing from now on.
    pub fn remove(&mut self, descriptor: RawFd) -> Option<Entry<T>> {
        let token = self.by_descriptor.remove(&descriptor)?;
        self.entries.remove(token)
    }

    pub fn get(&self, descriptor: RawFd) -> Option<&Entry<T>> {
        self.find(descriptor).map(|(_, entry)| entry)
    }

    pub fn find(&self, descriptor: RawFd) -> Option<(Key, &Entry<T>)> {
        let token = *self.by_descriptor.get(&descriptor)?;
        Some((token, self.entries.get(token)?))
    }

    pub fn find_mut(&mut self, descriptor: RawFd) -> Option<(Key, &mut Entry<T>)> {
        let token = *self.by_descriptor.get(&descriptor)?;
        Some((token, self.entries.get_mut(token)?))
    }

    pub fn resolve(&self, token: Key) -> Option<&Entry<T>> {
        self.entries.get(token)
    }

    pub fn entries(&self) -> impl Iterator<Item = &Entry<T>> {
        self.tokens().map(|(_, entry)| entry)
    }

    pub fn entries_mut(&mut self) -> impl Iterator<Item = &mut Entry<T>> {
        self.entries.iter_mut().map(|(_, entry)| entry)
    }

    pub fn tokens(&self) -> impl Iterator<Item = (Key, &Entry<T>)> {
        self.entries.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::selector::Interest;

    fn table() -> WatchTable<&'static str> {
        WatchTable::new()
    }

    #[test]
    fn a_token_dies_with_its_entry_though_slot_and_number_come_back() {
        let mut table = table();
        let first = table.insert(7, WatchKind::Attached, Interest::READ, "first");
        assert_eq!(table.resolve(first).map(|e| e.payload), Some("first"));
        assert_eq!(table.remove(7).map(|e| e.payload), Some("first"));
        let second = table.insert(7, WatchKind::Attached, Interest::READ, "second");
        assert_eq!(table.resolve(first).map(|e| e.payload), None);
        assert_eq!(table.resolve(second).map(|e| e.payload), Some("second"));
        assert_eq!(first.index, second.index);
    }

    #[test]
    fn slots_are_used_again() {
        let mut table = table();
        for round in 0..100 {
            table.insert(round, WatchKind::Registered, Interest::READ, "");
            table.remove(round);
        }
        assert_eq!((table.entries.end(), table.len()), (1, 0));
    }
}
