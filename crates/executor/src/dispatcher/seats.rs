//! A table of places that are used again, each use told from the one before.

use crate::dispatcher::poll::Place;

#[derive(Debug)]
struct Seat<T> {
    generation: u32,
    taken: Option<T>,
}

/// Things by place. A place that was given up names nothing any more, whoever sits there next.
#[derive(Debug)]
pub struct Seats<T> {
    seats: Vec<Seat<T>>,
    free: Vec<u32>,
}

impl<T> Default for Seats<T> {
    fn default() -> Self {
        Self {
            seats: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Seats<T> {
    /// Put something in, which is told its place first.
    pub fn add(&mut self, make: impl FnOnce(Place) -> T) -> Place {
        let number = self.free.pop().unwrap_or_else(|| {
            self.seats.push(Seat {
                generation: 0,
                taken: None,
            });
            u32::try_from(self.seats.len() - 1).unwrap_or(u32::MAX)
        });
        let seat = &mut self.seats[number as usize];
        let place = Place {
            number,
            generation: seat.generation,
        };
        seat.taken = Some(make(place));
        place
    }

    pub fn get(&self, place: Place) -> Option<&T> {
        let seat = self.seats.get(place.number as usize)?;
        let same = seat.generation == place.generation;
        seat.taken.as_ref().filter(|_| same)
    }

    pub fn get_mut(&mut self, place: Place) -> Option<&mut T> {
        let seat = self.seats.get_mut(place.number as usize)?;
        let same = seat.generation == place.generation;
        seat.taken.as_mut().filter(|_| same)
    }

    /// Take it out; its number may be given again.
    pub fn remove(&mut self, place: Place) -> Option<T> {
        let seat = self.seats.get_mut(place.number as usize)?;
        if seat.generation != place.generation {
            return None;
        }
        let taken = seat.taken.take()?;
        seat.generation = Place::next_generation(seat.generation);
        self.free.push(place.number);
        Some(taken)
    }

    pub fn len(&self) -> usize {
        self.seats.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_was_given_up_names_nothing() {
        let mut seats = Seats::default();
        let first = seats.add(|_| 'a');
        assert_eq!(seats.remove(first), Some('a'));
        let second = seats.add(|_| 'b');
        assert_eq!(first.number, second.number);
        assert_eq!(seats.get_mut(first), None);
        assert_eq!(seats.len(), 1);
        assert_eq!(
            (seats.remove(first), seats.get_mut(second)),
            (None, Some(&mut 'b'))
        );
    }
}
