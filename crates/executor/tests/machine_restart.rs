//! What the next server does with what the last one left.

mod rig;

use forebay_executor::action::Action;
use forebay_executor::id::RequestId;
use forebay_executor::limit::RESULTS_WRITING_BYTES_MAX;
use forebay_executor::machine::{Policy, Submitted};
use forebay_executor::news::News;
use forebay_executor::op::{Op, Restored};
use forebay_executor::request::{Failure, Lane, Options, Outcome, Status};

use rig::{Rig, left, options};

fn rig() -> Rig {
    let mut rig = Rig::new(Policy {
        guaranteed: [0, 1, 0],
        ..Policy::default()
    });
    rig.workers_up(&[Lane::Long]);
    rig
}

/// How a request of the last server ended, or `None` where it waits or runs.
fn end_of(restored: Restored) -> Option<Outcome> {
    let id = restored.request.id;
    let mut rig = rig();
    rig.machine
        .restore(0, vec![restored], &[], &[], RequestId(50));
    rig.commit_all();
    rig.ended(id)?;
    Some(rig.endings[&id].outcome.clone())
}

#[test]
fn what_had_not_begun_is_queued_in_its_order_and_ids_go_on() {
    let mut rig = rig();
    let queued = |id| left(id, Status::Queued, 0, Options::default());
    rig.machine
        .restore(0, vec![queued(9), queued(7)], &[], &[], RequestId(50));
    let begun = rig.dispatched();
    assert_eq!(begun[0].1, RequestId(7));
    let next = rig.submit("Long", Options::default());
    assert!(next > RequestId(50));
}

#[test]
fn what_had_begun_without_retries_fails_with_the_servers_death_or_as_unknown() {
    let begun = || left(7, Status::Running, 1, Options::default());
    let Some(Outcome::Failed(Failure::Died(death))) = end_of(begun()) else {
        panic!("it died with the server");
    };
    assert_eq!(&*death.cause, "server");
    let rebooted = Restored {
        rebooted: true,
        ..begun()
    };
    assert_eq!(
        end_of(rebooted),
        Some(Outcome::Failed(Failure::OutcomeUnknown))
    );
}

#[test]
fn what_had_begun_and_may_run_again_does() {
    for (attempts, options) in [
        (1, options(|options| options.retries = 1)),
        (4, options(|options| options.idempotent = true)),
    ] {
        let mut rig = rig();
        let restored = left(7, Status::Running, attempts, options);
        rig.machine
            .restore(0, vec![restored], &[], &[], RequestId(7));
        let actions = rig.take();
        assert!(
            matches!(actions[0], Action::Store(Op::Park { .. })),
            "{actions:?}"
        );
        assert!(matches!(actions[2], Action::Dispatch { attempt, .. } if attempt == attempts + 1));
    }
    let spent = left(
        7,
        Status::Running,
        2,
        options(|options| options.retries = 1),
    );
    assert!(matches!(
        end_of(spent),
        Some(Outcome::Failed(Failure::Died(_)))
    ));
}

#[test]
fn what_an_operator_retried_has_its_retries_again_after_a_restart() {
    let retried = |status, attempts| Restored {
        forgiven: 3,
        ..left(7, status, attempts, options(|options| options.retries = 1))
    };
    let raised = || Outcome::Failed(Failure::Raised(Vec::new().into()));
    let id = RequestId(7);
    // Its fourth run ended with the server, or begins now: a fifth follows in either case, and no sixth.
    for (status, attempts) in [(Status::Running, 4), (Status::Queued, 3)] {
        let mut rig = rig();
        let restored = retried(status, attempts);
        rig.machine.restore(0, vec![restored], &[], &[], id);
        for attempt in attempts + 1..=5 {
            rig.run_until_dispatched(id, attempt);
            assert_eq!(rig.ended(id), None, "before run {attempt}");
            rig.machine
                .finished(rig.now, 0, id, attempt, raised(), None);
            rig.commit_all();
        }
        assert_eq!(rig.ended(id), Some(Status::Failed));
    }
}

