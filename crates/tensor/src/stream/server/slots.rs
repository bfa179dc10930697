//! Who is connected, by number and generation.
//!
//! Events carry both, never a descriptor: what was meant for a connection that is gone does not reach the one that took
//! its place.
use forebay_transport::Wire;

use super::handshake::Handshake;
use super::reactor::PeerConnection;
use crate::slab::Id;

/// Which connection, told from one that had its number before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotKey {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl SlotKey {
    /// As epoll keeps it. The highest numbers are never given to a seat.
    pub(super) fn to_data(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    #[allow(clippy::cast_possible_truncation)] // its two halves
    pub(super) fn from_data(data: u64) -> Self {
        Self {
            index: data as u32,
            generation: (data >> 32) as u32,
        }
    }
}

/// Who sits there.
pub(super) enum Connection {
    /// It has not said yet what it wants.
    Handshake(Box<Handshake>),
    Peer(Box<PeerConnection>),
    /// A connection over the fabric: which responder endpoint, and where its lifeline sits.
    Endpoint(Id, SlotKey),
    /// The stream of one, and where that sits.
    Lifeline(Box<Wire>, SlotKey),
}

#[derive(Default)]
struct Slot {
    generation: u32,
    connection: Option<Connection>,
}

#[derive(Default)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Slots {
    pub(super) fn insert(&mut self, connection: Connection) -> SlotKey {
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        let slot = &mut self.slots[number as usize];
        slot.connection = Some(connection);
        SlotKey {
            index: number,
            generation: slot.generation,
        }
    }

    pub(super) fn get(&mut self, key: SlotKey) -> Option<&mut Connection> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        slot.connection.as_mut()
    }

    /// Have somebody else sit there, who keeps the place.
    pub(super) fn replace(&mut self, key: SlotKey, connection: Connection) -> Option<Connection> {
        self.get(key)
            .map(|taken| std::mem::replace(taken, connection))
    }

    pub(super) fn remove(&mut self, key: SlotKey) -> Option<Connection> {
        self.get(key)?;
        let slot = &mut self.slots[key.index as usize];
        // The highest generation is left out, so that no place has the data of a door.
        slot.generation = (slot.generation + 1) % (u32::MAX - 1);
        self.free.push(key.index);
        slot.connection.take()
    }

    /// Everybody's place.
    pub(super) fn keys(&self) -> Vec<SlotKey> {
        let taken = |(slot, number): (&Slot, u32)| {
            slot.connection.is_some().then_some(SlotKey {
                index: number,
                generation: slot.generation,
            })
        };
        self.slots.iter().zip(0..).filter_map(taken).collect()
    }
}
