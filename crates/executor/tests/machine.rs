//! The machine by hand: one event, and the actions that follow.

mod rig;

use forebay_executor::action::Action;
use forebay_executor::id::RequestId;
use forebay_executor::machine::{Cancelled, Policy, Submitted};
use forebay_executor::op::Op;
use forebay_executor::request::{Failure, Lane, Options, Outcome, Status};

use rig::{Rig, death, options};

fn no_store() -> Policy {
    Policy {
        durable: false,
        guaranteed: [0, 1, 0],
        ..Policy::default()
    }
}

fn durable() -> Policy {
    Policy {
        guaranteed: [0, 1, 0],
        ..Policy::default()
    }
}

#[test]
fn without_a_store_a_request_is_accepted_dispatched_and_ended_at_once() {
    let mut rig = Rig::new(no_store());
    let id = rig.submit("work", Options::default());
    assert!(
        matches!(rig.take()[..], [Action::Accepted(one), Action::Start { slot: 0, lane: Lane::Long }] if one == id)
    );
    rig.machine.worker_ready(1, 0);
    assert!(matches!(
        rig.take()[..],
        [Action::Dispatch {
            slot: 0,
            attempt: 1,
            journal: false,
            ..
        }]
    ));
    rig.succeed(0, id, 1);
    assert_eq!(rig.ended(id), Some(Status::Succeeded));
    assert!(rig.machine.is_idle() && rig.machine.request(id).is_none());
}

#[test]
fn a_lone_request_is_claimed_in_the_commit_of_its_row() {
    let mut rig = Rig::new(durable());
    rig.workers_up(&[Lane::Long]);
    let id = rig.submit("work", Options::default());
    let actions = rig.take();
    assert!(matches!(
        actions[..],
        [
            Action::Store(Op::Accept(_)),
            Action::Store(Op::Claim { attempt: 1, .. })
        ]
    ));
    rig.machine.committed(1, 1);
    assert!(matches!(rig.take()[..], [Action::Accepted(_)]));
    rig.machine.committed(1, 1);
    assert!(matches!(
        rig.take()[..],
        [Action::Dispatch { journal: false, .. }]
    ));
    rig.succeed(0, id, 1);
    assert!(matches!(rig.take()[..], [Action::Store(Op::End { .. })]));
    rig.machine.committed(2, 1);
    assert_eq!(rig.ended(id), Some(Status::Succeeded));
}

#[test]
fn a_queued_request_that_may_run_once_is_noted_in_the_journal_and_one_with_retries_is_not() {
    let mut rig = Rig::new(durable());
    rig.workers_up(&[Lane::Long]);
    let first = rig.submit("work", Options::default());
    let once = rig.submit("work", Options::default());
    let twice = rig.submit("work", options(|options| options.retries = 1));
    rig.commit_all();
    rig.take();
    rig.succeed(0, first, 1);
    assert!(
        rig.take()
            .iter()
            .any(|one| matches!(one, Action::Dispatch { id, journal: true, .. } if *id == once))
    );
    rig.succeed(0, once, 1);
    assert!(
        rig.take()
            .iter()
            .any(|one| matches!(one, Action::Dispatch { id, journal: false, .. } if *id == twice))
    );
}

#[test]
fn a_request_without_retries_whose_worker_died_fails_with_the_cause_and_its_place_is_used_again() {
    let mut rig = Rig::new(no_store());
    rig.workers_up(&[Lane::Long]);
    let id = rig.submit("work", Options::default());
    rig.take();
    rig.machine.worker_gone(5, 0, death("signal"));
    let actions = rig.take();
    let Action::Ended(one, ending) = &actions[0] else {
        panic!("{actions:?}");
    };
    assert_eq!((*one, ending.status), (id, Status::Failed));
    assert_eq!(
        ending.outcome,
        Outcome::Failed(Failure::Died(death("signal")))
    );
    assert!(matches!(actions[1..], [Action::Start { slot: 0, .. }]));
}

#[test]
fn what_keeps_killing_its_worker_is_set_aside_and_a_retry_brings_it_back() {
    let mut rig = Rig::new(no_store());
    rig.workers_up(&[Lane::Long]);
    let id = rig.submit("work", options(|options| options.retries = 10));
    for attempt in 1..=3 {
        rig.run_until_dispatched(id, attempt);
        let slot = rig.machine.view(id).unwrap().slot.unwrap();
        rig.machine.worker_gone(rig.now, slot, death("exit"));
    }
    assert_eq!(rig.ended(id), Some(Status::Dead));
    let restored = rig.ended_as_restored(id);
    assert_eq!(rig.machine.retry(rig.now, restored), Ok(true));
    rig.run_until_dispatched(id, 4);
}

