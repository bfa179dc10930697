//! Values in numbered slots that are reused, each use told from the one before.
//!
//! A [`Key`] is the number of a slot and its *generation*, which grows when the slot is emptied. What is addressed by
//! a key that is out of date (an event that the kernel had queued, an answer that comes late) finds nothing, though
//! another value is in the slot by now.
//!
//! A generation has 24 bits, so that a key fits a 64-bit word beside the kind of an event ([`crate::poll`]). It comes
//! round after 16.7 million reuses of one slot; no event and no answer waits for so long.
//!
//! Slots that are free form a list through the slots themselves: nothing is allocated once there are as many slots as
//! values at one time. Alternatives: `HashMap<u64, T>` pays a hash for each event; the crate `slab` has no generations;
//! `slotmap` has, in 32 bits of its own layout, which leave no room for a kind.

const GENERATION_BITS: u32 = 24;
const GENERATION_MASK: u32 = (1 << GENERATION_BITS) - 1;
/// The end of the list of free slots.
const NONE: u32 = u32::MAX;

/// The number of a slot, and which use of it is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The number of the slot.
    pub index: u32,
    /// How often the slot had been emptied before; below 2^24.
    pub generation: u32,
}

impl Key {
    /// The key in the lower 56 bits of a word.
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation & GENERATION_MASK) << u32::BITS | u64::from(self.index)
    }

    /// The key in the lower 56 bits; the upper 8 are ignored.
    #[expect(clippy::cast_possible_truncation, reason = "its parts")]
    pub fn from_bits(bits: u64) -> Self {
        Self {
            index: bits as u32,
            generation: (bits >> u32::BITS) as u32 & GENERATION_MASK,
        }
    }
}

#[derive(Debug)]
struct Slot<T> {
    value: Option<T>,
    generation: u32,
    next_free: u32,
}

/// Values that come and go. All operations but iteration take constant time.
#[derive(Debug)]
pub struct Slots<T> {
    all: Vec<Slot<T>>,
    free: u32,
    len: usize,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Slots<T> {
    /// No slots yet.
    pub const fn new() -> Self {
        Self {
            all: Vec::new(),
            free: NONE,
            len: 0,
        }
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Put a value into a free slot; the one that was emptied last is reused first.
    ///
    /// # Panics
    /// Beyond 2^32 - 1 values, which the limits of all users are far below.
    pub fn insert(&mut self, value: T) -> Key {
        self.insert_with(|_| value)
    }

    /// Make a value that knows its key.
    ///
    /// # Panics
    /// As [`Self::insert`].
    pub fn insert_with(&mut self, make: impl FnOnce(Key) -> T) -> Key {
        if self.free == NONE {
            self.free = u32::try_from(self.all.len()).expect("limits are below 2^32");
            self.all.push(Slot {
                value: None,
                generation: 0,
                next_free: NONE,
            });
        }
        let index = self.free;
        let slot = &mut self.all[index as usize];
        let generation = slot.generation;
        let key = Key { index, generation };
        slot.value = Some(make(key));
        self.free = slot.next_free;
        self.len += 1;
        key
    }

    /// The value of a key; nothing once it was removed.
    pub fn get(&self, key: Key) -> Option<&T> {
        let slot = self.all.get(key.index as usize)?;
        slot.value
            .as_ref()
            .filter(|_| slot.generation == key.generation)
    }

    /// The value of a key; nothing once it was removed.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.all.get_mut(key.index as usize)?;
        let current = slot.generation == key.generation;
        slot.value.as_mut().filter(|_| current)
    }

    /// Whether the value of a key is still there.
    pub fn contains(&self, key: Key) -> bool {
        self.get(key).is_some()
    }

    /// What is in a slot now, with its key: for numbers whose generation was checked before.
    pub fn at(&self, index: u32) -> Option<(Key, &T)> {
        let slot = self.all.get(index as usize)?;
        let value = slot.value.as_ref()?;
        Some((slot.key(index), value))
    }

    /// What is in a slot now.
    pub fn at_mut(&mut self, index: u32) -> Option<(Key, &mut T)> {
        let slot = self.all.get_mut(index as usize)?;
        let key = slot.key(index);
        Some((key, slot.value.as_mut()?))
    }

    /// Take the value of a key out; the key finds nothing from now on.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.all.get_mut(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = (slot.generation + 1) & GENERATION_MASK;
        slot.next_free = self.free;
        self.free = key.index;
        self.len -= 1;
        Some(value)
    }

    /// Put another value under a key, which stays; the one before is returned. Nothing happens where there is none.
    pub fn replace(&mut self, key: Key, value: T) -> Option<T> {
        self.get_mut(key)
            .map(|current| std::mem::replace(current, value))
    }

    /// One more than the highest number of a slot, in use or free.
    pub fn end(&self) -> u32 {
        u32::try_from(self.all.len()).unwrap_or(u32::MAX)
    }

    /// All values by their keys, in the order of the slots.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        (0..)
            .zip(&self.all)
            .filter_map(|(index, slot)| Some((slot.key(index), slot.value.as_ref()?)))
    }

    /// All values by their keys, in the order of the slots.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Key, &mut T)> {
        (0..)
            .zip(&mut self.all)
            .filter_map(|(index, slot)| Some((slot.key(index), slot.value.as_mut()?)))
    }
}

impl<T> Slot<T> {
    fn key(&self, index: u32) -> Key {
        Key {
            index,
            generation: self.generation,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_finds_nothing_once_its_value_was_removed() {
        let mut slots = Slots::new();
        let first = slots.insert("first");
        assert_eq!(slots.get(first), Some(&"first"));
        assert_eq!(slots.remove(first), Some("first"));
        assert_eq!(slots.remove(first), None);
        let second = slots.insert("second");
        assert_eq!(second.index, first.index);
        assert!(slots.contains(second) && !slots.contains(first));
        assert_eq!(slots.get_mut(first), None);
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.at(first.index), Some((second, &"second")));
        assert_eq!(slots.len(), 1);
    }

    #[test]
    fn free_slots_are_used_before_there_are_more() {
        let mut slots = Slots::new();
        let keys: Vec<_> = (0..4).map(|value| slots.insert(value)).collect();
        slots.remove(keys[1]);
        slots.remove(keys[3]);
        slots.insert(5);
        slots.insert(6);
        assert_eq!((slots.end(), slots.len()), (4, 4));
        let values: Vec<_> = slots.iter().map(|(_, &value)| value).collect();
        assert_eq!(values, [0, 6, 2, 5]);
    }

    #[test]
    fn a_value_knows_its_key_and_may_be_replaced_under_it() {
        let mut slots = Slots::new();
        let key = slots.insert_with(|key| key.index);
        assert_eq!(slots.replace(key, 7), Some(0));
        assert_eq!(slots.get(key), Some(&7));
        slots.remove(key);
        assert_eq!(slots.replace(key, 8), None);
    }

    #[test]
    fn a_key_survives_a_word_and_a_generation_comes_round() {
        let key = Key {
            index: u32::MAX,
            generation: GENERATION_MASK,
        };
        assert_eq!(Key::from_bits(0xff << 56 | key.to_bits()), key);
        let mut slots = Slots::new();
        slots.insert(());
        slots.all[0].generation = GENERATION_MASK;
        let (last, ()) = slots.at(0).expect("a value");
        slots.remove(last);
        assert_eq!(slots.insert(()), Key::default());
    }
}
