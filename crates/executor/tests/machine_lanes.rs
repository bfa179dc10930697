//! Who is next: lanes, submitters, priorities, keys, names, and requests that wait for others.

mod rig;

use std::sync::Arc;

use forebay_executor::action::Action;
use forebay_executor::id::RequestId;
use forebay_executor::machine::{Cordon, Definition, Policy};
use forebay_executor::request::{Failure, Lane, Options, Outcome, Slot, Status};

use rig::{Rig, definition, options};

fn no_store(workers: u32) -> Policy {
    Policy {
        durable: false,
        guaranteed: [1, workers, 1],
        burst: false,
        ..Policy::default()
    }
}

fn lane(lane: Lane) -> Options {
    options(|options| options.lane = lane)
}

fn key(name: &str) -> Options {
    options(|options| options.key = Some(name.into()))
}

/// Ends what runs in a worker, again and again, and returns what ran, in its order.
fn order(rig: &mut Rig) -> Vec<RequestId> {
    let mut order = Vec::new();
    loop {
        let begun: Vec<_> = rig.dispatched();
        if begun.is_empty() {
            return order;
        }
        for (slot, id, attempt) in begun {
            order.push(id);
            rig.succeed(slot, id, attempt);
        }
    }
}

#[test]
fn a_short_request_runs_while_long_ones_hold_every_other_worker() {
    let mut rig = Rig::new(no_store(2));
    rig.workers_up(&[Lane::Short, Lane::Long]);
    for _ in 0..100 {
        rig.submit("Long", lane(Lane::Long));
    }
    rig.take();
    let short = rig.submit("Short", lane(Lane::Short));
    assert_eq!(rig.dispatched().len(), 1);
    assert!(rig.machine.view(short).unwrap().slot.is_some());
}

#[test]
fn a_submitter_with_one_request_does_not_wait_for_one_with_many() {
    let mut rig = Rig::new(no_store(1));
    rig.workers_up(&[Lane::Long]);
    let mut many = Vec::new();
    for _ in 0..10 {
        many.push(rig.submit_as("ann", "Long", Options::default()));
    }
    let urgent = rig.submit_as("ann", "Long", options(|options| options.priority = 5));
    let one = rig.submit_as("bob", "Long", Options::default());
    let order = order(&mut rig);
    assert_eq!(order[..4], [many[0], urgent, one, many[1]]);
    assert_eq!(order.len(), 12);
}

#[test]
fn lanes_that_compete_for_memory_share_it_by_their_weights() {
    let mut rig = Rig::new(Policy {
        lane_weights: [3, 1, 1],
        memory_limit: Some(1_000_000_000),
        guaranteed: [4, 4, 0],
        ..no_store(4)
    });
    rig.workers_up(&[Lane::Short, Lane::Long]);
    // One at a time fits.
    let large = |lane| {
        options(|options| {
            options.lane = lane;
            options.memory_bytes = Some(600_000_000);
        })
    };
    for _ in 0..40 {
        rig.submit("Short", large(Lane::Short));
        rig.submit("Long", large(Lane::Long));
    }
    let mut short = 0;
    for _ in 0..40 {
        let begun = rig.dispatched();
        let [(slot, id, attempt)] = begun[..] else {
            panic!("one at a time: {begun:?}");
        };
        let lane = rig.machine.request(id).unwrap().submission.options.lane;
        short += u32::from(lane == Lane::Short);
        rig.succeed(slot, id, attempt);
    }
    assert!(
        (28..=32).contains(&short),
        "{short} of 40, where three of four are expected"
    );
}

#[test]
fn requests_of_a_key_run_one_at_a_time_in_their_order_and_others_pass_them() {
    let mut rig = Rig::new(no_store(4));
    rig.workers_up(&[Lane::Long]);
    let first = rig.submit("Long", key("cluster"));
    let second = rig.submit("Long", key("cluster"));
    let other = rig.submit("Long", key("elsewhere"));
    let begun = rig.dispatched();
    assert_eq!(
        begun.iter().map(|(_, id, _)| *id).collect::<Vec<_>>(),
        [first, other]
    );
    let why = rig.machine.why(0, second).unwrap();
    assert_eq!(why.reason, "waiting: 1 of 1 requests hold key \"cluster\"");
    rig.succeed(begun[0].0, first, 1);
    assert_eq!(rig.dispatched()[0].1, second);
}