#[test]
fn the_end_of_a_keeper_or_a_node_is_blamed_on_no_request() {
    for cause in ["server", "node_lost"] {
        let mut rig = Rig::new(no_store());
        rig.workers_up(&[Lane::Long]);
        let id = rig.submit("work", options(|options| options.retries = 10));
        for attempt in 1..=3 {
            rig.run_until_dispatched(id, attempt);
            let slot = rig.machine.view(id).unwrap().slot.unwrap();
            rig.machine.worker_gone(rig.now, slot, death(cause));
        }
        rig.run_until_dispatched(id, 4);
    }
}

#[test]
fn an_idempotent_run_on_a_lost_node_begins_again() {
    for (cause, begins) in [("signal", false), ("node_lost", true)] {
        let mut rig = Rig::new(no_store());
        rig.workers_up(&[Lane::Long]);
        let id = rig.submit("work", options(|options| options.idempotent = true));
        rig.run_until_dispatched(id, 1);
        let slot = rig.machine.view(id).unwrap().slot.unwrap();
        rig.machine.worker_gone(rig.now, slot, death(cause));
        let waits = rig
            .machine
            .view(id)
            .is_some_and(|view| view.status == Status::Queued);
        assert_eq!(waits, begins, "{cause}");
    }
}

#[test]
fn a_run_that_ends_every_node_fails_in_the_end() {
    let mut rig = Rig::new(no_store());
    rig.workers_up(&[Lane::Long]);
    let id = rig.submit("work", options(|options| options.idempotent = true));
    for attempt in 1..=10 {
        rig.run_until_dispatched(id, attempt);
        let slot = rig.machine.view(id).unwrap().slot.unwrap();
        rig.machine.worker_gone(rig.now, slot, death("node_lost"));
    }
    assert_eq!(rig.ended(id), Some(Status::Failed));
}

#[test]
fn an_idle_worker_whose_node_was_lost_is_replaced_at_once() {
    for (cause, is_at_once) in [("exit", false), ("node_lost", true)] {
        let mut rig = Rig::new(no_store());
        rig.workers_up(&[Lane::Long]);
        rig.machine.worker_gone(rig.now, 0, death(cause));
        let mut actions = rig.take().into_iter();
        let starts = actions.any(|action| matches!(action, Action::Start { .. }));
        assert_eq!(starts, is_at_once, "{cause}");
    }
}

#[test]
fn the_deaths_that_are_written_are_those_that_count() {
    let mut rig = Rig::new(durable());
    rig.workers_up(&[Lane::Long]);
    let id = rig.submit("work", options(|options| options.retries = 10));
    rig.commit_all();
    let mut written = Vec::new();
    for (attempt, cause) in (1..).zip(["signal", "server", "exit", "signal"]) {
        rig.run_until_dispatched(id, attempt);
        let slot = rig.machine.view(id).unwrap().slot.unwrap();
        rig.machine.worker_gone(rig.now, slot, death(cause));
        for action in rig.take() {
            match action {
                Action::Store(Op::Park { deaths, .. } | Op::End { deaths, .. }) => {
                    written.push(deaths);
                }
                Action::Start { slot, .. } => rig.machine.worker_ready(rig.now, slot),
                _ => {}
            }
        }
    }
    assert_eq!(written, [1, 1, 2, 3]);
    rig.commit_all();
    assert_eq!(rig.ended(id), Some(Status::Dead));
}

/// What was told of retries.
fn retried(rig: &mut Rig) -> Vec<(RequestId, bool)> {
    let actions = rig.take().into_iter();
    let told = |action| match action {
        Action::Retried(id, done) => {
            let refused = done.err().map(|refusal| refusal.code);
            assert!(refused.is_none_or(|code| code == "store"), "{refused:?}");
            Some((id, refused.is_none()))
        }
        _ => None,
    };
    actions.filter_map(told).collect()
}

