//! When workers start, end, are replaced, and cannot start.

mod rig;

use forebay_executor::action::Action;
use forebay_executor::machine::{Capacity, Policy};
use forebay_executor::request::{Lane, Options, Status};

use rig::{Rig, death, definition, options};

fn policy() -> Policy {
    Policy {
        durable: false,
        guaranteed: [0, 1, 0],
        cores_milli: 4_000,
        worker_idle_ms: 10_000,
        ..Policy::default()
    }
}

fn started(actions: &[Action]) -> usize {
    let start = |action: &&Action| matches!(action, Action::Start { .. });
    actions.iter().filter(start).count()
}

fn stopped(actions: &[Action]) -> Vec<u32> {
    let slot = |action: &Action| match action {
        Action::Stop { slot } => Some(*slot),
        _ => None,
    };
    actions.iter().filter_map(slot).collect()
}

#[test]
fn a_burst_starts_workers_and_leaves_only_the_guaranteed_one() {
    let mut rig = Rig::new(policy());
    rig.workers_up(&[Lane::Long]);
    rig.now = 100;
    for _ in 0..10 {
        rig.submit("Long", Options::default());
    }
    let mut runs = rig.start_and_dispatch();
    assert_eq!(runs.len(), 4, "as many as cores at once");
    while runs.len() < 10 {
        rig.now = rig.machine.next_tick().expect("more workers would help");
        rig.machine.tick(rig.now);
        runs.extend(rig.start_and_dispatch());
    }
    assert!(
        rig.now <= 120,
        "their number doubles each 10 ms: {}",
        rig.now
    );
    for (slot, id, attempt) in runs {
        rig.succeed(slot, id, attempt);
    }
    let idle = rig.now + 10_000;
    assert_eq!(rig.machine.next_tick(), Some(idle));
    rig.machine.tick(idle);
    let stopped = stopped(&rig.take());
    assert_eq!(stopped.len(), 9);
    for slot in stopped {
        rig.machine.worker_gone(idle, slot, death("exit"));
    }
    let workers = rig.machine.workers();
    assert_eq!(workers.len(), 1);
    assert!(!workers[0].burst);
}

#[test]
fn requests_that_end_within_a_millisecond_start_no_more_workers_than_cores() {
    let mut rig = Rig::new(policy());
    rig.workers_up(&[Lane::Long]);
    let mut ready = std::collections::VecDeque::new();
    for _ in 0..50 {
        rig.now += 1;
        for _ in 0..10 {
            rig.submit("Long", Options::default());
        }
        ready.extend(rig.start_and_dispatch());
        while let Some((slot, id, attempt)) = ready.pop_front() {
            rig.succeed(slot, id, attempt);
            ready.extend(rig.start_and_dispatch());
        }
    }
    assert!(
        rig.machine.workers().len() <= 4,
        "{:?}",
        rig.machine.workers()
    );
}

#[test]
fn a_place_is_not_used_again_before_its_workers_death_is_known() {
    let mut rig = Rig::new(Policy {
        worker_uses_max: 1,
        ..policy()
    });
    rig.workers_up(&[Lane::Long]);
    let first = rig.submit("Long", Options::default());
    rig.take();
    rig.succeed(0, first, 1);
    let actions = rig.take();
    assert_eq!(stopped(&actions), [0], "it has done its one request");
    assert!(
        actions
            .iter()
            .any(|action| matches!(action, Action::Start { slot: 1, .. }))
    );
    rig.machine.worker_gone(5, 0, death("exit"));
    rig.machine.worker_ready(5, 1);
    let second = rig.submit("Long", Options::default());
    rig.succeed(1, second, 1);
    assert!(
        rig.take()
            .iter()
            .any(|action| matches!(action, Action::Start { slot: 0, .. }))
    );
}

#[test]
fn a_worker_that_is_old_or_has_grown_is_replaced_between_two_requests() {
    for (age, private) in [(3_600_000, 6_000_000), (10, 300_000_000)] {
        let mut rig = Rig::new(policy());
        rig.workers_up(&[Lane::Long]);
        rig.machine.measured(0, 0, 6_000_000);
        let id = rig.submit("Long", Options::default());
        rig.take();
        rig.machine.measured(5, 0, private);
        rig.now = age;
        assert!(
            stopped(&rig.take()).is_empty(),
            "never while it runs something"
        );
        rig.succeed(0, id, 1);
        assert_eq!(stopped(&rig.take()), [0]);
    }
}

#[test]
fn a_worker_that_cannot_start_is_tried_again_ever_more_seldom_and_says_why() {
    let mut rig = Rig::new(policy());
    let id = rig.submit("Long", Options::default());
    let mut tries = 0;
    let mut last = 0;
    while rig.now < 120_000 {
        for action in rig.take() {
            if let Action::Start { slot, .. } = action {
                tries += 1;
                rig.machine
                    .worker_failed(rig.now, slot, "no module named numpy".into());
            }
        }
        let next = rig.machine.next_tick().expect("it is tried again");
        assert!(next > rig.now, "no hot loop");
        last = next - rig.now;
        rig.now = next;
        rig.machine.tick(rig.now);
    }
    assert!((8..=20).contains(&tries), "{tries} tries in two minutes");
    assert!(last >= 15_000, "the last wait was {last} ms");
    rig.take();
    rig.machine
        .worker_failed(rig.now, 0, "no module named numpy".into());
    let why = rig.machine.why(rig.now, id).unwrap();
    assert!(why.reason.contains("no module named numpy"), "{why:?}");
    rig.run_until_dispatched(id, 1);
    assert!(rig.machine.figures(rig.now).held.is_none());
}

