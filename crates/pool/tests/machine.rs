//! The pool's decisions against a model of what may be held, under any order of events.

#[path = "../../transport/tests/counted/mod.rs"]
mod counted;
#[path = "machine/world.rs"]
mod world;

use forebay_pool::machine::{Action, Grant, Machine};
use proptest::prelude::*;
use world::{GROUPS, KEYS, SHARED, Step, World};

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..KEYS, 0..GROUPS).prop_map(|(key, group)| Step::Ask(key, group)),
        3 => (0..GROUPS).prop_map(|group| Step::Ask(SHARED, group)),
        1 => (0..KEYS, 0..GROUPS).prop_map(|(key, group)| Step::Take(key, group)),
        1 => (0..GROUPS).prop_map(Step::Join),
        4 => any::<usize>().prop_map(Step::ReleaseSettled),
        3 => any::<usize>().prop_map(Step::ReleaseSettling),
        3 => (any::<usize>(), any::<bool>())
            .prop_map(|(index, settled)| Step::ReleaseAtOnce(index, settled)),
        3 => any::<usize>().prop_map(Step::Readable),
        1 => any::<usize>().prop_map(Step::LoseLent),
        1 => (0..6u32).prop_map(Step::LoseAny),
        2 => any::<usize>().prop_map(Step::Bury),
        1 => any::<usize>().prop_map(Step::Leave),
        3 => any::<usize>().prop_map(Step::Hurry),
        1 => any::<usize>().prop_map(Step::Branch),
        1 => (0..KEYS).prop_map(Step::Refill),
        4 => any::<usize>().prop_map(Step::Open),
        2 => any::<usize>().prop_map(Step::Close),
        1 => any::<bool>().prop_map(Step::Sleep),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_service_is_in_two_hands_and_nobody_waits_in_vain(
        (max_size, max_running) in (1..4u32).prop_flat_map(|size| (Just(size), 1..=size)),
        kept in any::<bool>(),
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let _watch = counted::Watch;
        let mut world = World::new(max_size, max_running, kept);
        for step in &steps {
            counted::step();
            world.step(step);
        }
    }
}

#[test]
fn a_waiter_whose_service_dies_before_it_looks_keeps_its_place() {
    let mut machine = Machine::new(1, 1);
    let mut actions = Vec::new();
    let Some(Grant::Start { slot }) = machine.ask(1, 0, 0, &mut actions) else {
        panic!("room")
    };
    assert_eq!(machine.ask(2, 0, 0, &mut actions), None);
    assert_eq!(machine.ask(3, 0, 0, &mut actions), None);
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
    let Some(Grant::Start { slot }) = machine.ask(1, 0, 0, &mut actions) else {
        panic!("room")
    };
    machine.release(slot, false, &mut actions);
    assert_eq!(
        machine.ask(2, 0, 0, &mut actions),
        None,
        "one is being reset"
    );
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
        |machine: &mut Machine, ticket, key| match machine.ask(ticket, key, 0, &mut actions) {
            Some(Grant::Start { slot }) => slot,
            other => panic!("room, but {other:?}"),
        };
    let abandoned = start(&mut machine, 1, 0);
    let warm = start(&mut machine, 2, 1);
    let mut actions = Vec::new();
    machine.release(abandoned, false, &mut actions);
    machine.release(warm, true, &mut actions);
    assert_eq!(machine.ask(3, 0, 0, &mut actions), None, "one is starting");
    assert!(matches!(
        machine.ask(4, 1, 0, &mut actions),
        Some(Grant::Take { slot, .. }) if slot == warm
    ));
    assert!(
        matches!(
            machine.ask(5, 0, 0, &mut actions),
            Some(Grant::Start { .. })
        ),
        "one that starts is not enough for two"
    );
    assert_eq!(actions, []);
}

#[test]
fn who_waits_for_room_does_not_keep_kept_services_from_their_own() {
    let mut machine = Machine::new(1, 1);
    machine.keep(0);
    let mut actions = Vec::new();
    let Some(Grant::Start { slot }) = machine.ask(1, 0, 0, &mut actions) else {
        panic!("room")
    };
    machine.release(slot, true, &mut actions);
    assert_eq!(
        machine.ask(2, 1, 0, &mut actions),
        None,
        "what is kept makes no room"
    );
    assert!(matches!(
        machine.ask(3, 0, 0, &mut actions),
        Some(Grant::Take { slot: taken, .. }) if taken == slot
    ));
}