#[test]
fn a_backoff_and_a_predecessor_outlive_the_server() {
    let mut rig = rig();
    let parked = Restored {
        wake_at: Some(9_000),
        ..left(7, Status::Queued, 1, options(|options| options.retries = 1))
    };
    let after = |id, before| {
        left(
            id,
            Status::Queued,
            0,
            options(|options| options.after = vec![RequestId(before)]),
        )
    };
    // 5 succeeded and was pruned, 6 failed and is remembered, 7 is still there.
    rig.machine.remember(RequestId(6), Status::Failed);
    let all = vec![parked, after(10, 5), after(11, 6), after(12, 7)];
    rig.machine.restore(0, all, &[], &[], RequestId(12));
    assert_eq!(rig.dispatched()[0].1, RequestId(10));
    assert_eq!(rig.machine.next_tick(), Some(9_000));
    rig.commit_all();
    assert_eq!(rig.ended(RequestId(11)), Some(Status::Failed));
    let why = rig.machine.why(0, RequestId(12)).unwrap();
    assert_eq!(why.reason, "waiting: for 1 of the requests it comes after");
}

#[test]
fn idempotency_keys_of_unfinished_and_of_kept_requests_are_known() {
    let mut rig = rig();
    let keyed = |name: &str| options(|options| options.idempotency = Some(name.into()));
    let restored = left(7, Status::Queued, 0, keyed("a"));
    rig.machine
        .restore(0, vec![restored], &[], &[], RequestId(7));
    rig.machine
        .remember_idempotency("b".into(), RequestId(3), &"Long".into());
    for (name, id) in [("a", 7), ("b", 3)] {
        let known = rig.try_submit("Long", keyed(name));
        assert_eq!(known, Ok(Submitted::Known(RequestId(id))));
    }
    rig.machine.forget("a");
    rig.machine.forget("b");
    assert_eq!(
        rig.try_submit("Long", keyed("a")),
        Ok(Submitted::Known(RequestId(7))),
        "it has not ended"
    );
    assert!(
        matches!(rig.try_submit("Long", keyed("b")), Ok(Submitted::New(_))),
        "it was pruned"
    );
}

#[test]
fn the_end_of_a_large_result_is_written_behind_its_file_and_its_worker_goes_on() {
    let mut rig = Rig::new(Policy {
        guaranteed: [0, 1, 0],
        burst: false,
        result_bytes_max: 10,
        ..Policy::default()
    });
    rig.workers_up(&[Lane::Long]);
    let first = rig.submit("Long", Options::default());
    rig.commit_all();
    let runs = rig.dispatched();
    let [(slot, _, _)] = runs[..] else {
        panic!("{runs:?}");
    };
    let second = rig.submit("Long", Options::default());
    rig.commit_all();
    let result = Outcome::Succeeded(vec![7; 11].into());
    rig.machine.finished(0, slot, first, 1, result, None);
    let actions = rig.take();
    let filed = |action: &Action| matches!(action, Action::File(id, _) if *id == first);
    let ended = |action: &Action| matches!(action, Action::Store(Op::End { .. }));
    let begun = |action: &Action| matches!(action, Action::Dispatch { id, .. } if *id == second);
    assert!(actions.iter().any(filed) && !actions.iter().any(ended));
    assert!(actions.iter().any(begun), "{actions:?}");
    rig.commit_all();
    assert_eq!(rig.ended(first), None);
    rig.machine
        .finished(0, slot, second, 1, Outcome::Cancelled, None);
    rig.commit_all();
    assert!(rig.ended(second).is_some() && !rig.machine.is_idle());
    rig.machine.filed(0, first, None);
    assert_eq!(rig.ended(first), None, "not before its commit");
    rig.commit_all();
    assert_eq!(rig.ended(first), Some(Status::Succeeded));
    assert!(rig.machine.is_idle());
}

