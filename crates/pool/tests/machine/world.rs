//! The world around the machine: who holds what, by what was said aloud, and what has to hold of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use forebay_pool::machine::{Action, CallerGroup, Grant, Key, Machine, Slot, Ticket};

/// Keys that are asked for.
pub const KEYS: u32 = 3;
/// Groups that ask.
pub const GROUPS: CallerGroup = 2;
/// The key whose services may have two leases at once.
pub const SHARED: Key = 2;
/// The key whose idle services make no room for others, where the world says so.
pub const KEPT: Key = 1;

/// What one caller, service or driver does.
#[derive(Clone, Debug)]
pub enum Step {
    Ask(Key, CallerGroup),
    Take(Key, CallerGroup),
    Join(CallerGroup),
    ReleaseSettled(usize),
    ReleaseSettling(usize),
    /// A service comes back whose last holder was told apart outside, maybe while further leases of it are granted.
    ReleaseAtOnce(usize, bool),
    Readable(usize),
    LoseLent(usize),
    LoseAny(Slot),
    Bury(usize),
    Leave(usize),
    Hurry(usize),
    Branch(usize),
    Refill(Key),
    Open(usize),
    Close(usize),
    /// Whoever is woken from now on looks at its grant late, or at once again.
    Sleep(bool),
}

/// A pool, and what is known of it from outside.
pub struct World {
    pub machine: Machine,
    actions: Vec<Action>,
    max_size: u32,
    max_running: u32,
    kept: Option<Key>,
    next: Ticket,
    asleep: bool,
    waiting: VecDeque<(Ticket, Key)>,
    /// The group of each caller that has asked.
    groups: BTreeMap<Ticket, CallerGroup>,
    /// The group that each lent service was lent to.
    lent_to: BTreeMap<Slot, CallerGroup>,
    hurried: BTreeSet<Ticket>,
    /// Woken, and not looked yet.
    woken: BTreeMap<Ticket, (Key, Grant)>,
    lent: BTreeMap<Slot, Ticket>,
    /// Idle services of each key, the one used last at the end, and whether each owes nothing.
    idle: BTreeMap<Key, Vec<(Slot, bool)>>,
    settling: BTreeMap<Slot, Key>,
    dying: BTreeSet<Slot>,
    copies: BTreeSet<Slot>,
    opened: BTreeSet<Slot>,
    closed: BTreeSet<Slot>,
    /// Slots that have a second lease.
    joined: BTreeSet<Slot>,
}

fn nth<T: Copy>(items: &[T], index: usize) -> Option<T> {
    (!items.is_empty()).then(|| items[index % items.len()])
}

impl World {
    pub fn new(max_size: u32, max_running: u32, kept: bool) -> Self {
        let mut machine = Machine::new(max_size, max_running);
        machine.share(SHARED, 2);
        let kept = kept.then_some(KEPT);
        if let Some(key) = kept {
            machine.keep(key);
        }
        Self {
            machine,
            actions: Vec::new(),
            max_size,
            max_running,
            kept,
            next: 0,
            asleep: false,
            waiting: VecDeque::new(),
            groups: BTreeMap::new(),
            lent_to: BTreeMap::new(),
            hurried: BTreeSet::new(),
            woken: BTreeMap::new(),
            lent: BTreeMap::new(),
            idle: BTreeMap::new(),
            settling: BTreeMap::new(),
            dying: BTreeSet::new(),
            copies: BTreeSet::new(),
            opened: BTreeSet::new(),
            closed: BTreeSet::new(),
            joined: BTreeSet::new(),
        }
    }

    /// Lent services whose holder has looked at its grant.
    fn held(&self) -> Vec<Slot> {
        let asleep = |slot: &Slot| self.woken.values().any(|(_, grant)| grant.slot() == *slot);
        let lent = self.lent.keys().copied();
        lent.filter(|slot| !asleep(slot)).collect()
    }

