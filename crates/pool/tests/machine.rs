//! The pool machine against its invariants, over random histories.
//!
//! A history is what callers do (ask, take, collect, cancel, release, fork) and what happens to services (a death, an
//! idle timeout, an answer), in any order; at its end the pool is closed. Each run draws other ones; a failure is
//! printed with its steps, cut to the shortest, and kept in `machine.proptest-regressions`.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use forebay_pool::machine::{Action, Grant, Key, Machine, Slot, Ticket};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Ask(Key),
    /// As `Ask`, but what it is granted to join turns out to have ended.
    AskInVain(Key),
    Take(Key),
    Collect(usize),
    /// A caller gives up, before it is woken or after.
    Cancel(usize),
    Hurry(usize),
    ReleaseSettled(usize),
    ReleaseSettling(usize),
    Readable(usize),
    LoseLent(usize),
    LoseAny(u32),
    Expire(usize),
    Bury(usize),
    Branch(usize),
    Refill(Key),
    Open(usize),
    CloseToNewcomers(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..3u32).prop_map(Step::Ask),
        1 => (0..3u32).prop_map(Step::AskInVain),
        2 => (0..3u32).prop_map(Step::Take),
        4 => any::<usize>().prop_map(Step::Collect),
        3 => any::<usize>().prop_map(Step::Cancel),
        1 => any::<usize>().prop_map(Step::Hurry),
        4 => any::<usize>().prop_map(Step::ReleaseSettled),
        3 => any::<usize>().prop_map(Step::ReleaseSettling),
        3 => any::<usize>().prop_map(Step::Readable),
        1 => any::<usize>().prop_map(Step::LoseLent),
        1 => (0..6u32).prop_map(Step::LoseAny),
        1 => any::<usize>().prop_map(Step::Expire),
        2 => any::<usize>().prop_map(Step::Bury),
        1 => any::<usize>().prop_map(Step::Branch),
        1 => (0..3u32).prop_map(Step::Refill),
        2 => any::<usize>().prop_map(Step::Open),
        1 => any::<usize>().prop_map(Step::CloseToNewcomers),
    ]
}

/// The world around the machine: who holds what, by what was said aloud.
#[derive(Default)]
struct World {
    max_running: usize,
    next: Ticket,
    waiting: VecDeque<(Ticket, Key)>,
    hurried: BTreeSet<Ticket>,
    /// Callers that were woken and have not looked yet.
    woken: BTreeMap<Ticket, (Key, Grant)>,
    /// Lent services, and how many leases each has.
    lent: BTreeMap<Slot, u32>,
    /// Idle services, and whether nothing is left to read from them.
    idle: BTreeMap<Slot, bool>,
    settling: BTreeSet<Slot>,
    dying: BTreeSet<Slot>,
    copies: BTreeSet<Slot>,
    /// Lent services that nobody may join any more.
    closed: BTreeSet<Slot>,
}

/// The key whose services may have two leases at once.
const SHARED: Key = 2;

impl World {
    fn give(&mut self, grant: Grant) {
        let slot = grant.slot();
        assert!(!self.dying.contains(&slot), "slot {slot} is dying");
        match grant {
            Grant::Join { .. } => {
                let users = self.lent.get_mut(&slot).expect("joined an idle service");
                *users += 1;
                assert!(*users <= 2, "{users} leases of slot {slot}");
                assert!(!self.closed.contains(&slot), "joined a closed service");
                return;
            }
            Grant::Take { settled, .. } => {
                let was = self.idle.remove(&slot);
                assert_eq!(was, Some(settled), "slot {slot} was not idle like that");
            }
            Grant::Start { .. } => {
                assert!(!self.idle.contains_key(&slot) && !self.settling.contains(&slot));
            }
        }
        let before = self.lent.insert(slot, 1);
        assert!(before.is_none(), "slot {slot} is in two hands");
    }

    /// Services that count as lent.
    fn running(&self) -> usize {
        let counts = |slot: &&Slot| !self.copies.contains(slot);
        self.lent.keys().filter(counts).count()
    }

    /// Lent services that somebody who has looked holds.
    fn held(&self, copies: bool) -> Vec<Slot> {
        let unseen = |slot: Slot| {
            let grants = self.woken.values();
            grants.filter(|(_, grant)| grant.slot() == slot).count()
        };
        let held = self
            .lent
            .iter()
            .filter(|&(slot, &users)| users as usize > unseen(*slot));
        held.map(|(&slot, _)| slot)
            .filter(|slot| copies || !self.copies.contains(slot))
            .collect()
    }

