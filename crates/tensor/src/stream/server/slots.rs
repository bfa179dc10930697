//! The connections of a server, by slot and generation.
//!
//! Events carry both, never a descriptor: an event of a closed connection does not reach the one that reuses its slot.
use forebay_transport::Wire;

use super::handshake::Handshake;
use super::reactor::PeerConnection;
use crate::slab::Id;

/// Identifies a connection; the generation distinguishes it from earlier ones in the same slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotKey {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl SlotKey {
    /// The data of its epoll events. The highest values are never keys of slots.
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

/// The connection in a slot.
pub(super) enum Connection {
    /// Its handshake is not finished.
    Handshake(Box<Handshake>),
    Peer(Box<PeerConnection>),
    /// A connection over the fabric: its responder endpoint, and the slot of its lifeline.
    Endpoint(Id, SlotKey),
    /// The lifeline of a fabric connection, and the slot of its endpoint.
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

    /// Replace the connection in a slot; the key stays valid.
    pub(super) fn replace(&mut self, key: SlotKey, connection: Connection) -> Option<Connection> {
        self.get(key)
            .map(|taken| std::mem::replace(taken, connection))
    }

    pub(super) fn remove(&mut self, key: SlotKey) -> Option<Connection> {
        self.get(key)?;
        let slot = &mut self.slots[key.index as usize];
        // The highest generation is skipped, so that no key equals the event data of a listener.
        slot.generation = (slot.generation + 1) % (u32::MAX - 1);
        self.free.push(key.index);
        slot.connection.take()
    }

    /// The keys of all connections.
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
