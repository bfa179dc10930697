//! Which caller gets which service next: the pool's decisions, without a process, a clock or a lock.
//!
//! A *slot* is one service; a *key* names what makes services interchangeable; a *ticket* is one caller; a *group* is
//! the callers that may use one service at the same time, since they use one connection to it.
//!
//! ```text
//!   slot:    Free -> Lent (starting: lent to the caller that starts it) <-> Idle
//!                     |  ^                                            |
//!                     v  |                                            v
//!                   Settling (its answer is to come: started or reset) -> Dying -> Free
//!   ticket:  asked -> granted at once | waiting -> granted -> taken
//! ```
//! Invariants, held by the model test:
//! - a slot is in exactly one state, and granted to one ticket unless its key is shared;
//! - lent + idle + settling never exceeds `max_size`; a dying service does not count, its successor may start;
//! - a service has at most as many leases as its key allows, one where it says nothing, and all of them are of one group;
//! - lent never exceeds `max_running`; copies of a lent service count in neither;
//! - below `max_running` no ticket waits while a fitting service is idle, or while there is room or another key's idle service to evict
//!   (one that is kept is not),
//!   unless a settling service of the key is about to become free, one for each ticket that waits so;
//! - first come, first served: a newcomer overtakes, whatever key each wants, only tickets that chose to wait for a
//!   settling service rather than take what there is, and tickets for which kept services make no room.

mod slot;

use std::collections::{BTreeMap, VecDeque};

use slot::{KeyServices, SlotEntry, SlotState};

/// One caller.
pub type Ticket = u64;
/// What makes services interchangeable.
pub type Key = u32;
/// The callers that may share a service.
pub type CallerGroup = u64;
/// One service.
pub type Slot = u32;

/// The group of a service that nobody shares: no caller is of it.
const NO_GROUP: CallerGroup = CallerGroup::MAX;

/// What a ticket is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// A service that is ready, as far as is known; `settled` is false where its answer is still to be read.
    Take {
        /// Which.
        slot: Slot,
        /// Nothing is left to read from it.
        settled: bool,
    },
    /// A further lease of a service that its group shares.
    Join {
        /// Which.
        slot: Slot,
    },
    /// Room: the ticket starts a service of its own.
    Start {
        /// For it.
        slot: Slot,
    },
}

/// What the driver does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Wake a waiting ticket.
    Wake(Ticket, Grant),
    /// End a service that is not lent: to make room, or because its last holder left before it came.
    Evict(Slot),
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    ticket: Ticket,
    key: Key,
    group: CallerGroup,
    /// Waits for settling services rather than have one started.
    patient: bool,
}

/// The decisions of one pool.
#[derive(Debug)]
pub struct Machine {
    max_size: u32,
    max_running: u32,
    /// Lent ones, as far as they count.
    running: u32,
    services: Vec<SlotEntry>,
    free: Vec<Slot>,
    keys: BTreeMap<Key, KeyServices>,
    waiting: VecDeque<Waiter>,
    granted: BTreeMap<Ticket, (Waiter, Grant)>,
    live: u32,
}

impl Machine {
    /// A pool of at most `max_size` services, of which at most `max_running` are lent at once.
    pub fn new(max_size: u32, max_running: u32) -> Self {
        Self {
            max_size,
            max_running,
            running: 0,
            services: Vec::new(),
            free: Vec::new(),
            keys: BTreeMap::new(),
            waiting: VecDeque::new(),
            granted: BTreeMap::new(),
            live: 0,
        }
    }

    /// Ask for a service. `None`: the ticket waits; it is woken by an action, or leaves.
    pub fn ask(
        &mut self,
        ticket: Ticket,
        key: Key,
        group: CallerGroup,
        actions: &mut Vec<Action>,
    ) -> Option<Grant> {
        self.waiting.push_back(Waiter {
            ticket,
            key,
            group,
            patient: true,
        });
        // Earlier tickets have been served as far as possible, so only the newcomer can be granted something now.
        self.serve(actions);
        let grant = self.collect(ticket)?;
        actions.retain(|action| *action != Action::Wake(ticket, grant));
        Some(grant)
    }