    fn act(&mut self, actions: &mut Vec<Action>) {
        for action in actions.drain(..) {
            match action {
                Action::Wake(ticket, grant) => {
                    let place = self
                        .waiting
                        .iter()
                        .position(|&(waiter, _)| waiter == ticket)
                        .unwrap();
                    let patient = |&(waiter, _): &(Ticket, Key)| !self.hurried.contains(&waiter);
                    assert!(
                        self.waiting.iter().take(place).all(patient),
                        "ticket {ticket} overtook an earlier one"
                    );
                    let (_, key) = self.waiting.remove(place).unwrap();
                    self.woken.insert(ticket, (key, grant));
                    self.give(grant);
                }
                Action::Evict(slot) => {
                    assert!(!self.lent.contains_key(&slot), "evicted a lent service");
                    self.idle.remove(&slot);
                    self.closed.remove(&slot);
                    self.dying.insert(slot);
                }
            }
        }
    }

    /// A service has ended, or is to end: those who were woken for it go back to the head of the queue.
    fn lose(&mut self, machine: &mut Machine, slot: Slot, actions: &mut Vec<Action>) {
        self.lent.remove(&slot);
        self.idle.remove(&slot);
        self.settling.remove(&slot);
        self.closed.remove(&slot);
        self.dying.insert(slot);
        let holds = |(ticket, (_, grant)): (&Ticket, &(Key, Grant))| {
            (grant.slot() == slot).then_some(*ticket)
        };
        let holders: Vec<Ticket> = self.woken.iter().rev().filter_map(holds).collect();
        for ticket in holders {
            let (key, _) = self.woken.remove(&ticket).unwrap();
            self.waiting.push_front((ticket, key));
            self.hurried.remove(&ticket);
        }
        machine.lose(slot, actions);
    }
}

fn nth<T: Copy>(items: impl ExactSizeIterator<Item = T>, index: usize) -> Option<T> {
    let count = items.len();
    if count == 0 {
        None
    } else {
        items.into_iter().nth(index % count)
    }
}

fn ask(
    world: &mut World,
    machine: &mut Machine,
    key: Key,
    in_vain: bool,
    actions: &mut Vec<Action>,
) {
    world.next += 1;
    let mut grant = machine.ask(world.next, key, actions);
    if let Some(Grant::Join { slot }) = grant
        && in_vain
    {
        world.act(actions);
        machine.unjoin(slot);
        world.lose(machine, slot, actions);
        world.act(actions);
        grant = machine.ask(world.next, key, actions);
    }
    match grant {
        Some(grant) => {
            world.act(actions); // what it evicted made the room
            world.give(grant);
        }
        None => world.waiting.push_back((world.next, key)),
    }
}

fn take(world: &mut World, machine: &mut Machine, key: Key) {
    let of_key = |slot: &&Slot| machine.key_of(**slot) == key;
    let all_settled = world.idle.keys().any(|slot| of_key(&slot))
        && world
            .idle
            .iter()
            .all(|(slot, &settled)| settled || !of_key(&slot));
    let free = world.waiting.is_empty() && world.running() < world.max_running && key != SHARED;
    match machine.take(key) {
        Some(slot) => {
            assert!(world.waiting.is_empty(), "taken while somebody waits");
            assert_eq!(machine.key_of(slot), key);
            let settled = true;
            world.give(Grant::Take { slot, settled });
        }
        None => assert!(!(all_settled && free), "an idle service was refused"),
    }
}

fn cancel(world: &mut World, machine: &mut Machine, index: usize, actions: &mut Vec<Action>) {
    let waiting = world.waiting.iter().map(|&(ticket, _)| ticket);
    let tickets: Vec<Ticket> = waiting.chain(world.woken.keys().copied()).collect();
    let Some(ticket) = nth(tickets.into_iter(), index) else {
        return;
    };
    world.waiting.retain(|&(waiter, _)| waiter != ticket);
    if let Some((_, grant)) = world.woken.remove(&ticket) {
        let slot = grant.slot();
        let users = world.lent.get_mut(&slot).unwrap();
        *users -= 1;
        if *users == 0 {
            world.lent.remove(&slot);
        }
        if let Grant::Take { settled, .. } = grant {
            world.idle.insert(slot, settled);
        }
    }
    machine.leave(ticket, actions);
}

