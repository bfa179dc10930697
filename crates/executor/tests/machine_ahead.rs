//! Requests that are handed to a worker behind the one that it runs, and how they come back.

mod rig;

use forebay_executor::action::{Action, Step};
use forebay_executor::id::RequestId;
use forebay_executor::machine::{Cancelled, Policy};
use forebay_executor::op::Op;
use forebay_executor::request::{Lane, Options, Slot, Status};

use rig::{Rig, death, options};

fn policy(workers: u32) -> Policy {
    Policy {
        guaranteed: [0, workers, 0],
        cores_milli: 1_000 * workers,
        workers_max: workers + 1,
        ahead_ms_max: 10,
        ..Policy::default()
    }
}

fn ahead(ahead: u32) -> Options {
    options(|options| options.ahead = ahead)
}

/// Workers that are up, of a lane in which one run has ended at once.
fn rig(workers: u32) -> Rig {
    let mut rig = Rig::new(policy(workers));
    rig.workers_up(&[Lane::Long]);
    let id = rig.submit("f", ahead(1));
    rig.commit_all();
    let (slot, ..) = rig.dispatched()[0];
    rig.succeed(slot, id, 1);
    rig.commit_all();
    rig.take();
    rig
}

fn submitted(rig: &mut Rig, count: usize, options: &Options) -> Vec<RequestId> {
    let ids = (0..count)
        .map(|_| rig.submit("f", options.clone()))
        .collect();
    rig.commit_all();
    ids
}

fn recalled(actions: &[Action]) -> Vec<RequestId> {
    let id = |action: &Action| match action {
        Action::Recall { id, .. } => Some(*id),
        _ => None,
    };
    actions.iter().filter_map(id).collect()
}

fn why(rig: &Rig, id: RequestId) -> String {
    rig.machine.why(rig.now, id).expect("unfinished").reason
}

#[test]
fn every_worker_gets_one_before_any_gets_a_second() {
    let mut rig = rig(2);
    let ids = submitted(&mut rig, 7, &ahead(2));
    let slots: Vec<Slot> = rig.dispatched().iter().map(|(slot, ..)| *slot).collect();
    assert_eq!(slots.len(), 6, "two run, and each has two behind it");
    assert_ne!(slots[0], slots[1]);
    let first = slots.iter().filter(|slot| **slot == slots[0]).count();
    assert_eq!(first, 3);
    assert!(why(&rig, ids[0]).starts_with("running"));
    assert!(why(&rig, ids[4]).starts_with("handed: worker"));
    assert!(why(&rig, ids[6]).starts_with("waiting"));
}

#[test]
fn a_worker_beyond_the_cores_is_left_alone_while_runs_are_short() {
    let mut rig = Rig::new(Policy {
        cores_milli: 1_000,
        ..policy(2)
    });
    rig.workers_up(&[Lane::Long]);
    let first = rig.submit("f", ahead(1));
    rig.commit_all();
    let (slot, ..) = rig.dispatched()[0];
    rig.succeed(slot, first, 1);
    rig.commit_all();
    rig.machine.hold(rig.now, Some("wait".into()));
    submitted(&mut rig, 4, &ahead(2));
    rig.machine.hold(rig.now, None);
    let slots: Vec<Slot> = rig.dispatched().iter().map(|(slot, ..)| *slot).collect();
    assert_eq!(slots[..3], [slots[0]; 3]);
    assert_ne!(slots[3], slots[0], "what is left over does not wait");
}

#[test]
fn nothing_is_handed_without_the_option_or_behind_another_name() {
    let mut rig = rig(1);
    submitted(&mut rig, 3, &Options::default());
    assert_eq!(rig.dispatched().len(), 1);
    rig.submit("g", ahead(8));
    rig.commit_all();
    assert_eq!(rig.dispatched().len(), 0);
}