    /// The service on top of a key's idle ones, where it is settled, no ticket waits and the caller wants it. A service
    /// that can be shared is shared first.
    pub fn take(
        &mut self,
        key: Key,
        group: CallerGroup,
        wanted: impl FnOnce(Slot) -> bool,
    ) -> Option<Slot> {
        if !self.waiting.is_empty() || self.running >= self.max_running {
            return None;
        }
        let kind = self.keys.get_mut(&key)?;
        let slot = *kind.idle.last()?;
        let settled = self.services[slot as usize].state == SlotState::Idle { settled: true };
        if !settled || joinable(kind, &self.services, group).is_some() || !wanted(slot) {
            return None;
        }
        kind.idle.pop();
        self.lend(slot, group);
        Some(slot)
    }

    /// A further lease of a service that its group shares, where there is one with room and no ticket waits.
    pub fn join(&mut self, key: Key, group: CallerGroup) -> Option<Slot> {
        let slot = self
            .joinable(key, group)
            .filter(|_| self.waiting.is_empty())?;
        self.add_user(slot);
        Some(slot)
    }

    /// Room for one more idle service of a key, where it has fewer than `min_idle`.
    pub fn refill(&mut self, key: Key, min_idle: usize) -> Option<Slot> {
        let kind = self.keys.entry(key).or_default();
        let has = kind.idle.len() + kind.settling;
        let room = self.live < self.max_size && self.waiting.is_empty();
        (has < min_idle && room).then(|| self.occupy(key, NO_GROUP))
    }

    /// What a slot's service is interchangeable with.
    pub fn key_of(&self, slot: Slot) -> Key {
        self.services
            .get(slot as usize)
            .map_or(0, |service| service.key)
    }

    /// Room for a copy of a lent service; it belongs to the same holder, and never becomes idle.
    pub fn branch(&mut self, key: Key) -> Slot {
        let slot = self.occupy(key, NO_GROUP);
        self.services[slot as usize].counts = false;
        self.live -= 1;
        self.running -= 1;
        slot
    }

    /// Whether a lent service may be lent on.
    pub fn is_lendable(&self, slot: Slot) -> bool {
        let service = &self.services[slot as usize];
        service.counts && !service.closed
    }

    /// One service of a key may have so many leases at once.
    pub fn share(&mut self, key: Key, leases: u32) {
        self.keys.entry(key).or_default().share = leases;
    }

    /// Services of a key hold state, and make room for no other key.
    pub fn keep(&mut self, key: Key) {
        self.keys.entry(key).or_default().kept = true;
    }

    /// A lent service is settled: others may join it, where its key allows that.
    pub fn open(&mut self, slot: Slot, actions: &mut Vec<Action>) {
        let service = self.services[slot as usize];
        let kind = self.keys.entry(service.key).or_default();
        let lent = service.state == SlotState::Lent && service.counts && !service.closed;
        if lent && service.users < kind.share && !kind.joinable.contains(&slot) {
            kind.joinable.push(slot);
            self.serve(actions);
        }
    }

    /// A lent service takes no further leases, and ends with its last one.
    pub fn close(&mut self, slot: Slot) {
        let service = &mut self.services[slot as usize];
        service.closed = true;
        let kind = self.keys.entry(service.key).or_default();
        kind.joinable.retain(|&joinable| joinable != slot);
    }

    /// A grant to join a service is not taken up: it has ended.
    pub fn unjoin(&mut self, slot: Slot) {
        self.services[slot as usize].users -= 1;
    }

    /// One of several leases of a service ends; false where it is the last, which is then released or lost.
    /// With `closed` it takes no further leases.
    pub fn release_shared(&mut self, slot: Slot, closed: bool, actions: &mut Vec<Action>) -> bool {
        let service = &mut self.services[slot as usize];
        service.closed |= closed;
        let is_last = service.users <= 1;
        if service.closed || is_last {
            let kind = self.keys.entry(service.key).or_default();
            kind.joinable.retain(|&joinable| joinable != slot);
        }
        if is_last {
            return false;
        }
        service.users -= 1;
        self.open(slot, actions);
        true
    }

    /// A waiter has waited long enough for services that are settling: start one for it when there is room.
    pub fn hurry(&mut self, ticket: Ticket, actions: &mut Vec<Action>) {
        if let Some(waiter) = self
            .waiting
            .iter_mut()
            .find(|waiter| waiter.ticket == ticket)
        {
            waiter.patient = false;
            self.serve(actions);
        }
    }

    /// The grant of a woken ticket, to look at.
    pub fn granted(&self, ticket: Ticket) -> Option<Grant> {
        self.granted.get(&ticket).map(|&(_, grant)| grant)
    }