    fn idle_slots(&self) -> impl Iterator<Item = (Key, Slot)> + '_ {
        let keys = self.idle.iter();
        keys.flat_map(|(key, idle)| idle.iter().map(|(slot, _)| (*key, *slot)))
    }

    fn running(&self) -> usize {
        let lent = self.lent.keys();
        lent.filter(|slot| !self.copies.contains(slot)).count()
    }

    fn is_joinable(&self, slot: Slot) -> bool {
        let lent = self.lent.contains_key(&slot) && !self.copies.contains(&slot);
        let open = self.opened.contains(&slot) && !self.closed.contains(&slot);
        lent && open && !self.joined.contains(&slot)
    }

    fn has_joinable(&self, group: CallerGroup) -> bool {
        let of_group = |slot: &&Slot| self.lent_to.get(slot) == Some(&group);
        let mut lent = self.lent.keys().filter(of_group);
        lent.any(|slot| self.is_joinable(*slot))
    }

    fn lend(&mut self, ticket: Ticket, slot: Slot, group: CallerGroup) {
        self.lent_to.insert(slot, group);
        let before = self.lent.insert(slot, ticket);
        assert!(before.is_none(), "slot {slot} is in two hands");
    }

    fn give(&mut self, ticket: Ticket, key: Key, grant: Grant) {
        let slot = grant.slot();
        assert!(!self.dying.contains(&slot), "slot {slot} is dying");
        let joins = matches!(grant, Grant::Join { .. });
        let group = self.groups[&ticket];
        assert!(
            joins || key != SHARED || !self.has_joinable(group),
            "a service of its own beside one that may be joined"
        );
        match grant {
            Grant::Join { slot } => {
                assert_eq!(key, SHARED, "joined a service that is not shared");
                self.join_slot(slot, group);
            }
            Grant::Take { slot, settled } => {
                let last = self.idle.get_mut(&key).and_then(Vec::pop);
                assert_eq!(last, Some((slot, settled)), "not the one used last");
                self.lend(ticket, slot, group);
            }
            Grant::Start { slot } => {
                let idle = self.idle.get(&key).is_none_or(Vec::is_empty);
                assert!(idle, "started a service beside an idle one");
                let known = self.idle_slots().any(|(_, one)| one == slot)
                    || self.settling.contains_key(&slot);
                assert!(!known, "slot {slot} is in two hands");
                self.lend(ticket, slot, group);
            }
        }
    }

    fn join_slot(&mut self, slot: Slot, group: CallerGroup) {
        assert!(
            self.is_joinable(slot),
            "joined slot {slot}, which is closed"
        );
        assert_eq!(self.lent_to[&slot], group, "joined another group's");
        self.joined.insert(slot);
    }

    /// Performs what the machine wants, and looks whether everything holds.
    fn act(&mut self) {
        for action in std::mem::take(&mut self.actions) {
            match action {
                Action::Wake(ticket, grant) => self.wake(ticket, grant),
                Action::Evict(slot) => self.evict(slot),
            }
        }
    }

    fn wake(&mut self, ticket: Ticket, grant: Grant) {
        let waits = |&(waiter, _): &(Ticket, Key)| waiter == ticket;
        let place = self.waiting.iter().position(waits).expect("it waits");
        let patient = |&(waiter, _): &(Ticket, Key)| !self.hurried.contains(&waiter);
        let mut before = self.waiting.iter().take(place);
        let (_, key) = self.waiting[place];
        // Nobody else could have had it.
        let is_kept = matches!(grant, Grant::Take { .. }) && Some(key) == self.kept;
        assert!(
            is_kept || before.all(patient),
            "ticket {ticket} overtook an earlier one"
        );
        self.waiting.remove(place);
        assert_eq!(self.machine.granted(ticket), Some(grant));
        self.give(ticket, key, grant);
        if self.asleep {
            self.woken.insert(ticket, (key, grant));
        } else {
            assert_eq!(self.machine.collect(ticket), Some(grant));
            assert_eq!(self.machine.granted(ticket), None, "its ticket is done");
        }
    }

    fn evict(&mut self, slot: Slot) {
        let place = self.idle_slots().find(|(_, one)| *one == slot);
        let (key, _) = place.expect("evicted a service that is not idle");
        assert_ne!(Some(key), self.kept, "evicted one that is kept");
        let evictable = self.idle.iter().filter(|(key, _)| Some(**key) != self.kept);
        let most = evictable.map(|(_, idle)| idle.len()).max();
        let idle = self.idle.get_mut(&key).expect("its key");
        assert_eq!(Some(idle.len()), most, "evicted of a key with fewer");
        assert_eq!(idle.remove(0).0, slot, "evicted one used since");
        self.dying.insert(slot);
    }

    pub fn step(&mut self, step: &Step) {
        match *step {
            Step::Ask(key, group) => self.ask(key, group),
            Step::Take(key, group) => self.take(key, group),
            Step::Join(group) => self.join(group),
            Step::ReleaseSettled(index) => self.release(index, true),
            Step::ReleaseSettling(index) => self.release(index, false),
            Step::ReleaseAtOnce(index, settled) => self.release_at_once(index, settled),
            Step::Readable(index) => self.readable(index),
            Step::Leave(index) => self.leave(index),
            Step::Hurry(index) => self.hurry(index),
            Step::LoseLent(index) => {
                let lent: Vec<Slot> = self.lent.keys().copied().collect();
                if let Some(slot) = nth(&lent, index) {
                    self.lose(slot);
                }
            }
            Step::LoseAny(slot) => self.lose(slot),
            Step::Bury(index) => self.bury(index),
            Step::Branch(index) => self.branch(index),
            Step::Open(index) => self.open(index),
            Step::Close(index) => self.close(index),
            Step::Refill(key) => self.refill(key),
            Step::Sleep(asleep) => self.sleep(asleep),
        }
        self.act();
        self.check();
    }

    fn ask(&mut self, key: Key, group: CallerGroup) {
        self.next += 1;
        self.groups.insert(self.next, group);
        let grant = self.machine.ask(self.next, key, group, &mut self.actions);
        // Making room comes before what is granted in it.
        self.act();
        match grant {
            Some(grant) => self.give(self.next, key, grant),
            None => self.waiting.push_back((self.next, key)),
        }
    }

    fn take(&mut self, key: Key, group: CallerGroup) {
        assert_eq!(self.machine.take(key, group, |_| false), None, "unwanted");
        let top = self.machine.take(key, group, |_| true);
        let idle = self.idle.entry(key).or_default();
        let ready = idle.last().copied().filter(|(_, settled)| *settled);
        let shared = key == SHARED && self.has_joinable(group);
        let full = self.running() >= self.max_running as usize;
        let free = self.waiting.is_empty() && !full && !shared;
        assert_eq!(
            top,
            ready.filter(|_| free).map(|(slot, _)| slot),
            "taken out of turn"
        );
        if let Some(slot) = top {
            self.idle.entry(key).or_default().pop();
            self.lend(0, slot, group);
        }
    }

    fn join(&mut self, group: CallerGroup) {
        let free = self.waiting.is_empty() && self.has_joinable(group);
        let slot = self.machine.join(SHARED, group);
        assert_eq!(slot.is_some(), free, "joined out of turn");
        if let Some(slot) = slot {
            self.join_slot(slot, group);
        }
    }

    fn release(&mut self, index: usize, settled: bool) {
        let held = self.held();
        let own: Vec<Slot> = held
            .into_iter()
            .filter(|slot| !self.copies.contains(slot))
            .collect();
        let Some(slot) = nth(&own, index) else {
            return;
        };
        let closes = index.is_multiple_of(7);
        let others = self.machine.release_shared(slot, closes, &mut self.actions);
        assert_eq!(others, self.joined.remove(&slot), "one of two leases ended");
        if closes {
            self.closed.insert(slot);
        }
        if others {
            self.opened.insert(slot); // it can be joined again
            return;
        }
        self.come_back(slot, settled);
    }

    fn release_at_once(&mut self, index: usize, settled: bool) {
        let joins = |grant: &Grant| matches!(grant, Grant::Join { .. });
        let taken = |slot: &Slot| {
            let mut grants = self.woken.values().map(|(_, grant)| grant);
            grants.any(|grant| grant.slot() == *slot && !joins(grant))
        };
        let lent = self.lent.keys().copied();
        let own: Vec<Slot> = lent
            .filter(|slot| !self.copies.contains(slot) && !taken(slot))
            .collect();
        if let Some(slot) = nth(&own, index) {
            self.requeue(slot);
            self.joined.remove(&slot); // a lease that has begun is void
            self.come_back(slot, settled);
        }
    }

    /// The last lease of a service ends.
    fn come_back(&mut self, slot: Slot, settled: bool) {
        let key = self.machine.key_of(slot);
        self.lent.remove(&slot);
        self.opened.remove(&slot);
        if self.closed.remove(&slot) {
            self.dying.insert(slot); // it ends with its last lease
            self.machine.lose(slot, &mut self.actions);
            return;
        }
        if settled {
            self.idle.entry(key).or_default().push((slot, true));
        } else {
            self.settling.insert(slot, key);
        }
        self.machine.release(slot, settled, &mut self.actions);
    }

    /// Who was granted a service and has not looked yet waits again, before all others.
    fn requeue(&mut self, slot: Slot) {
        let holds = |(ticket, (_, grant)): (&Ticket, &(Key, Grant))| {
            (grant.slot() == slot).then_some(*ticket)
        };
        let holders: Vec<Ticket> = self.woken.iter().rev().filter_map(holds).collect();
        for ticket in holders {
            let (key, grant) = self.woken.remove(&ticket).expect("it was woken");
            if matches!(grant, Grant::Join { .. }) {
                self.joined.remove(&slot); // it never had it
            }
            self.hurried.remove(&ticket);
            self.waiting.push_front((ticket, key));
        }
    }

    fn readable(&mut self, index: usize) {
        let settling: Vec<Slot> = self.settling.keys().copied().collect();
        if let Some(slot) = nth(&settling, index) {
            let key = self.settling.remove(&slot).expect("it settles");
            self.idle.entry(key).or_default().push((slot, false));
            self.machine.readable(slot, &mut self.actions);
        }
        // What does not settle is not made idle by a word too many.
        if let Some(slot) = nth(&self.held(), index) {
            self.machine.readable(slot, &mut self.actions);
        }
    }

    fn leave(&mut self, index: usize) {
        let waiting = self.waiting.iter().map(|(ticket, _)| *ticket);
        let tickets: Vec<Ticket> = waiting.chain(self.woken.keys().copied()).collect();
        let Some(ticket) = nth(&tickets, index) else {
            return;
        };
        self.waiting.retain(|(waiter, _)| *waiter != ticket);
        if let Some((key, grant)) = self.woken.remove(&ticket) {
            match grant {
                Grant::Take { slot, settled } => {
                    self.lent.remove(&slot);
                    self.idle.entry(key).or_default().push((slot, settled));
                }
                Grant::Start { slot } => drop(self.lent.remove(&slot)),
                Grant::Join { slot } => drop(self.joined.remove(&slot)),
            }
        }
        self.machine.leave(ticket, &mut self.actions);
    }

    fn hurry(&mut self, index: usize) {
        let waiting: Vec<Ticket> = self.waiting.iter().map(|(ticket, _)| *ticket).collect();
        if let Some(ticket) = nth(&waiting, index) {
            self.hurried.insert(ticket);
            self.machine.hurry(ticket, &mut self.actions);
        }
    }

    fn lose(&mut self, slot: Slot) {
        if !self.machine.occupied().any(|occupied| occupied == slot) {
            return;
        }
        self.lent.remove(&slot);
        self.settling.remove(&slot);
        self.opened.remove(&slot);
        self.closed.remove(&slot);
        for idle in self.idle.values_mut() {
            idle.retain(|(one, _)| *one != slot);
        }
        self.dying.insert(slot);
        self.requeue(slot);
        self.machine.lose(slot, &mut self.actions);
    }

    fn bury(&mut self, index: usize) {
        let dying: Vec<Slot> = self.dying.iter().copied().collect();
        if let Some(slot) = nth(&dying, index) {
            self.dying.remove(&slot);
            self.copies.remove(&slot);
            if self.joined.remove(&slot) {
                // Each of the two learns of it by itself, the second perhaps before it begins.
                let begins = !index.is_multiple_of(3);
                if !begins {
                    self.machine.unjoin(slot);
                }
                let leases = if begins { &[true, false][..] } else { &[false] };
                for left in leases {
                    let others = self.machine.release_shared(slot, true, &mut self.actions);
                    assert_eq!(others, *left, "leases of the dead are counted wrongly");
                }
            }
            self.machine.free_slot(slot);
            self.machine.free_slot(slot); // a death that is told twice frees nothing twice
        }
    }

    fn branch(&mut self, index: usize) {
        if let Some(parent) = nth(&self.held(), index) {
            let slot = self.machine.branch(self.machine.key_of(parent));
            assert!(!self.machine.is_lendable(slot), "a copy is lent on");
            self.copies.insert(slot);
            self.lend(0, slot, 0);
        }
    }

    fn open(&mut self, index: usize) {
        if let Some(slot) = nth(&self.held(), index) {
            if self.machine.key_of(slot) == SHARED {
                self.opened.insert(slot);
            }
            let own = !self.copies.contains(&slot) && !self.closed.contains(&slot);
            assert_eq!(self.machine.is_lendable(slot), own, "whether it is lent on");
            self.machine.open(slot, &mut self.actions);
        }
    }

    fn close(&mut self, index: usize) {
        if let Some(slot) = nth(&self.held(), index) {
            self.closed.insert(slot);
            self.machine.close(slot);
            assert!(!self.machine.is_lendable(slot), "lent on and closed");
        }
    }

    fn refill(&mut self, key: Key) {
        let idle = self.idle.get(&key).map_or(0, Vec::len);
        let has = idle + self.settling.values().filter(|of| **of == key).count();
        let room = self.machine.live() < self.max_size && self.waiting.is_empty();
        let slot = self.machine.refill(key, 2);
        assert_eq!(slot.is_some(), has < 2 && room, "refilled out of turn");
        if let Some(slot) = slot {
            self.settling.insert(slot, key);
            self.machine.release(slot, false, &mut self.actions);
        }
    }

    fn sleep(&mut self, asleep: bool) {
        self.asleep = asleep;
        if asleep {
            return;
        }
        for (ticket, (_, grant)) in std::mem::take(&mut self.woken) {
            assert_eq!(
                self.machine.collect(ticket),
                Some(grant),
                "its grant is lost"
            );
        }
    }

    fn check(&self) {
        let machine = &self.machine;
        let live = self.running() + self.idle_slots().count() + self.settling.len();
        assert_eq!(
            machine.live() as usize,
            live,
            "services are counted wrongly"
        );
        assert!(
            live <= self.max_size as usize,
            "{live} services are too many"
        );
        assert_eq!(machine.idle(), self.idle_slots().count(), "idle ones");
        assert_eq!(machine.settling(), self.settling.len(), "settling ones");
        assert_eq!(machine.waiters(), self.waiting.len(), "waiters");
        let idle = self.idle_slots().map(|(_, slot)| slot);
        let unlent: BTreeSet<Slot> = idle.chain(self.settling.keys().copied()).collect();
        assert!(machine.unlent().eq(unlent), "those that are not lent");
        let occupied = live + self.copies_lent() + self.dying.len();
        assert_eq!(
            machine.occupied().count(),
            occupied,
            "slots are lost or used twice"
        );
        let running = self.running();
        assert!(
            running <= self.max_running as usize,
            "{running} lent are too many"
        );
        self.check_waiting();
    }

    fn copies_lent(&self) -> usize {
        let lent = self.lent.keys();
        lent.filter(|slot| self.copies.contains(slot)).count()
    }

    fn check_waiting(&self) {
        let machine = &self.machine;
        let enough_run = self.running() == self.max_running as usize;
        let mut evictable = self.idle_slots().filter(|(key, _)| Some(*key) != self.kept);
        let full = evictable.next().is_none() && machine.live() == self.max_size;
        for key in 0..KEYS {
            let waiters = || self.waiting.iter().filter(|&&(_, wanted)| wanted == key);
            let waits = waiters().next().is_some();
            let idle = self.idle.get(&key).is_some_and(|idle| !idle.is_empty());
            assert_eq!(machine.has_idle_of(key), idle);
            assert_eq!(machine.has_idle(key), idle && self.waiting.is_empty());
            let expected = self.settling.values().filter(|of| **of == key).count();
            assert_eq!(machine.settling_of(key), expected);
            assert!(
                enough_run || !waits || !idle,
                "someone waits beside a fitting service"
            );
            let hurried = waiters().any(|(ticket, _)| self.hurried.contains(ticket));
            let expectant = waiters().count() <= expected;
            assert!(
                enough_run || full || (expectant && !hurried),
                "someone waits in vain"
            );
        }
    }
}