#[test]
fn workers_that_die_together_count_as_one_failed_start() {
    let mut rig = Rig::new(Policy {
        guaranteed: [0, 5, 0],
        ..policy()
    });
    rig.workers_up(&[Lane::Long]);
    for slot in 0..5 {
        rig.machine.worker_gone(1_000, slot, death("unknown"));
    }
    rig.machine.tick(1_100);
    assert_eq!(started(&rig.take()), 1, "one is tried");
    rig.machine.worker_ready(1_101, 0);
    assert_eq!(started(&rig.take()), 4);
}

#[test]
fn new_code_replaces_workers_at_once_or_after_what_they_run() {
    let mut rig = Rig::new(Policy {
        guaranteed: [0, 2, 0],
        ..policy()
    });
    rig.workers_up(&[Lane::Long]);
    let old = rig.submit("Long", Options::default());
    let (busy, ..) = rig.dispatched()[0];
    let long = [definition("Long", Options::default())];
    rig.machine.install(1, "newer".into(), &long).unwrap();
    let actions = rig.take();
    assert_eq!(stopped(&actions), [1 - busy]);
    assert_eq!(started(&actions), 2);
    let new = rig.submit("Long", Options::default());
    assert!(
        rig.dispatched().is_empty(),
        "never in a worker of the old code"
    );
    rig.succeed(busy, old, 1);
    assert_eq!(stopped(&rig.take()), [busy]);
    rig.machine.worker_ready(2, 2);
    assert_eq!(rig.dispatched(), [(2, new, 1)]);
}

#[test]
fn a_lane_takes_an_idle_burst_workers_place_where_all_are_taken() {
    let mut rig = Rig::new(Policy {
        workers_max: 3,
        guaranteed: [0, 0, 0],
        ..policy()
    });
    let short = || options(|options| options.lane = Lane::Short);
    rig.now = 100;
    for _ in 0..3 {
        rig.submit("long", Options::default());
    }
    let runs = rig.start_and_dispatch();
    assert_eq!(runs.len(), 3, "no other lane is in use");
    let first = rig.submit("short", short());
    assert_eq!(
        rig.start_and_dispatch().len(),
        1,
        "its lane has a place of its own"
    );
    for (slot, id, attempt) in runs {
        rig.succeed(slot, id, attempt);
    }
    rig.now = 200;
    rig.submit("short", short());
    let actions = rig.take();
    assert_eq!(
        stopped(&actions).len(),
        2,
        "four were more than three: {actions:?}"
    );
    assert_eq!(started(&actions), 1);
    assert!(rig.machine.view(first).unwrap().slot.is_some());
}

#[test]
fn another_capacity_is_dispatched_for_at_once() {
    let mut rig = Rig::new(Policy {
        workers_max: 2,
        guaranteed: [0, 0, 0],
        ..policy()
    });
    let capacity = |workers_max| Capacity {
        workers_max,
        guaranteed: [0, 0, 0],
        cores_milli: None,
        memory_limit: None,
    };
    rig.now = 100;
    for _ in 0..4 {
        rig.submit("long", Options::default());
    }
    let runs = rig.start_and_dispatch();
    assert_eq!(runs.len(), 2);
    rig.machine.set_capacity(rig.now, capacity(3));
    assert_eq!(rig.start_and_dispatch().len(), 1, "it has grown by one");
    rig.machine.set_capacity(rig.now, capacity(1));
    assert!(rig.take().is_empty(), "what runs is not ended");
    let (slot, id, attempt) = runs[0];
    rig.succeed(slot, id, attempt);
    rig.submit("long", Options::default());
    assert_eq!(started(&rig.take()), 0, "three are more than one");
}

#[test]
fn memory_is_promised_beyond_what_there_was_and_never_below() {
    let mut policy = Policy {
        memory_limit: Some(1_000),
        ..policy()
    };
    let grown = |memory_limit| Capacity {
        workers_max: 9,
        guaranteed: [1, 1, 0],
        cores_milli: Some(9_000),
        memory_limit,
    };
    let mut limit_after = |memory_limit| {
        let mut rig = Rig::new(policy.clone());
        rig.machine.set_capacity(rig.now, grown(memory_limit));
        policy.memory_limit = rig.machine.figures(rig.now).memory_limit_bytes;
        policy.memory_limit
    };
    assert_eq!(limit_after(Some(3_000)), Some(3_000));
    assert_eq!(
        limit_after(Some(2_000)),
        Some(3_000),
        "its guard would end what runs"
    );
    assert_eq!(limit_after(None), Some(3_000));
}

#[test]
fn deaths_of_many_async_requests_in_one_worker_are_blamed_on_none() {
    let mut rig = Rig::new(Policy {
        guaranteed: [0, 0, 1],
        ..policy()
    });
    rig.workers_up(&[Lane::Async]);
    let retried = || {
        options(|options| {
            options.lane = Lane::Async;
            options.retries = 9;
        })
    };
    let ids = [
        rig.submit("Async", retried()),
        rig.submit("Async", retried()),
    ];
    for attempt in 1..=5 {
        rig.run_until_dispatched(ids[0], attempt);
        rig.run_until_dispatched(ids[1], attempt);
        let slot = rig.machine.view(ids[0]).unwrap().slot.unwrap();
        rig.machine.worker_gone(rig.now, slot, death("exit"));
    }
    assert_ne!(rig.ended(ids[0]), Some(Status::Dead));
    assert_ne!(rig.ended(ids[1]), Some(Status::Dead));
}