#[test]
fn submitters_take_turns_within_a_key() {
    let mut rig = Rig::new(no_store(4));
    rig.workers_up(&[Lane::Long]);
    let many: Vec<_> = (0..4)
        .map(|_| rig.submit_as("ann", "Long", key("cluster")))
        .collect();
    let few: Vec<_> = (0..2)
        .map(|_| rig.submit_as("bob", "Long", key("cluster")))
        .collect();
    let mut order = Vec::new();
    while let Some((slot, id, attempt)) = rig.dispatched().pop() {
        order.push(id);
        rig.succeed(slot, id, attempt);
    }
    let turns = [many[0], many[1], few[0], many[2], few[1], many[3]];
    assert_eq!(order, turns);
}

#[test]
fn a_name_with_a_limit_leaves_the_other_workers_to_other_names() {
    let mut rig = Rig::new(no_store(4));
    rig.workers_up(&[Lane::Long]);
    let limited = Definition {
        concurrency: Some(2),
        ..definition("limited", Options::default())
    };
    rig.machine.install(0, "code".into(), &[limited]).unwrap();
    let ids: Vec<_> = (0..5)
        .map(|_| rig.submit("limited", Options::default()))
        .collect();
    let other = rig.submit("free", Options::default());
    let begun = rig.dispatched();
    assert_eq!(
        begun.iter().map(|(_, id, _)| *id).collect::<Vec<_>>(),
        [ids[0], ids[1], other]
    );
    assert_eq!(
        rig.machine.why(0, ids[4]).unwrap().reason,
        "waiting: 2 of 2 limited run at once"
    );
    // A cancelled one passes its turn on.
    rig.machine.cancel(0, ids[2]);
    rig.succeed(begun[0].0, ids[0], 1);
    assert_eq!(rig.dispatched()[0].1, ids[3]);
}

#[test]
fn a_request_waits_for_those_it_comes_after() {
    let mut rig = Rig::new(no_store(4));
    rig.workers_up(&[Lane::Long]);
    let before = [
        rig.submit("Long", Options::default()),
        rig.submit("Long", Options::default()),
    ];
    let after = rig.submit("Long", options(|options| options.after = before.to_vec()));
    let begun = rig.dispatched();
    rig.succeed(begun[0].0, before[0], 1);
    assert_eq!(
        rig.machine.why(0, after).unwrap().reason,
        "waiting: for 1 of the requests it comes after"
    );
    rig.succeed(begun[1].0, before[1], 1);
    assert_eq!(rig.dispatched()[0].1, after);
    // Both have ended: what comes after them need not wait.
    let late = rig.submit("Long", options(|options| options.after = before.to_vec()));
    assert_eq!(rig.dispatched()[0].1, late);
}

#[test]
fn a_retried_request_waits_again_for_all_that_it_comes_after() {
    let mut rig = Rig::new(no_store(4));
    rig.workers_up(&[Lane::Long]);
    let slow = rig.submit("Long", Options::default());
    let failed = rig.submit("Long", Options::default());
    let both = vec![slow, failed];
    let after = rig.submit("Long", options(|options| options.after = both));
    let begun = rig.dispatched();
    let raised = Outcome::Failed(Failure::Raised(Vec::new().into()));
    rig.machine.finished(1, begun[1].0, failed, 1, raised, None);
    assert_eq!(rig.ended(after), Some(Status::Failed));
    for id in [failed, after] {
        let ended = rig.ended_as_restored(id);
        assert_eq!(rig.machine.retry(1, ended), Ok(true));
    }
    let again = rig.dispatched();
    assert_eq!(again[0].1, failed);
    rig.succeed(begun[0].0, slow, 1);
    assert_eq!(rig.dispatched(), [], "the other one still runs");
    rig.succeed(again[0].0, failed, 2);
    assert_eq!(rig.dispatched()[0].1, after);
}

#[test]
fn a_failure_ends_a_chain_of_any_length() {
    let mut rig = Rig::new(no_store(1));
    rig.workers_up(&[Lane::Long]);
    let first = rig.submit("Long", Options::default());
    let mut chain = vec![first];
    for _ in 0..20_000 {
        let before = *chain.last().unwrap();
        chain.push(rig.submit("Long", options(|options| options.after = vec![before])));
    }
    let (slot, ..) = rig.dispatched()[0];
    let raised = Outcome::Failed(Failure::Raised(Vec::new().into()));
    rig.machine.finished(1, slot, first, 1, raised, None);
    assert_eq!(rig.ended(*chain.last().unwrap()), Some(Status::Failed));
    let ending = &rig.endings[&chain[2]];
    assert_eq!(ending.outcome, Outcome::Failed(Failure::After(chain[1])));
    let unknown = rig.try_submit(
        "Long",
        options(|options| options.after = vec![RequestId(3)]),
    );
    assert_eq!(unknown.unwrap_err().code, "unknown");
}

