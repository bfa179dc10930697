//! A table of reusable slots whose keys tell one use from the next.

use crate::dispatcher::poll::SlotKey;

#[derive(Debug)]
struct Seat<T> {
    generation: u32,
    taken: Option<T>,
}

/// Values by key. A key of an earlier use finds nothing, whatever its slot holds now.
#[derive(Debug)]
pub struct Slots<T> {
    slots: Vec<Seat<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slots<T> {
    /// Add the value that `make` returns for its key.
    pub fn add(&mut self, make: impl FnOnce(SlotKey) -> T) -> SlotKey {
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Seat {
                generation: 0,
                taken: None,
            });
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        let seat = &mut self.slots[number as usize];
        let key = SlotKey {
            number,
            generation: seat.generation,
        };
        seat.taken = Some(make(key));
        key
    }

    pub fn get(&self, key: SlotKey) -> Option<&T> {
        let seat = self.slots.get(key.number as usize)?;
        let same = seat.generation == key.generation;
        seat.taken.as_ref().filter(|_| same)
    }

    pub fn get_mut(&mut self, key: SlotKey) -> Option<&mut T> {
        let seat = self.slots.get_mut(key.number as usize)?;
        let same = seat.generation == key.generation;
        seat.taken.as_mut().filter(|_| same)
    }

    /// Take a value out; its slot is free again.
    pub fn remove(&mut self, key: SlotKey) -> Option<T> {
        let seat = self.slots.get_mut(key.number as usize)?;
        if seat.generation != key.generation {
            return None;
        }
        let taken = seat.taken.take()?;
        seat.generation = SlotKey::next_generation(seat.generation);
        self.free.push(key.number);
        Some(taken)
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_key_names_nothing() {
        let mut slots = Slots::default();
        let first = slots.add(|_| 'a');
        assert_eq!(slots.remove(first), Some('a'));
        let second = slots.add(|_| 'b');
        assert_eq!(first.number, second.number);
        assert_eq!(slots.get_mut(first), None);
        assert_eq!(slots.len(), 1);
        assert_eq!(
            (slots.remove(first), slots.get_mut(second)),
            (None, Some(&mut 'b'))
        );
    }
}