    /// The grant of a woken ticket; the ticket is done.
    pub fn collect(&mut self, ticket: Ticket) -> Option<Grant> {
        self.granted.remove(&ticket).map(|(_, grant)| grant)
    }

    /// A ticket gives up. What it was granted meanwhile goes to the next.
    pub fn leave(&mut self, ticket: Ticket, actions: &mut Vec<Action>) {
        self.waiting.retain(|waiter| waiter.ticket != ticket);
        match self.granted.remove(&ticket) {
            Some((_, Grant::Take { slot, settled })) => {
                self.put_back(slot, SlotState::Idle { settled });
            }
            Some((_, Grant::Join { slot })) => {
                let was_last = !self.release_shared(slot, false, actions);
                if was_last {
                    self.evict(slot, actions); // its last holder left without resetting it
                }
            }
            Some((_, Grant::Start { slot })) => self.vacate(slot),
            None => {}
        }
        self.serve(actions);
    }

    /// A lent service comes back; `settled` is false where its answer to a reset is still to come. Its last holder may be
    /// told apart outside: who was granted a further lease of it and has not looked yet waits again.
    pub fn release(&mut self, slot: Slot, settled: bool, actions: &mut Vec<Action>) {
        debug_assert_eq!(
            self.services[slot as usize].state,
            SlotState::Lent,
            "released but not lent"
        );
        self.requeue(slot);
        self.put_back(
            slot,
            if settled {
                SlotState::Idle { settled }
            } else {
                SlotState::Settling
            },
        );
        self.serve(actions);
    }

    /// A settling service has something to read.
    pub fn readable(&mut self, slot: Slot, actions: &mut Vec<Action>) {
        if self.services[slot as usize].state == SlotState::Settling {
            self.put_back(slot, SlotState::Idle { settled: false });
            self.serve(actions);
        }
    }

    /// A service is being ended, or has ended. Its slot stays taken until `free_slot`.
    pub fn lose(&mut self, slot: Slot, actions: &mut Vec<Action>) {
        let Some(&SlotEntry { state, .. }) = self.services.get(slot as usize) else {
            return;
        };
        if matches!(state, SlotState::Free | SlotState::Dying) {
            return;
        }
        self.end(slot);
        self.requeue(slot);
        self.serve(actions);
    }

    /// The death of a service has been reported: its slot is free.
    pub fn free_slot(&mut self, slot: Slot) {
        if let Some(service) = self.services.get_mut(slot as usize)
            && service.state == SlotState::Dying
        {
            service.state = SlotState::Free;
            self.free.push(slot);
        }
    }

    /// Services that count against `max_size`.
    pub fn live(&self) -> u32 {
        self.live
    }

    /// Callers that wait.
    pub fn waiters(&self) -> usize {
        self.waiting.len()
    }

    /// Whether a service of a key is idle and no one waits for it.
    pub fn has_idle(&self, key: Key) -> bool {
        self.waiting.is_empty() && self.has_idle_of(key)
    }

    /// Whether a service of a key is idle.
    pub fn has_idle_of(&self, key: Key) -> bool {
        self.keys
            .get(&key)
            .is_some_and(|kind| !kind.idle.is_empty())
    }

    /// Idle services.
    pub fn idle(&self) -> usize {
        self.keys.values().map(|kind| kind.idle.len()).sum()
    }

    /// Services of a key that are settling.
    pub fn settling_of(&self, key: Key) -> usize {
        self.keys.get(&key).map_or(0, |kind| kind.settling)
    }

    /// Services that are settling.
    pub fn settling(&self) -> usize {
        self.keys.values().map(|kind| kind.settling).sum()
    }