#[test]
fn thousands_of_async_requests_share_one_worker() {
    let mut rig = Rig::new(Policy {
        async_at_once: 1_000,
        ..no_store(1)
    });
    rig.workers_up(&[Lane::Async]);
    for _ in 0..1_500 {
        rig.submit("Async", lane(Lane::Async));
    }
    let begun = rig.dispatched();
    assert_eq!(begun.len(), 1_000);
    assert!(begun.iter().all(|(slot, ..)| *slot == begun[0].0));
    rig.succeed(begun[7].0, begun[7].1, 1);
    assert_eq!(rig.dispatched().len(), 1);
}

#[test]
fn the_queue_has_a_limit_and_a_draining_server_takes_nothing() {
    let mut rig = Rig::new(Policy {
        queued_max: 2,
        ..no_store(1)
    });
    let kept = [
        rig.submit("Long", Options::default()),
        rig.submit("Long", Options::default()),
    ];
    let refusal = rig.try_submit("Long", Options::default()).unwrap_err();
    assert_eq!(
        (refusal.code, &*refusal.limit, &*refusal.value),
        ("limit", "max_queued", "3")
    );
    rig.machine.drain(0);
    assert_eq!(
        rig.try_submit("Long", Options::default()).unwrap_err().code,
        "draining"
    );
    assert!(rig.machine.is_idle());
    assert_eq!(
        rig.machine.why(0, kept[0]).unwrap().reason,
        "waiting: the server drains"
    );
}

#[test]
fn a_held_machine_takes_requests_and_starts_nothing() {
    let mut rig = Rig::new(no_store(1));
    rig.machine.hold(
        0,
        Some(Arc::from(
            "tune.py cannot be imported: no module named numpy",
        )),
    );
    let id = rig.submit("Long", Options::default());
    let actions = rig.take();
    assert!(matches!(actions[..], [Action::Accepted(_)]), "{actions:?}");
    assert!(
        rig.machine
            .why(0, id)
            .unwrap()
            .reason
            .contains("no module named numpy")
    );
    rig.machine.hold(1, None);
    rig.run_until_dispatched(id, 1);
}

/// The worker of a request's first run, which begins now.
fn run(rig: &mut Rig, id: RequestId) -> Slot {
    rig.run_until_dispatched(id, 1);
    let view = rig.machine.view(id);
    view.and_then(|view| view.slot).expect("it runs")
}

fn cordon(reason: &str, dispatches: bool) -> Cordon {
    Cordon {
        by: "ann".into(),
        reason: reason.into(),
        at: 0,
        dispatches,
    }
}

#[test]
fn a_cordoned_machine_takes_nothing_and_runs_what_it_has() {
    let mut rig = Rig::new(no_store(1));
    let running = rig.submit("Long", Options::default());
    let waiting = rig.submit("Long", Options::default());
    let slot = run(&mut rig, running);
    rig.machine.cordon(0, Some(cordon("a new kernel", true)));
    let refusal = rig.try_submit("Long", Options::default()).unwrap_err();
    assert_eq!(refusal.code, "draining");
    assert!(
        refusal
            .message
            .ends_with("ann has cordoned the server: a new kernel")
    );
    assert!(refusal.next.ends_with("forebay cordon --undo"));
    assert!(rig.machine.figures(0).held.is_none());
    rig.succeed(slot, running, 1);
    rig.run_until_dispatched(waiting, 1);
    rig.machine.cordon(0, None);
    assert!(rig.machine.figures(0).cordon.is_none());
    rig.submit("Long", Options::default());
}

#[test]
fn a_drained_machine_begins_nothing_until_that_is_taken_back() {
    let mut rig = Rig::new(no_store(1));
    let running = rig.submit("Long", Options::default());
    let waiting = rig.submit("Long", Options::default());
    let slot = run(&mut rig, running);
    rig.machine.cordon(0, Some(cordon("", false)));
    rig.succeed(slot, running, 1);
    let view = rig.machine.view(waiting).expect("it waits");
    assert_eq!(view.slot, None);
    assert!(rig.machine.is_idle());
    assert_eq!(
        rig.machine.why(0, waiting).unwrap().reason,
        "waiting: ann drains the server"
    );
    // `forebay drain --finish` on a drained server.
    rig.machine.cordon(0, Some(cordon("", true)));
    let slot = run(&mut rig, waiting);
    rig.succeed(slot, waiting, 1);
    assert!(rig.try_submit("Long", Options::default()).is_err());
    rig.machine.cordon(0, None);
    let id = rig.submit("Long", Options::default());
    rig.run_until_dispatched(id, 1);
}
