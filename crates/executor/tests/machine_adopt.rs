//! Runs of the last server that go on under this one.

mod rig;

use forebay_executor::action::{Action, Step};
use forebay_executor::id::RequestId;
use forebay_executor::machine::{AdoptedRun, AdoptedWorker, Policy};
use forebay_executor::op::Restored;
use forebay_executor::request::{Failure, Lane, Options, Outcome, Slot, Status};

use rig::{Rig, death, left, options};

const ID: RequestId = RequestId(7);

/// A worker of the last server with one run.
fn worker(lane: Lane, attempt: u32, ran_ms: u64) -> AdoptedWorker {
    let run = AdoptedRun {
        waits: false,
        id: ID,
        attempt,
        ran_ms,
    };
    AdoptedWorker {
        lane,
        runs: vec![run],
    }
}

/// A machine that goes on with the first run of this request, which has run for five seconds at the time 10,000.
fn adopted(options: Options, others: Vec<Restored>) -> (Rig, Slot) {
    let mut rig = Rig::new(Policy {
        guaranteed: [0, 1, 0],
        ..Policy::default()
    });
    let slots = rig.machine.adopt(10_000, &[worker(Lane::Long, 1, 5_000)]);
    let running = left(ID.0, Status::Running, 1, options);
    let restored = [vec![running], others].concat();
    rig.machine
        .restore(10_000, restored, &[], &[], RequestId(50));
    rig.machine.audit().expect("sound");
    (rig, slots[0])
}

fn is_stopped(actions: &[Action], slot: Slot) -> bool {
    let is_stop = |action: &Action| matches!(action, Action::Stop { slot: at } if *at == slot);
    actions.iter().any(is_stop)
}

#[test]
fn its_end_counts_and_its_worker_is_ended_after_it() {
    let (mut rig, slot) = adopted(Options::default(), Vec::new());
    let actions = rig.take();
    let is_sent = |action: &Action| matches!(action, Action::Dispatch { .. });
    assert!(!actions.iter().any(is_sent), "it has begun: {actions:?}");
    let view = rig.machine.view(ID).expect("unfinished");
    assert_eq!((view.status, view.slot), (Status::Running, Some(slot)));
    rig.succeed(slot, ID, 1);
    assert!(is_stopped(&rig.take(), slot));
    rig.commit_all();
    assert_eq!(rig.ended(ID), Some(Status::Succeeded));
    rig.machine.worker_gone(10_001, slot, death("exit"));
    rig.machine.audit().expect("sound");
}

#[test]
fn its_worker_takes_nothing_more_and_another_one_does() {
    let (mut rig, slot) = adopted(Options::default(), Vec::new());
    rig.workers_up(&[Lane::Long]);
    let id = rig.submit("Long", Options::default());
    rig.commit_all();
    let begun = rig.dispatched();
    assert_eq!((begun.len(), begun[0].1), (1, id));
    assert_ne!(begun[0].0, slot);
}

#[test]
fn its_time_counts_from_its_beginning() {
    let limited = options(|options| options.timeout_ms = Some(8_000));
    let (mut rig, slot) = adopted(limited, Vec::new());
    rig.take();
    assert_eq!(rig.machine.next_tick(), Some(13_000));
    rig.machine.tick(13_000);
    let actions = rig.take();
    let is_interrupted = |action: &Action| matches!(action, Action::Interrupt { slot: at, id: ID, step: Step::Exception, .. } if *at == slot);
    assert!(actions.iter().any(is_interrupted), "{actions:?}");
}

#[test]
fn it_holds_its_key_before_any_that_waited_for_it() {
    let keyed = || {
        options(|options| {
            options.key = Some("account".into());
            options.key_at_once = 1;
        })
    };
    // Older, and waiting: it must not take the key.
    let waiting = left(3, Status::Queued, 0, keyed());
    let (mut rig, slot) = adopted(keyed(), vec![waiting]);
    rig.workers_up(&[Lane::Long]);
    assert_eq!(rig.dispatched(), []);
    rig.succeed(slot, ID, 1);
    let begun = rig.dispatched();
    assert_eq!(begun[0].1, RequestId(3));
}

#[test]
fn the_death_of_its_worker_is_as_any() {
    let (mut rig, slot) = adopted(Options::default(), Vec::new());
    rig.machine.worker_gone(10_500, slot, death("signal"));
    rig.commit_all();
    rig.ended(ID).expect("ended");
    let outcome = &rig.endings[&ID].outcome;
    let Outcome::Failed(Failure::Died(death)) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(&*death.cause, "signal");
    rig.machine.audit().expect("sound");
}

#[test]
fn a_worker_whose_run_the_store_does_not_have_is_ended() {
    let mut rig = Rig::new(Policy::default());
    let slots = rig.machine.adopt(0, &[worker(Lane::Async, 2, 0)]);
    // Of another run: this one ended with the last server.
    let restored = left(ID.0, Status::Running, 1, Options::default());
    rig.machine.restore(0, vec![restored], &[], &[], ID);
    assert!(is_stopped(&rig.take(), slots[0]));
    rig.commit_all();
    assert_eq!(rig.ended(ID), Some(Status::Failed));
    rig.machine.audit().expect("sound");
}

#[test]
fn a_machine_that_is_paused_accepts_and_begins_nothing() {
    let mut rig = Rig::new(Policy {
        guaranteed: [0, 1, 0],
        ..Policy::default()
    });
    rig.workers_up(&[Lane::Long]);
    rig.machine.pause(0, Some("another server".into()));
    let id = rig.submit("Long", Options::default());
    rig.commit_all();
    assert_eq!(rig.dispatched(), []);
    let why = rig.machine.why(0, id).expect("it waits");
    assert!(why.reason.contains("another server"), "{}", why.reason);
    rig.machine.pause(0, None);
    assert_eq!(rig.dispatched()[0].1, id);
}

#[test]
fn a_run_that_is_being_ended_or_was_handed_is_not_undisturbed() {
    let (mut rig, _) = adopted(Options::default(), Vec::new());
    assert!(rig.machine.runs_undisturbed());
    rig.machine.cancel(10_000, ID);
    assert!(!rig.machine.runs_undisturbed());
}