#[test]
fn nothing_is_handed_before_it_is_known_how_long_runs_take_or_where_they_take_long() {
    let mut rig = Rig::new(policy(1));
    rig.workers_up(&[Lane::Long]);
    let ids = submitted(&mut rig, 4, &ahead(8));
    let runs = rig.dispatched();
    assert_eq!(runs.len(), 1);
    rig.now += 500;
    rig.succeed(runs[0].0, ids[0], 1);
    rig.commit_all();
    assert_eq!(
        rig.dispatched().len(),
        1 + 2,
        "the mean is a few milliseconds still"
    );
    for id in &ids[1..] {
        rig.now += 500;
        rig.succeed(runs[0].0, *id, 1);
    }
    submitted(&mut rig, 4, &ahead(8));
    assert_eq!(rig.dispatched().len(), 1 + 1);
}

#[test]
fn its_time_begins_when_the_one_before_it_has_ended() {
    let mut rig = rig(1);
    let timed = options(|options| (options.ahead, options.timeout_ms) = (1, Some(50)));
    let ids = submitted(&mut rig, 2, &timed);
    let (slot, ..) = rig.dispatched()[1];
    rig.now += 9;
    rig.succeed(slot, ids[0], 1);
    assert!(why(&rig, ids[1]).starts_with("running: for 0.0 s"));
    rig.now += 49;
    rig.machine.tick(rig.now);
    assert!(
        !rig.take()
            .iter()
            .any(|action| matches!(action, Action::Interrupt { .. }))
    );
    rig.now += 1;
    rig.machine.tick(rig.now);
    let interrupts = rig.take();
    assert!(matches!(interrupts[0], Action::Interrupt { id, .. } if id == ids[1]));
}

#[test]
fn a_death_is_the_first_ones_and_the_others_run_as_if_they_had_not_been_handed() {
    let mut rig = rig(1);
    let ids = submitted(&mut rig, 3, &ahead(8));
    let (slot, ..) = rig.dispatched()[0];
    rig.machine.worker_gone(rig.now, slot, death("signal"));
    let actions = rig.take();
    let unclaim = |action: &Action| match action {
        Action::Store(Op::Unclaim { id, attempt }) => Some((*id, *attempt)),
        _ => None,
    };
    let unclaims: Vec<_> = actions.iter().filter_map(unclaim).collect();
    assert_eq!(unclaims, [(ids[1], 1), (ids[2], 1)]);
    rig.commit_all();
    assert_eq!(rig.ended(ids[0]), Some(Status::Failed));
    rig.machine.worker_ready(rig.now, slot);
    let runs = rig.dispatched();
    let begun: Vec<_> = runs
        .iter()
        .map(|(_, id, attempt)| (*id, *attempt))
        .collect();
    assert_eq!(begun, [(ids[1], 1), (ids[2], 1)]);
}

#[test]
fn what_waits_behind_a_long_run_is_recalled_once_and_queued_when_it_comes_back() {
    let mut rig = rig(1);
    let ids = submitted(&mut rig, 3, &ahead(8));
    let (slot, ..) = rig.dispatched()[0];
    assert_eq!(rig.machine.next_tick(), Some(rig.now + 10));
    rig.now += 10;
    rig.machine.tick(rig.now);
    assert_eq!(recalled(&rig.take()), [ids[1], ids[2]]);
    rig.now += 100;
    rig.machine.tick(rig.now);
    assert_eq!(recalled(&rig.take()), []);
    rig.machine.returned(rig.now, slot, ids[1], 1);
    rig.machine.returned(rig.now, slot, ids[1], 1);
    rig.commit_all();
    assert!(why(&rig, ids[1]).starts_with("waiting"));
    let runs = rig.start_and_dispatch();
    assert_eq!(runs.len(), 1);
    assert_ne!(runs[0].0, slot);
    assert_eq!((runs[0].1, runs[0].2), (ids[1], 1));
    rig.succeed(slot, ids[0], 1);
    // Its worker has begun what it was not asked for in time.
    assert!(why(&rig, ids[2]).starts_with("running"));
}