#[test]
fn what_a_worker_left_is_looked_at_before_its_end_and_fails_the_request_where_it_is_unfit() {
    let mut rig = rig();
    for unfit in [None, Some("its worker's file is not a regular file")] {
        let id = rig.submit("Long", Options::default());
        rig.commit_all();
        let runs = rig.dispatched();
        let [(slot, _, _)] = runs[..] else {
            panic!("{runs:?}");
        };
        let result = Outcome::InFile(2_000_000);
        rig.machine.finished(0, slot, id, 1, result.clone(), None);
        let actions = rig.take();
        let filed = |action: &Action| matches!(action, Action::File(one, _) if *one == id);
        assert!(actions.iter().any(filed), "{actions:?}");
        rig.commit_all();
        assert_eq!(rig.ended(id), None);
        rig.machine.filed(0, id, unfit);
        rig.commit_all();
        let (status, outcome) = match unfit {
            None => (Status::Succeeded, result),
            Some(why) => (Status::Failed, Outcome::Failed(Failure::Unkept(why.into()))),
        };
        assert_eq!(rig.ended(id), Some(status));
        assert_eq!(rig.endings[&id].outcome, outcome);
    }
    assert!(rig.machine.is_idle());
}

#[test]
fn what_a_run_left_whose_worker_died_is_discarded() {
    let mut rig = rig();
    let id = rig.submit("Long", Options::default());
    rig.commit_all();
    let runs = rig.dispatched();
    let [(slot, _, attempt)] = runs[..] else {
        panic!("{runs:?}");
    };
    rig.machine.worker_gone(0, slot, rig::death("signal"));
    let discards: Vec<_> = rig
        .take()
        .into_iter()
        .filter_map(|action| match action {
            Action::Discard(id, attempt) => Some((id, attempt)),
            _ => None,
        })
        .collect();
    assert_eq!(discards, [(id, attempt)]);
}

#[test]
fn a_delay_of_before_the_boot_follows_the_walls_clock_until_it_is_right() {
    let mut rig = rig();
    let due = 50 * 3_600_000;
    let restored = Restored {
        wake_at: Some(due),
        rebooted: true,
        ..left(5, Status::Queued, 0, Options::default())
    };
    // The machine has no battery: it began at 1970, and the time came over the network later.
    rig.machine
        .restore(10, vec![restored], &[], &[], RequestId(5));
    assert_eq!(rig.machine.next_tick(), Some(due));
    rig.machine.set_wall(10, due - 30);
    assert_eq!(rig.machine.next_tick(), Some(40));
}

/// The server alone began anew: the clock that the delay was written by goes on.
#[test]
fn a_delay_of_this_boot_is_a_length_whatever_the_walls_clock_is_set_to() {
    let mut rig = rig();
    let restored = Restored {
        wake_at: Some(1_000),
        rebooted: false,
        ..left(5, Status::Queued, 0, Options::default())
    };
    rig.machine
        .restore(10, vec![restored], &[], &[], RequestId(5));
    assert_eq!(rig.machine.next_tick(), Some(1_000));
    for wall in [8 * 86_400_000, 0] {
        rig.machine.set_wall(10, wall);
        assert_eq!(rig.machine.next_tick(), Some(1_000));
    }
}

#[test]
fn a_back_off_of_this_boot_is_a_length_also_where_the_delay_before_it_was_of_another() {
    let mut rig = rig();
    let options = options(|options| {
        options.retries = 3;
        options.backoff_ms = 1_000;
    });
    let restored = Restored {
        wake_at: Some(20),
        rebooted: true,
        ..left(5, Status::Queued, 0, options)
    };
    rig.machine
        .restore(10, vec![restored], &[], &[], RequestId(5));
    rig.now = 20;
    rig.run_until_dispatched(RequestId(5), 1);
    let raised = Outcome::Failed(Failure::Raised(Vec::new().into()));
    rig.machine
        .finished(rig.now, 0, RequestId(5), 1, raised, None);
    let again = rig.machine.next_tick();
    assert!(
        again.is_some_and(|at| (500..=1_020).contains(&at)),
        "{again:?}"
    );
    rig.machine.set_wall(rig.now, 8 * 86_400_000);
    assert_eq!(rig.machine.next_tick(), again);
}

