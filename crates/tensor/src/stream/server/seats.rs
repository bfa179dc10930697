//! Who is connected, by number and generation.
//!
//! Events carry both, never a descriptor: what was meant for a connection that is gone does not reach the one that took
//! its place.
use forebay_transport::stream::Wire;

use super::guest::Guest;
use super::reactor::Peer;
use crate::slab::Id;

/// Which connection, told from one that had its number before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) seat: u32,
    pub(super) generation: u32,
}

impl Place {
    /// As epoll keeps it. The highest numbers are never given to a seat.
    pub(super) fn to_data(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.seat)
    }

    #[allow(clippy::cast_possible_truncation)] // its two halves
    pub(super) fn from_data(data: u64) -> Self {
        Self {
            seat: data as u32,
            generation: (data >> 32) as u32,
        }
    }
}

/// Who sits there.
pub(super) enum Occupant {
    /// It has not said yet what it wants.
    Guest(Box<Guest>),
    Peer(Box<Peer>),
    /// A connection over the fabric: which responder endpoint, and where its lifeline sits.
    Answerer(Id, Place),
    /// The stream of one, and where that sits.
    Lifeline(Box<Wire>, Place),
}

#[derive(Default)]
struct Seat {
    generation: u32,
    occupant: Option<Occupant>,
}

#[derive(Default)]
pub(super) struct Seats {
    seats: Vec<Seat>,
    free: Vec<u32>,
}

impl Seats {
    pub(super) fn sit(&mut self, occupant: Occupant) -> Place {
        let number = self.free.pop().unwrap_or_else(|| {
            self.seats.push(Seat::default());
            u32::try_from(self.seats.len() - 1).unwrap_or(u32::MAX)
        });
        let seat = &mut self.seats[number as usize];
        seat.occupant = Some(occupant);
        Place {
            seat: number,
            generation: seat.generation,
        }
    }

    pub(super) fn get(&mut self, place: Place) -> Option<&mut Occupant> {
        let seat = self.seats.get_mut(place.seat as usize)?;
        if seat.generation != place.generation {
            return None;
        }
        seat.occupant.as_mut()
    }

    /// Have somebody else sit there, who keeps the place.
    pub(super) fn replace(&mut self, place: Place, occupant: Occupant) -> Option<Occupant> {
        self.get(place)
            .map(|seated| std::mem::replace(seated, occupant))
    }

    pub(super) fn leave(&mut self, place: Place) -> Option<Occupant> {
        self.get(place)?;
        let seat = &mut self.seats[place.seat as usize];
        // The highest generation is left out, so that no place has the data of a door.
        seat.generation = (seat.generation + 1) % (u32::MAX - 1);
        self.free.push(place.seat);
        seat.occupant.take()
    }

    /// Everybody's place.
    pub(super) fn places(&self) -> Vec<Place> {
        let taken = |(seat, number): (&Seat, u32)| {
            seat.occupant.is_some().then_some(Place {
                seat: number,
                generation: seat.generation,
            })
        };
        self.seats.iter().zip(0..).filter_map(taken).collect()
    }
}
