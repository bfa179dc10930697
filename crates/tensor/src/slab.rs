//! Values by number, where each place remembers how often it was given up: an old number finds nothing.

/// A place and how often it had been given up when the value was put there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Id {
    pub(crate) index: u32,
    pub(crate) count: u32,
}

const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Place<T> {
    value: Option<T>,
    count: u32,
    next_free: u32,
}

/// Values that come and go; places are reused, so nothing is allocated once there are as many as are needed at once.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<Place<T>>,
    free: u32,
    len: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self {
            places: Vec::new(),
            free: NONE,
            len: 0,
        }
    }

    /// How many values there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// # Panics
    ///
    /// Beyond 2^32 - 1 values, which the limits of all users are far below.
    pub(crate) fn insert(&mut self, value: T) -> Id {
        self.len += 1;
        if self.free == NONE {
            let index = u32::try_from(self.places.len()).expect("limits are below 2^32");
            self.places.push(Place {
                value: Some(value),
                count: 0,
                next_free: NONE,
            });
            return Id { index, count: 0 };
        }
        let index = self.free;
        let place = &mut self.places[index as usize];
        self.free = place.next_free;
        place.value = Some(value);
        Id {
            index,
            count: place.count,
        }
    }

    /// The value at a place, and the number under which it was put there.
    pub(crate) fn at(&self, index: u32) -> Option<(Id, &T)> {
        let place = self.places.get(index as usize)?;
        let value = place.value.as_ref()?;
        let count = place.count;
        Some((Id { index, count }, value))
    }

    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.places.get(index as usize)?.value.as_ref()
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.places.get_mut(index as usize)?.value.as_mut()
    }

    /// Whether the value is still the one that was given this number.
    pub(crate) fn has(&self, number: Id) -> bool {
        self.at(number.index)
            .is_some_and(|(found, _)| found == number)
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let place = self.places.get_mut(index as usize)?;
        let value = place.value.take()?;
        place.count = place.count.wrapping_add(1);
        place.next_free = self.free;
        self.free = index;
        self.len -= 1;
        Some(value)
    }

    /// One more than the highest place in use or free.
    pub(crate) fn end(&self) -> u32 {
        u32::try_from(self.places.len()).expect("limits are below 2^32")
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..)
            .zip(&self.places)
            .filter_map(|(index, place)| Some((index, place.value.as_ref()?)))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        (0..)
            .zip(&mut self.places)
            .filter_map(|(index, place)| Some((index, place.value.as_mut()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_finds_nothing_once_its_value_is_gone() {
        let mut slab = Slab::new();
        let first = slab.insert("first");
        assert_eq!(slab.get(first.index), Some(&"first"));
        assert_eq!(slab.remove(first.index), Some("first"));
        assert_eq!(slab.remove(first.index), None);
        let second = slab.insert("second");
        assert_eq!(second.index, first.index);
        assert!(slab.has(second) && !slab.has(first));
        assert_eq!(slab.len(), 1);
    }

    #[test]
    fn places_are_used_again_before_there_are_more() {
        let mut slab = Slab::new();
        let numbers: Vec<_> = (0..4).map(|value| slab.insert(value)).collect();
        slab.remove(numbers[1].index);
        slab.remove(numbers[3].index);
        slab.insert(5);
        slab.insert(6);
        assert_eq!(slab.end(), 4);
        let values: Vec<_> = slab.iter().map(|(_, &value)| value).collect();
        assert_eq!(values, [0, 6, 2, 5]);
    }
}