    /// Slots that are not free.
    pub fn occupied(&self) -> impl Iterator<Item = Slot> + '_ {
        (0..)
            .zip(&self.services)
            .filter(|(_, service)| service.state != SlotState::Free)
            .map(|(slot, _)| slot)
    }

    /// Slots of services that are not lent, settled or not.
    pub fn unlent(&self) -> impl Iterator<Item = Slot> + '_ {
        self.occupied().filter(|&slot| {
            let state = self.services[slot as usize].state;
            matches!(state, SlotState::Idle { .. } | SlotState::Settling)
        })
    }

    /// The service that a group shares which has room for a further lease.
    fn joinable(&self, key: Key, group: CallerGroup) -> Option<Slot> {
        joinable(self.keys.get(&key)?, &self.services, group)
    }

    /// A further lease of a service begins.
    fn add_user(&mut self, slot: Slot) {
        let service = &mut self.services[slot as usize];
        service.users += 1;
        let kind = self.keys.entry(service.key).or_default();
        if service.users >= kind.share {
            kind.joinable.retain(|&joinable| joinable != slot);
        }
    }

    /// A service is lent to a caller of a group.
    fn lend(&mut self, slot: Slot, group: CallerGroup) {
        self.put(slot, SlotState::Lent);
        self.services[slot as usize].group = group;
    }

    /// Who was granted a service and has not looked yet waits again, at the head of the queue.
    fn requeue(&mut self, slot: Slot) {
        // The first is put there last.
        let holders: Vec<(Waiter, Grant)> = self.granted.values().rev().copied().collect();
        for (waiter, grant) in holders
            .into_iter()
            .filter(|(_, grant)| grant.slot() == slot)
        {
            self.granted.remove(&waiter.ticket);
            if let Grant::Join { .. } = grant {
                self.unjoin(slot);
            }
            self.waiting.push_front(Waiter {
                patient: true,
                ..waiter
            });
        }
    }

    /// A service for a key right now.
    fn find(&mut self, key: Key, group: CallerGroup, actions: &mut Vec<Action>) -> Option<Grant> {
        if let Some(slot) = self.joinable(key, group) {
            self.add_user(slot);
            return Some(Grant::Join { slot });
        }
        if self.running >= self.max_running {
            return None;
        }
        let kind = self.keys.entry(key).or_default();
        if let Some(slot) = kind.idle.pop() {
            let settled = self.services[slot as usize].state == SlotState::Idle { settled: true };
            self.lend(slot, group);
            return Some(Grant::Take { slot, settled });
        }
        if self.live >= self.max_size {
            self.make_room(actions)?;
        }
        Some(Grant::Start {
            slot: self.occupy(key, group),
        })
    }

    /// Give up an idle service of another key: of the key that has most, the one unused for longest.
    fn make_room(&mut self, actions: &mut Vec<Action>) -> Option<()> {
        let evictable = self.keys.values().filter(|kind| !kind.kept);
        let slot = *evictable.max_by_key(|kind| kind.idle.len())?.idle.first()?;
        self.evict(slot, actions);
        Some(())
    }

    /// Whether a service is idle that makes no room.
    fn has_kept_idle(&self) -> bool {
        let mut kinds = self.keys.values();
        kinds.any(|kind| kind.kept && !kind.idle.is_empty())
    }

    /// Grant what can be granted, in the order of asking.
    ///
    /// The patient leave room alone and are passed over, as long as there is a settling service for each of them.
    fn serve(&mut self, actions: &mut Vec<Action>) {
        let mut expected: BTreeMap<Key, usize> = BTreeMap::new();
        let mut index = 0;
        let mut no_room = false;
        while let Some(&waiter) = self.waiting.get(index) {
            let Waiter {
                ticket, key, group, ..
            } = waiter;
            if no_room {
                if self.running >= self.max_running || !self.has_kept_idle() {
                    return;
                }
                // Kept services make no room for others; a ticket for their own key may have them.
                let own = self.keys.get(&key);
                if own.is_none_or(|kind| !kind.kept || kind.idle.is_empty()) {
                    index += 1;
                    continue;
                }
            }
            if waiter.patient && !self.has_idle_of(key) && self.joinable(key, group).is_none() {
                let ahead = expected.entry(key).or_default();
                if self.settling_of(key) > *ahead {
                    *ahead += 1;
                    index += 1;
                    continue;
                }
            }
            let Some(grant) = self.find(key, group, actions) else {
                no_room = true;
                continue;
            };
            self.waiting.remove(index);
            self.granted.insert(ticket, (waiter, grant));
            actions.push(Action::Wake(ticket, grant));
        }
    }
}

/// The service of a key that a group shares which has room for a further lease.
fn joinable(kind: &KeyServices, services: &[SlotEntry], group: CallerGroup) -> Option<Slot> {
    if kind.joinable.is_empty() {
        return None; // always so where one service has one lease
    }
    let mut joinable = kind.joinable.iter().rev().copied();
    joinable.find(|&slot| services[slot as usize].group == group)
}

impl Grant {
    /// The slot that it is about.
    pub const fn slot(self) -> Slot {
        match self {
            Self::Take { slot, .. } | Self::Join { slot } | Self::Start { slot } => slot,
        }
    }
}