#[test]
fn the_end_of_one_shared_service_leaves_the_others_to_be_joined() {
    let mut machine = Machine::new(3, 3);
    machine.share(0, 2);
    let mut actions = Vec::new();
    let [ended, other] = [1, 2].map(|ticket| match machine.ask(ticket, 0, 0, &mut actions) {
        Some(Grant::Start { slot }) => slot,
        grant => panic!("room, but {grant:?}"),
    });
    for slot in [ended, other] {
        machine.open(slot, &mut actions);
    }
    assert!(
        !machine.release_shared(ended, false, &mut actions),
        "its only lease"
    );
    machine.release(ended, true, &mut actions);
    let joined = machine.ask(3, 0, 0, &mut actions);
    assert_eq!(joined, Some(Grant::Join { slot: other }));
    assert_eq!(actions, []);
}

#[test]
fn a_service_is_joined_by_its_own_group_alone() {
    let mut machine = Machine::new(2, 2);
    machine.share(0, 3);
    let mut actions = Vec::new();
    let Some(Grant::Start { slot }) = machine.ask(1, 0, 7, &mut actions) else {
        panic!("room")
    };
    machine.open(slot, &mut actions);
    assert_eq!(machine.join(0, 8), None, "another group's");
    assert_eq!(machine.join(0, 7), Some(slot));
    assert_eq!(
        machine.ask(2, 0, 7, &mut actions),
        Some(Grant::Join { slot })
    );
    assert_eq!(machine.join(0, 7), None, "it has as many as it may");
    assert!(
        matches!(machine.ask(3, 0, 8, &mut actions), Some(Grant::Start { slot: other }) if other != slot)
    );
    assert_eq!(machine.ask(4, 0, 7, &mut actions), None, "no room");
    assert!(machine.release_shared(slot, false, &mut actions));
    assert_eq!(actions, [Action::Wake(4, Grant::Join { slot })]);
}

#[test]
fn who_can_share_a_service_does_not_wait_for_one_that_settles() {
    let mut machine = Machine::new(2, 2);
    machine.share(0, 2);
    let mut actions = Vec::new();
    let [shared, settling] = [1, 2].map(|ticket| match machine.ask(ticket, 0, 0, &mut actions) {
        Some(Grant::Start { slot }) => slot,
        grant => panic!("room, but {grant:?}"),
    });
    machine.open(shared, &mut actions);
    machine.release(settling, false, &mut actions);
    let joined = machine.ask(3, 0, 0, &mut actions);
    assert_eq!(joined, Some(Grant::Join { slot: shared }));
}

#[test]
fn nobody_joins_past_a_caller_that_waits() {
    let mut machine = Machine::new(1, 1);
    machine.share(0, 3);
    let mut actions = Vec::new();
    let Some(Grant::Start { slot }) = machine.ask(1, 0, 0, &mut actions) else {
        panic!("room")
    };
    machine.open(slot, &mut actions);
    assert_eq!(machine.ask(2, 1, 0, &mut actions), None, "no room");
    assert_eq!(machine.ask(3, 0, 0, &mut actions), None, "behind it");
    assert_eq!(machine.join(0, 0), None);
    machine.leave(3, &mut actions);
    machine.leave(2, &mut actions);
    assert_eq!(machine.join(0, 0), Some(slot));
}

/// A service that its group shares, and a caller of the group that was granted a further lease and has not looked yet.
fn granted_unseen() -> (Machine, u32) {
    let mut machine = Machine::new(1, 1);
    machine.share(0, 2);
    let mut actions = Vec::new();
    let Some(Grant::Start { slot }) = machine.ask(1, 0, 0, &mut actions) else {
        panic!("room")
    };
    assert_eq!(machine.ask(2, 0, 0, &mut actions), None, "no room");
    machine.open(slot, &mut actions);
    assert_eq!(actions, [Action::Wake(2, Grant::Join { slot })]);
    (machine, slot)
}

#[test]
fn who_was_to_join_a_service_that_comes_back_gets_it_or_leaves_it_idle() {
    let (mut machine, slot) = granted_unseen();
    let mut actions = Vec::new();
    machine.release(slot, true, &mut actions);
    let settled = true;
    assert_eq!(actions, [Action::Wake(2, Grant::Take { slot, settled })]);
    machine.leave(2, &mut actions);
    assert_eq!((machine.live(), machine.idle()), (1, 1));
    assert_eq!(machine.take(0, 0, |_| true), Some(slot));
}

