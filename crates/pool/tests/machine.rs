//! The pool machine against its invariants, over random histories.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use forebay_pool::machine::{Action, Grant, Key, Machine, Slot, Ticket};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Ask(Key),
    ReleaseSettled(usize),
    ReleaseSettling(usize),
    Readable(usize),
    LoseLent(usize),
    LoseAny(u32),
    Bury(usize),
    Leave(usize),
    Hurry(usize),
    Branch(usize),
    Refill(Key),
    Open(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..3u32).prop_map(Step::Ask),
        4 => any::<usize>().prop_map(Step::ReleaseSettled),
        3 => any::<usize>().prop_map(Step::ReleaseSettling),
        3 => any::<usize>().prop_map(Step::Readable),
        1 => any::<usize>().prop_map(Step::LoseLent),
        1 => (0..6u32).prop_map(Step::LoseAny),
        2 => any::<usize>().prop_map(Step::Bury),
        1 => any::<usize>().prop_map(Step::Leave),
        1 => any::<usize>().prop_map(Step::Hurry),
        1 => any::<usize>().prop_map(Step::Branch),
        1 => (0..3u32).prop_map(Step::Refill),
        2 => any::<usize>().prop_map(Step::Open),
    ]
}

/// The world around the machine: who holds what, by what was said aloud.
#[derive(Default)]
struct World {
    next: Ticket,
    waiting: VecDeque<(Ticket, Key)>,
    hurried: BTreeSet<Ticket>,
    lent: BTreeMap<Slot, Ticket>,
    settling: BTreeSet<Slot>,
    dying: BTreeSet<Slot>,
    copies: BTreeSet<Slot>,
    /// Leases beside the first one of a shared service.
    joined: BTreeMap<Slot, u32>,
}

/// The key whose services may have two leases at once.
const SHARED: Key = 2;

impl World {
    fn give(&mut self, ticket: Ticket, grant: Grant) {
        let slot = grant.slot();
        assert!(!self.dying.contains(&slot), "slot {slot} is dying");
        if let Grant::Join { slot } = grant {
            assert!(self.lent.contains_key(&slot), "joined an idle service");
            let joined = self.joined.entry(slot).or_default();
            *joined += 1;
            assert!(*joined < 2, "{joined} joined slot {slot}");
            return;
        }
        assert!(
            self.lent.insert(slot, ticket).is_none(),
            "slot {slot} is in two hands"
        );
        self.settling.remove(&slot);
    }

    fn act(&mut self, machine: &mut Machine, actions: &mut Vec<Action>) {
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
                    self.waiting.remove(place);
                    assert_eq!(machine.collect(ticket), Some(grant));
                    self.give(ticket, grant);
                }
                Action::Evict(slot) => {
                    assert!(!self.lent.contains_key(&slot), "evicted a lent service");
                    self.dying.insert(slot);
                }
            }
        }
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

fn apply(world: &mut World, machine: &mut Machine, step: &Step, actions: &mut Vec<Action>) {
    match *step {
        Step::Ask(key) => {
            world.next += 1;
            match machine.ask(world.next, key, actions) {
                Some(grant) => world.give(world.next, grant),
                None => world.waiting.push_back((world.next, key)),
            }
        }
        Step::ReleaseSettled(index) | Step::ReleaseSettling(index) => {
            let lendable = |slot: &Slot| !world.copies.contains(slot);
            let lent: Vec<Slot> = world.lent.keys().copied().filter(lendable).collect();
            if let Some(slot) = nth(lent.into_iter(), index) {
                let parted = machine.part(slot, false, actions);
                let others = world.joined.remove(&slot).is_some_and(|joined| joined > 0);
                assert_eq!(parted, others);
                if parted {
                    return;
                }
                world.lent.remove(&slot);
                let settled = matches!(step, Step::ReleaseSettled(_));
                if !settled {
                    world.settling.insert(slot);
                }
                machine.release(slot, settled, actions);
            }
        }
        Step::Readable(index) => {
            if let Some(slot) = nth(world.settling.iter().copied(), index) {
                world.settling.remove(&slot);
                machine.readable(slot, actions);
            }
        }
        Step::Leave(index) => {
            if let Some((ticket, _)) = nth(world.waiting.iter().copied(), index) {
                world.waiting.retain(|&(waiter, _)| waiter != ticket);
                machine.leave(ticket, actions);
            }
        }
        Step::Hurry(index) => {
            if let Some((ticket, _)) = nth(world.waiting.iter().copied(), index) {
                world.hurried.insert(ticket);
                machine.hurry(ticket, actions);
            }
        }
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
        Step::LoseLent(index) => {
            if let Some(slot) = nth(world.lent.keys().copied(), index) {
                world.lent.remove(&slot);
                world.dying.insert(slot);
                machine.lose(slot, actions);
            }
        }
        Step::LoseAny(slot) => {
            if machine.occupied().any(|occupied| occupied == slot) {
                world.lent.remove(&slot);
                world.settling.remove(&slot);
                world.dying.insert(slot);
                machine.lose(slot, actions);
            }
        }
        Step::Bury(index) => {
            if let Some(slot) = nth(world.dying.iter().copied(), index) {
                world.dying.remove(&slot);
                world.copies.remove(&slot);
                world.joined.remove(&slot);
                machine.buried(slot);
            }
        }
        Step::Branch(index) => {
            if let Some(parent) = nth(world.lent.keys().copied(), index) {
                let slot = machine.branch(machine.key_of(parent));
                assert!(!machine.is_lendable(slot));
                world.copies.insert(slot);
                world.give(0, Grant::Start { slot });
            }
        }
        Step::Open(index) => {
            if let Some(slot) = nth(world.lent.keys().copied(), index) {
                machine.open(slot, actions);
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_service_is_in_two_hands_and_nobody_waits_in_vain(
        (max_size, max_running) in (1..4u32).prop_flat_map(|size| (Just(size), 1..=size)),
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let mut machine = Machine::new(max_size, max_running);
        machine.share(SHARED, 2);
        let mut world = World::default();
        let mut actions = Vec::new();
        for step in &steps {
            apply(&mut world, &mut machine, step, &mut actions);
            world.act(&mut machine, &mut actions);
            prop_assert!(machine.live() <= max_size, "{} services of at most {max_size}", machine.live());
            prop_assert_eq!(machine.waiters(), world.waiting.len());
            let running = world.lent.keys().filter(|&slot| !world.copies.contains(slot)).count();
            prop_assert!(running <= max_running as usize, "{running} lent of at most {max_running}");
            let enough_run = running == max_running as usize;
            let nothing_to_give = enough_run || machine.idle() == 0 && machine.live() == max_size;
            for key in 0..3 {
                let waiters = || world.waiting.iter().filter(|&&(_, wanted)| wanted == key);
                prop_assert!(enough_run || waiters().count() == 0 || !machine.has_idle_of(key), "someone waits beside a fitting service");
                let hurried = waiters().any(|(ticket, _)| world.hurried.contains(ticket));
                let expectant = waiters().count() <= machine.settling_of(key);
                prop_assert!(nothing_to_give || (expectant && !hurried), "someone waits in vain");
            }
        }
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
