//! The state of each slot: the bookkeeping under the decisions.

use super::{Action, CallerGroup, Key, Machine, Slot};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    Free,
    Lent,
    Idle { settled: bool },
    Settling,
    Dying,
}

#[derive(Clone, Copy, Debug)]
pub struct SlotEntry {
    pub key: Key,
    /// The callers that may share it while it is lent.
    pub group: CallerGroup,
    pub state: SlotState,
    /// Whether it counts against `max_size`: not where a lease's holder had its service copied.
    pub counts: bool,
    /// Leases that it has.
    pub users: u32,
    /// It takes no further leases, and is ended with its last one.
    pub closed: bool,
}

/// The services of one key.
#[derive(Debug, Default)]
pub struct KeyServices {
    /// Idle slots, the one used last on top.
    pub idle: Vec<Slot>,
    /// How many are settling.
    pub settling: usize,
    /// Leases that one service may have at once; 0 is 1.
    pub share: u32,
    /// Its services are not ended to make room.
    pub kept: bool,
    /// Lent slots that may be joined.
    pub joinable: Vec<Slot>,
}

impl Machine {
    /// A service is dying from now on.
    pub(super) fn end(&mut self, slot: Slot) {
        let SlotEntry { key, counts, .. } = self.services[slot as usize];
        let kind = self.keys.entry(key).or_default();
        kind.idle.retain(|&idle| idle != slot);
        self.put(slot, SlotState::Dying);
        self.live -= u32::from(counts);
    }

    pub(super) fn evict(&mut self, slot: Slot, actions: &mut Vec<Action>) {
        self.end(slot);
        actions.push(Action::Evict(slot));
    }

    pub(super) fn occupy(&mut self, key: Key, group: CallerGroup) -> Slot {
        let service = SlotEntry {
            key,
            group,
            state: SlotState::Lent,
            counts: true,
            users: 1,
            closed: false,
        };
        self.live += 1;
        self.running += 1;
        if let Some(slot) = self.free.pop() {
            self.services[slot as usize] = service;
            return slot;
        }
        self.services.push(service);
        // Bounded by `max_size` and the dying, far below 2^32.
        u32::try_from(self.services.len() - 1).unwrap_or(u32::MAX)
    }

    pub(super) fn vacate(&mut self, slot: Slot) {
        self.put(slot, SlotState::Free);
        self.free.push(slot);
        self.live -= 1;
    }

    pub(super) fn put_back(&mut self, slot: Slot, state: SlotState) {
        self.put(slot, state);
        if matches!(state, SlotState::Idle { .. }) {
            let key = self.services[slot as usize].key;
            self.keys.entry(key).or_default().idle.push(slot);
        }
    }

    /// Move a service to another state, counting those that settle.
    pub(super) fn put(&mut self, slot: Slot, state: SlotState) {
        let service = &mut self.services[slot as usize];
        if service.counts {
            self.running -= u32::from(service.state == SlotState::Lent);
            self.running += u32::from(state == SlotState::Lent);
        }
        let kind = self.keys.entry(service.key).or_default();
        kind.settling -= usize::from(service.state == SlotState::Settling);
        kind.settling += usize::from(state == SlotState::Settling);
        if service.state == SlotState::Lent {
            kind.joinable.retain(|&joinable| joinable != slot);
        }
        if state != SlotState::Dying {
            service.users = u32::from(state == SlotState::Lent); // of a dying one each learns by itself
        }
        service.state = state;
    }
}