#[test]
fn an_idempotency_key_of_another_request_is_refused_with_both_named() {
    let mut rig = rig();
    let keyed = || options(|options| options.idempotency = Some("once".into()));
    rig.machine
        .remember_idempotency("old".into(), RequestId(3), &"Long".into());
    let id = rig.submit("Long", keyed());
    assert_eq!(rig.try_submit("Long", keyed()), Ok(Submitted::Known(id)));
    let refusal = rig.try_submit("Short", keyed()).unwrap_err();
    let said = refusal.to_string();
    assert!(said.contains(&id.to_string()), "{said}");
    assert!(
        said.contains("Short: ") && said.contains("which is of Long"),
        "{said}"
    );
    let old = options(|options| options.idempotency = Some("old".into()));
    assert_eq!(rig.try_submit("Short", old).unwrap_err().code, "invalid");
}

#[test]
fn nothing_more_is_computed_while_results_of_many_bytes_wait_for_the_disk() {
    let mut rig = Rig::new(Policy {
        guaranteed: [0, 2, 0],
        result_bytes_max: u64::MAX,
        ..Policy::default()
    });
    rig.workers_up(&[Lane::Long]);
    let ids: Vec<_> = (0..3)
        .map(|_| rig.submit("Long", Options::default()))
        .collect();
    let mut commits = rig.store_ops();
    rig.machine.committed(0, commits);
    let runs = rig.dispatched();
    let large = Outcome::Succeeded(vec![0; RESULTS_WRITING_BYTES_MAX + 1].into());
    let (slot, id, attempt) = runs[0];
    rig.machine.finished(0, slot, id, attempt, large, None);
    let (slot, id, attempt) = runs[1];
    let small = Outcome::Succeeded(Vec::new().into());
    rig.machine.finished(0, slot, id, attempt, small, None);
    assert!(rig.dispatched().is_empty());
    let why = rig.machine.why(0, ids[2]).unwrap();
    assert!(
        why.reason.contains("being written to the disk"),
        "{}",
        why.reason
    );
    commits = rig.store_ops();
    rig.machine.committed(0, commits);
    assert_eq!(rig.dispatched()[0].1, ids[2]);
}

/// How long a request had waited and run when it was cancelled, before it ran again.
fn took_at_its_cancel(rig: &mut Rig, id: RequestId) -> (Option<u64>, Option<u64>) {
    rig.machine.keep_news();
    rig.machine.cancel(rig.now, id);
    rig.commit_all();
    let ended = rig.machine.news().find_map(|news| match news {
        News::Ended {
            queued_ms, run_ms, ..
        } => Some((queued_ms, run_ms)),
        _ => None,
    });
    ended.expect("its end")
}

#[test]
fn how_long_a_request_waited_is_known_unless_an_earlier_server_queued_it_again() {
    let later = || options(|options| options.not_before = Some(u64::MAX));
    let waits = |attempts, retried| Restored {
        wake_at: Some(u64::MAX),
        retried,
        ..left(7, Status::Queued, attempts, later())
    };
    for (restored, queued_ms) in [
        (waits(0, false), Some(5_000)),
        (waits(0, true), None),
        (waits(2, false), None),
    ] {
        let mut rig = rig();
        rig.now = 5_000;
        rig.machine
            .restore(5_000, vec![restored], &[], &[], RequestId(50));
        assert_eq!(
            rig.machine.queued_at(RequestId(7)),
            queued_ms.map(|_| 0),
            "since its acceptance"
        );
        assert_eq!(
            took_at_its_cancel(&mut rig, RequestId(7)),
            (queued_ms, None)
        );
    }
}