#[test]
fn a_retry_is_told_when_it_is_on_disk_and_refused_while_the_store_takes_nothing() {
    let mut rig = Rig::new(durable());
    let ids: Vec<_> = (0..3)
        .map(|_| rig.submit("work", Options::default()))
        .collect();
    rig.commit_all();
    for id in &ids {
        rig.machine.cancel(1, *id);
    }
    rig.commit_all();
    let ended: Vec<_> = ids.iter().map(|id| rig.ended_as_restored(*id)).collect();
    let [first, second, third] = &ended[..] else {
        panic!("{ended:?}");
    };
    assert_eq!(rig.machine.retry(1, first.clone()), Ok(true));
    assert_eq!(rig.machine.retry(1, first.clone()), Ok(false), "it waits");
    assert_eq!(retried(&mut rig), []);
    rig.commit_all();
    assert_eq!(retried(&mut rig), [(ids[0], true)]);

    assert_eq!(rig.machine.retry(2, second.clone()), Ok(true));
    let given = rig.store_ops();
    rig.machine.not_committed(2, given, "disk full", false);
    assert_eq!(retried(&mut rig), [(ids[1], false)]);
    let refused = rig.machine.retry(2, third.clone()).unwrap_err();
    assert_eq!(refused.code, "store");
    assert!(rig.machine.request(ids[2]).is_none(), "it has ended");
    rig.machine.retry_store(3);
    rig.commit_all();
    assert_eq!(retried(&mut rig), [(ids[1], true)], "it was kept");
}

#[test]
fn what_cannot_be_committed_is_refused_or_written_again() {
    let mut rig = Rig::new(durable());
    rig.workers_up(&[Lane::Long]);
    let first = rig.submit("work", Options::default());
    rig.commit_all();
    rig.succeed(0, first, 1);
    let second = rig.submit("work", Options::default());
    let in_flight = rig.store_ops();
    assert_eq!(in_flight, 3, "an end, a row and its claim");
    rig.machine.not_committed(2, 3, "disk full", false);
    let actions = rig.take();
    assert!(
        matches!(&actions[..], [Action::Refused(id, refusal)] if *id == second && refusal.code == "store")
    );
    assert_eq!(
        rig.try_submit("work", Options::default()).unwrap_err().code,
        "store"
    );
    rig.machine.retry_store(3);
    rig.commit_all();
    assert_eq!(rig.ended(first), Some(Status::Succeeded));
}

#[test]
fn what_follows_from_a_failed_commit_is_kept_until_the_store_works() {
    let mut rig = Rig::new(durable());
    rig.workers_up(&[Lane::Long]);
    let id = rig.submit("work", Options::default());
    assert_eq!(rig.store_ops(), 2, "a row and its claim");
    rig.machine.committed(1, 1);
    assert_eq!(rig.machine.cancel(1, id), Cancelled::Now);
    rig.machine.not_committed(2, 1, "disk full", false);
    assert_eq!(rig.store_ops(), 0, "its end is not tried now");
    rig.machine.retry_store(3);
    rig.commit_all();
    assert_eq!(rig.ended(id), Some(Status::Cancelled));
}

#[test]
fn a_cancel_finds_a_request_wherever_it_is() {
    let mut rig = Rig::new(durable());
    rig.workers_up(&[Lane::Long]);
    let (running, queued) = (
        rig.submit("a", Options::default()),
        rig.submit("b", Options::default()),
    );
    rig.commit_all();
    let unborn = rig.submit("c", Options::default());
    assert_eq!(rig.machine.cancel(1, unborn), Cancelled::Now);
    assert_eq!(rig.machine.cancel(1, queued), Cancelled::Now);
    assert_eq!(rig.machine.cancel(1, running), Cancelled::Asked);
    rig.machine
        .finished(2, 0, running, 1, Outcome::Cancelled, None);
    assert_eq!(rig.machine.cancel(2, running), Cancelled::AlreadyEnded);
    rig.commit_all();
    for id in [running, queued, unborn] {
        assert_eq!(rig.ended(id), Some(Status::Cancelled));
        assert_eq!(rig.machine.cancel(3, id), Cancelled::Unknown);
    }
}

#[test]
fn an_idempotency_key_names_the_first_request() {
    let mut rig = Rig::new(durable());
    let keyed = || options(|options| options.idempotency = Some("once".into()));
    let id = rig.submit("work", keyed());
    assert_eq!(rig.try_submit("work", keyed()), Ok(Submitted::Known(id)));
}