fn release(
    world: &mut World,
    machine: &mut Machine,
    index: usize,
    settled: bool,
    actions: &mut Vec<Action>,
) {
    let Some(slot) = nth(world.held(false).into_iter(), index) else {
        return;
    };
    let others = world.lent[&slot] > 1;
    if others {
        *world.lent.get_mut(&slot).unwrap() -= 1;
    }
    assert_eq!(machine.part(slot, false, actions), others);
    if others {
        return;
    }
    if world.closed.contains(&slot) {
        assert!(!machine.is_lendable(slot));
        world.lose(machine, slot, actions);
        return;
    }
    world.lent.remove(&slot);
    if settled {
        world.idle.insert(slot, true);
    } else {
        world.settling.insert(slot);
    }
    machine.release(slot, settled, actions);
}

fn apply(world: &mut World, machine: &mut Machine, step: &Step, actions: &mut Vec<Action>) {
    match *step {
        Step::Ask(key) => ask(world, machine, key, false, actions),
        Step::AskInVain(key) => ask(world, machine, key, true, actions),
        Step::Take(key) => take(world, machine, key),
        Step::Collect(index) => {
            if let Some(ticket) = nth(world.woken.keys().copied(), index) {
                let (_, grant) = world.woken.remove(&ticket).unwrap();
                assert_eq!(machine.granted(ticket), Some(grant));
                assert_eq!(machine.collect(ticket), Some(grant));
                assert_eq!(machine.collect(ticket), None, "granted once");
            }
        }
        Step::Cancel(index) => cancel(world, machine, index, actions),
        Step::Hurry(index) => {
            if let Some((ticket, _)) = nth(world.waiting.iter().copied(), index) {
                world.hurried.insert(ticket);
                machine.hurry(ticket, actions);
            }
        }
        Step::ReleaseSettled(index) => release(world, machine, index, true, actions),
        Step::ReleaseSettling(index) => release(world, machine, index, false, actions),
        _ => apply_to_services(world, machine, step, actions),
    }
}

fn apply_to_services(
    world: &mut World,
    machine: &mut Machine,
    step: &Step,
    actions: &mut Vec<Action>,
) {
    match *step {
        Step::Readable(index) => {
            if let Some(slot) = nth(world.settling.iter().copied(), index) {
                world.settling.remove(&slot);
                world.idle.insert(slot, false);
                machine.readable(slot, actions);
            }
        }
        Step::LoseLent(index) => {
            if let Some(slot) = nth(world.lent.keys().copied(), index) {
                world.lose(machine, slot, actions);
            }
        }
        Step::LoseAny(slot) => {
            if machine.occupied().any(|occupied| occupied == slot) {
                world.lose(machine, slot, actions);
            }
        }
        Step::Expire(index) => {
            if let Some(slot) = nth(world.idle.keys().copied(), index) {
                world.lose(machine, slot, actions);
            }
        }
        Step::Bury(index) => {
            if let Some(slot) = nth(world.dying.iter().copied(), index) {
                world.dying.remove(&slot);
                world.copies.remove(&slot);
                machine.buried(slot);
            }
        }
        Step::Branch(index) => {
            if let Some(parent) = nth(world.held(true).into_iter(), index) {
                let slot = machine.branch(machine.key_of(parent));
                assert!(!machine.is_lendable(slot));
                world.copies.insert(slot);
                world.give(Grant::Start { slot });
            }
        }
        Step::Open(index) => {
            if let Some(slot) = nth(world.held(true).into_iter(), index) {
                machine.open(slot, actions);
            }
        }
        Step::CloseToNewcomers(index) => {
            if let Some(slot) = nth(world.held(false).into_iter(), index) {
                world.closed.insert(slot);
                machine.close(slot);
            }
        }
        Step::Refill(key) => {
            if let Some(slot) = machine.refill(key, 2) {
                assert!(world.waiting.is_empty(), "refilled while somebody waits");
                world.settling.insert(slot);
                machine.release(slot, false, actions);
            }
        }
        _ => unreachable!("a step of callers"),
    }
}

/// What holds between any two steps.
fn check(world: &World, machine: &Machine, max_size: u32) {
    let live = machine.live();
    assert!(live <= max_size, "{live} services of at most {max_size}");
    assert_eq!(machine.waiters(), world.waiting.len());
    assert_eq!(machine.idle(), world.idle.len());
    assert_eq!(machine.settling(), world.settling.len());
    assert_eq!(
        live as usize,
        world.running() + world.idle.len() + world.settling.len()
    );
    let running = world.running();
    let enough_run = running == world.max_running;
    assert!(
        running <= world.max_running,
        "{running} lent of at most {}",
        world.max_running
    );
    let nothing_to_give = enough_run || machine.idle() == 0 && live == max_size;
    for key in 0..3 {
        let waiters = || world.waiting.iter().filter(|&&(_, wanted)| wanted == key);
        let beside = waiters().count() > 0 && machine.has_idle_of(key);
        assert!(
            enough_run || !beside,
            "someone waits beside a fitting service"
        );
        let hurried = waiters().any(|(ticket, _)| world.hurried.contains(ticket));
        let expectant = waiters().count() <= machine.settling_of(key);
        assert!(
            nothing_to_give || (expectant && !hurried),
            "someone waits in vain"
        );
    }
}

