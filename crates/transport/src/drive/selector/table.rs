//! Slots with generations: a token from an earlier use of its slot resolves to nothing.

use std::collections::HashMap;
use std::os::fd::RawFd;

/// Names an entry, and never a later one in the same slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    slot: u32,
    generation: u32,
}

impl Token {
    pub(super) fn bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "each half is what `bits` put there"
    )]
    pub(super) fn from_bits(bits: u64) -> Self {
        Self {
            slot: bits as u32,
            generation: (bits >> 32) as u32,
        }
    }
}

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
struct Slot<T> {
    generation: u32,
    entry: Option<Entry<T>>,
}

#[derive(Debug)]
pub struct WatchTable<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    by_descriptor: HashMap<RawFd, u32>,
}

impl<T> WatchTable<T> {
    pub fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
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
    ) -> Token {
        debug_assert!(!self.by_descriptor.contains_key(&descriptor));
        let entry = Some(Entry {
            descriptor,
            kind,
            interest,
            payload,
        });
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                entry: None,
            });
            u32::try_from(self.slots.len() - 1).expect("fewer slots than descriptors")
        });
        self.by_descriptor.insert(descriptor, slot);
        let slot_entry = &mut self.slots[slot as usize];
        slot_entry.entry = entry;
        Token {
            slot,
            generation: slot_entry.generation,
        }
    }

    /// Take an entry out; its token means nothing from now on.
    pub fn remove(&mut self, descriptor: RawFd) -> Option<Entry<T>> {
        let slot = self.by_descriptor.remove(&descriptor)?;
        let slot_entry = &mut self.slots[slot as usize];
        slot_entry.generation = slot_entry.generation.wrapping_add(1);
        self.free.push(slot);
        slot_entry.entry.take()
    }

    pub fn get(&self, descriptor: RawFd) -> Option<&Entry<T>> {
        self.find(descriptor).map(|(_, entry)| entry)
    }

    pub fn find(&self, descriptor: RawFd) -> Option<(Token, &Entry<T>)> {
        let slot = *self.by_descriptor.get(&descriptor)?;
        let slot_entry = &self.slots[slot as usize];
        let generation = slot_entry.generation;
        let entry = slot_entry.entry.as_ref()?;
        Some((Token { slot, generation }, entry))
    }

    pub fn find_mut(&mut self, descriptor: RawFd) -> Option<(Token, &mut Entry<T>)> {
        let slot = *self.by_descriptor.get(&descriptor)?;
        let slot_entry = &mut self.slots[slot as usize];
        let generation = slot_entry.generation;
        let entry = slot_entry.entry.as_mut()?;
        Some((Token { slot, generation }, entry))
    }

    pub fn resolve(&self, token: Token) -> Option<&Entry<T>> {
        let slot_entry = self.slots.get(token.slot as usize)?;
        slot_entry
            .entry
            .as_ref()
            .filter(|_| slot_entry.generation == token.generation)
    }

    pub fn entries(&self) -> impl Iterator<Item = &Entry<T>> {
        self.slots.iter().filter_map(|slot| slot.entry.as_ref())
    }

    pub fn entries_mut(&mut self) -> impl Iterator<Item = &mut Entry<T>> {
        self.slots.iter_mut().filter_map(|slot| slot.entry.as_mut())
    }

    pub fn tokens(&self) -> impl Iterator<Item = (Token, &Entry<T>)> {
        self.entries()
            .filter_map(|entry| self.find(entry.descriptor))
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
        assert_eq!(first.slot, second.slot);
    }

    #[test]
    fn a_token_passes_through_64_bits() {
        let token = Token {
            slot: 3,
            generation: u32::MAX,
        };
        assert_eq!(Token::from_bits(token.bits()), token);
    }

    #[test]
    fn slots_are_used_again() {
        let mut table = table();
        for round in 0..100 {
            table.insert(round, WatchKind::Registered, Interest::READ, "");
            table.remove(round);
        }
        assert_eq!((table.slots.len(), table.len()), (1, 0));
    }
}