#[test]
fn nothing_is_recalled_while_nobody_else_could_run_it() {
    let mut rig = Rig::new(Policy {
        workers_max: 2,
        ..policy(2)
    });
    rig.workers_up(&[Lane::Long]);
    let first = rig.submit("f", ahead(1));
    rig.commit_all();
    let (slot, ..) = rig.dispatched()[0];
    rig.succeed(slot, first, 1);
    rig.commit_all();
    let ids = submitted(&mut rig, 3, &ahead(8));
    let runs = rig.dispatched();
    let busy: Vec<_> = runs.iter().filter(|run| run.0 == runs[2].0).collect();
    let free = runs
        .iter()
        .find(|run| run.0 != runs[2].0)
        .expect("the other worker");
    rig.now += 100;
    rig.machine.tick(rig.now);
    assert_eq!(recalled(&rig.take()), []);
    assert_eq!(rig.machine.next_tick(), None);
    rig.succeed(free.0, free.1, 1);
    assert_eq!(recalled(&rig.take()), [busy[1].1]);
    assert_eq!(busy[1].1, ids[2]);
}

#[test]
fn a_cancelled_one_never_runs_and_nobody_else_is_interrupted() {
    let mut rig = rig(1);
    let ids = submitted(&mut rig, 3, &ahead(8));
    let (slot, ..) = rig.dispatched()[0];
    assert_eq!(rig.machine.cancel(rig.now, ids[1]), Cancelled::Asked);
    let actions = rig.take();
    assert_eq!(recalled(&actions), [ids[1]]);
    assert_eq!(actions.len(), 1);
    rig.machine.returned(rig.now, slot, ids[1], 1);
    rig.commit_all();
    assert_eq!(rig.ended(ids[1]), Some(Status::Cancelled));
    rig.succeed(slot, ids[0], 1);
    assert!(why(&rig, ids[2]).starts_with("running"));
}

#[test]
fn a_cancelled_one_that_began_first_is_interrupted() {
    let mut rig = rig(1);
    let ids = submitted(&mut rig, 2, &ahead(8));
    let (slot, ..) = rig.dispatched()[0];
    rig.machine.cancel(rig.now, ids[1]);
    rig.take();
    rig.succeed(slot, ids[0], 1);
    let step = |action: &Action| match action {
        Action::Interrupt { id, step, .. } => Some((*id, *step)),
        _ => None,
    };
    let steps: Vec<_> = rig.take().iter().filter_map(step).collect();
    assert_eq!(steps, [(ids[1], Step::Exception)]);
}

#[test]
fn a_worker_is_handed_no_more_than_it_may_run() {
    let mut rig = Rig::new(Policy {
        worker_uses_max: 3,
        ..policy(1)
    });
    rig.workers_up(&[Lane::Long]);
    let first = rig.submit("f", ahead(8));
    rig.commit_all();
    let (slot, ..) = rig.dispatched()[0];
    rig.succeed(slot, first, 1);
    rig.commit_all();
    let ids = submitted(&mut rig, 5, &ahead(8));
    let runs = rig.dispatched();
    assert_eq!(runs.len(), 2);
    rig.succeed(slot, ids[0], 1);
    assert!(why(&rig, ids[1]).starts_with("running"));
    rig.succeed(slot, ids[1], 1);
    let actions = rig.take();
    assert!(
        actions
            .iter()
            .any(|action| matches!(action, Action::Stop { slot: one } if *one == slot))
    );
}

#[test]
fn a_drain_leaves_what_has_not_begun_in_the_queue() {
    let mut rig = rig(1);
    let ids = submitted(&mut rig, 2, &ahead(8));
    let (slot, ..) = rig.dispatched()[0];
    rig.machine.drain(rig.now);
    assert_eq!(recalled(&rig.take()), [ids[1]]);
    rig.machine.returned(rig.now, slot, ids[1], 1);
    rig.succeed(slot, ids[0], 1);
    rig.commit_all();
    assert!(rig.machine.is_idle());
    assert_eq!(rig.machine.figures(rig.now).unfinished, 1);
}