/// The pool is closed: all who wait or were woken leave, all services end, and nothing is left over.
fn close(world: &mut World, machine: &mut Machine, actions: &mut Vec<Action>) {
    while !world.waiting.is_empty() || !world.woken.is_empty() {
        cancel(world, machine, 0, actions);
        world.act(actions);
    }
    let occupied: Vec<Slot> = machine.occupied().collect();
    for &slot in occupied.iter().filter(|slot| !world.dying.contains(slot)) {
        machine.lose(slot, actions);
    }
    for slot in occupied {
        machine.buried(slot);
    }
    assert_eq!(*actions, [], "nobody is left to be told");
    assert_eq!(
        (machine.live(), machine.idle(), machine.settling()),
        (0, 0, 0)
    );
    assert_eq!(machine.occupied().count(), 0);
    assert!(
        matches!(machine.ask(0, 0, actions), Some(Grant::Start { .. })),
        "room again"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn no_service_is_in_two_hands_and_nobody_waits_in_vain(
        (max_size, max_running) in (1..4u32).prop_flat_map(|size| (Just(size), 1..=size)),
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let mut machine = Machine::new(max_size, max_running);
        machine.share(SHARED, 2);
        let mut world = World { max_running: max_running as usize, ..World::default() };
        let mut actions = Vec::new();
        for step in &steps {
            apply(&mut world, &mut machine, step, &mut actions);
            world.act(&mut actions);
            check(&world, &machine, max_size);
        }
        close(&mut world, &mut machine, &mut actions);
    }
}

#[test]
fn a_waiter_whose_service_dies_before_it_looks_keeps_its_place() {
    let mut machine = Machine::new(1, 1);
    let mut actions = Vec::new();
    let Some(Grant::Start { slot }) = machine.ask(1, 0, &mut actions) else {
        panic!("room")
    };
    assert_eq!(machine.ask(2, 0, &mut actions), None);
    assert_eq!(machine.ask(3, 0, &mut actions), None);
    machine.release(slot, true, &mut actions);
    assert_eq!(
        actions,
        [Action::Wake(
            2,
            Grant::Take {
                slot,
                settled: true
            }
        )]
    );
    actions.clear();
    machine.lose(slot, &mut actions);
    assert!(
        matches!(actions[..], [Action::Wake(2, Grant::Start { .. })]),
        "{actions:?}"
    );
}

#[test]
fn the_patient_wait_for_a_reset_and_the_hurried_get_a_new_service() {
    let mut machine = Machine::new(2, 2);
    let mut actions = Vec::new();
    let Some(Grant::Start { slot }) = machine.ask(1, 0, &mut actions) else {
        panic!("room")
    };
    machine.release(slot, false, &mut actions);
    assert_eq!(machine.ask(2, 0, &mut actions), None, "one is being reset");
    machine.hurry(2, &mut actions);
    assert!(
        matches!(actions[..], [Action::Wake(2, Grant::Start { .. })]),
        "{actions:?}"
    );
}

#[test]
fn who_waits_for_a_start_under_way_holds_nobody_else_up() {
    let mut machine = Machine::new(3, 3);
    let mut actions = Vec::new();
    let mut start =
        |machine: &mut Machine, ticket, key| match machine.ask(ticket, key, &mut actions) {
            Some(Grant::Start { slot }) => slot,
            other => panic!("room, but {other:?}"),
        };
    let abandoned = start(&mut machine, 1, 0);
    let warm = start(&mut machine, 2, 1);
    let mut actions = Vec::new();
    machine.release(abandoned, false, &mut actions);
    machine.release(warm, true, &mut actions);
    assert_eq!(machine.ask(3, 0, &mut actions), None, "one is starting");
    assert!(matches!(
        machine.ask(4, 1, &mut actions),
        Some(Grant::Take { slot, .. }) if slot == warm
    ));
    assert!(
        matches!(machine.ask(5, 0, &mut actions), Some(Grant::Start { .. })),
        "one that starts is not enough for two"
    );
    assert_eq!(actions, []);
}