#[test]
fn who_was_to_join_a_service_that_settles_waits_for_it() {
    let (mut machine, slot) = granted_unseen();
    let mut actions = Vec::new();
    machine.release(slot, false, &mut actions);
    assert_eq!(machine.granted(2), None);
    assert_eq!((machine.waiters(), machine.settling()), (1, 1));
    machine.leave(2, &mut actions);
    machine.lose(slot, &mut actions);
    assert_eq!(machine.live(), 0);
    assert_eq!(actions, []);
}

#[test]
fn who_leaves_a_further_lease_leaves_the_service_to_its_holder() {
    let (mut machine, slot) = granted_unseen();
    let mut actions = Vec::new();
    machine.leave(2, &mut actions);
    assert_eq!(actions, []);
    assert!(
        !machine.release_shared(slot, false, &mut actions),
        "its only lease"
    );
}

#[test]
fn a_service_whose_holder_left_before_its_last_caller_ends_with_that_caller() {
    let (mut machine, slot) = granted_unseen();
    let mut actions = Vec::new();
    assert!(machine.release_shared(slot, false, &mut actions));
    assert_eq!(actions, []);
    machine.leave(2, &mut actions);
    assert_eq!(actions, [Action::Evict(slot)], "nobody has reset it");
}

#[test]
fn who_was_in_a_hurry_is_patient_again_where_its_service_died_before_it_looked() {
    let mut machine = Machine::new(2, 2);
    let mut actions = Vec::new();
    let Some(Grant::Start { slot: settling }) = machine.ask(1, 0, 0, &mut actions) else {
        panic!("room")
    };
    machine.release(settling, false, &mut actions);
    assert_eq!(machine.ask(2, 0, 0, &mut actions), None, "one settles");
    machine.hurry(2, &mut actions);
    let [Action::Wake(2, Grant::Start { slot })] = actions[..] else {
        panic!("{actions:?}")
    };
    actions.clear();
    machine.lose(slot, &mut actions);
    assert_eq!(actions, [], "it waits for the one that settles");
    machine.readable(settling, &mut actions);
    let settled = false;
    let taken = Grant::Take {
        slot: settling,
        settled,
    };
    assert_eq!(actions, [Action::Wake(2, taken)]);
}

/// A service that its group may share three times, with two leases.
fn joined() -> (Machine, u32) {
    let mut machine = Machine::new(2, 2);
    machine.share(0, 3);
    let mut actions = Vec::new();
    let Some(Grant::Start { slot }) = machine.ask(1, 0, 0, &mut actions) else {
        panic!("room")
    };
    machine.open(slot, &mut actions);
    assert_eq!(machine.join(0, 0), Some(slot));
    assert_eq!(actions, []);
    (machine, slot)
}

#[test]
fn a_further_lease_that_never_began_does_not_count() {
    let (mut machine, slot) = joined();
    let mut actions = Vec::new();
    machine.lose(slot, &mut actions);
    machine.unjoin(slot);
    assert!(
        !machine.release_shared(slot, true, &mut actions),
        "one is left"
    );
}

#[test]
fn a_service_that_one_of_its_holders_closed_is_joined_no_more() {
    let (mut machine, slot) = joined();
    let mut actions = Vec::new();
    assert!(machine.release_shared(slot, true, &mut actions));
    assert_eq!(machine.join(0, 0), None);
    assert_eq!(actions, []);
}

#[test]
fn a_key_is_refilled_up_to_what_it_is_to_have_and_no_further() {
    let mut machine = Machine::new(4, 4);
    let mut actions = Vec::new();
    let first = machine.refill(0, 2).expect("it has none");
    machine.release(first, true, &mut actions);
    let second = machine.refill(0, 2).expect("it has one that is idle");
    machine.release(second, false, &mut actions);
    assert_eq!(machine.refill(0, 2), None, "one idle, and one that settles");
    machine.readable(second, &mut actions);
    assert_eq!(machine.refill(0, 2), None, "two are idle");
    assert!(machine.refill(1, 2).is_some(), "another key has none");
    assert_eq!(actions, []);
}
