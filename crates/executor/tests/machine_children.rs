//! Requests that submit others and wait for them: places given back, cancels that cascade, children that are found again.

mod rig;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use forebay_executor::action::Action;
use forebay_executor::id::RequestId;
use forebay_executor::machine::{Cordon, Policy, Submitted};
use forebay_executor::op::{KnownChild, Op};
use forebay_executor::request::{Child, Lane, Options, Outcome, Slot, Status};

use rig::{Rig, death, left, options};

fn policy() -> Policy {
    Policy {
        durable: false,
        guaranteed: [0, 1, 0],
        cores_milli: 4_000,
        ..Policy::default()
    }
}

fn child_of(parent: RequestId, call: u32) -> Options {
    child_of_run(parent, 1, call)
}

fn child_of_run(parent: RequestId, attempt: u32, call: u32) -> Options {
    options(|it| {
        it.parent = Some(parent);
        it.child = Some(Child {
            call,
            attempt,
            ..Child::default()
        });
    })
}

type Run = (Slot, RequestId, u32);

fn one_run(rig: &mut Rig, id: RequestId) -> Run {
    let runs = rig.start_and_dispatch();
    let of = runs.into_iter().find(|(_, one, _)| *one == id);
    of.unwrap_or_else(|| panic!("it does not run: {:?}", rig.machine.why(rig.now, id)))
}

fn waits(rig: &mut Rig, (slot, id, attempt): Run, waits: bool) {
    rig.machine.waits(rig.now, slot, id, attempt, waits);
    rig.machine.audit().expect("the counters agree");
}

fn refusal(rig: &mut Rig, options: Options) -> String {
    match rig.try_submit("Long", options) {
        Err(refusal) => refusal.to_string(),
        Ok(done) => panic!("{done:?}"),
    }
}

#[test]
fn a_chain_of_requests_that_wait_for_each_other_runs_on_one_worker_at_a_time() {
    let mut rig = Rig::new(Policy {
        workers_max: 1,
        burst: false,
        memory_limit: Some(100_000_000),
        ..policy()
    });
    rig.workers_up(&[Lane::Long]);
    let mut chain = vec![{
        let id = rig.submit("Long", Options::default());
        one_run(&mut rig, id)
    }];
    for _ in 0..64 {
        let above = chain[chain.len() - 1];
        let id = rig.submit("Long", child_of(above.1, 0));
        assert!(rig.dispatched().is_empty(), "its place is taken");
        waits(&mut rig, above, true);
        chain.push(one_run(&mut rig, id));
    }
    let deepest = chain[chain.len() - 1].1;
    let told = refusal(&mut rig, child_of(deepest, 0));
    assert!(
        told.contains("depth_max is 64, this would make 65"),
        "{told}"
    );
    while let Some(run) = chain.pop() {
        waits(&mut rig, run, false);
        let (slot, id, attempt) = run;
        rig.succeed(slot, id, attempt);
        rig.machine.audit().expect("the counters agree");
        assert_eq!(rig.ended(id), Some(Status::Succeeded));
    }
}

#[test]
fn one_that_ends_while_it_waits_leaves_every_count_as_it_was() {
    for ends_by_death in [false, true] {
        let mut rig = Rig::new(policy());
        rig.workers_up(&[Lane::Long]);
        let before = rig.machine.figures(rig.now);
        let id = rig.submit("Long", Options::default());
        let run = one_run(&mut rig, id);
        waits(&mut rig, run, true);
        waits(&mut rig, run, true); // said twice
        let seen = rig.machine.figures(rig.now);
        assert_eq!((seen.lanes[1].running, seen.lanes[1].waiting), (0, 1));
        assert!(!rig.machine.is_idle(), "it runs all the same");
        let (slot, _, attempt) = run;
        if ends_by_death {
            rig.machine.worker_gone(rig.now, slot, death("signal"));
        } else {
            rig.succeed(slot, id, attempt);
        }
        rig.machine.audit().expect("the counters agree");
        let after = rig.machine.figures(rig.now);
        assert_eq!(after.lanes[1].waiting, before.lanes[1].waiting);
        assert_eq!(after.lanes[1].running, before.lanes[1].running);
        waits(&mut rig, run, false); // from before its end
    }
}

#[test]
fn its_name_its_cores_and_its_place_are_another_ones_meanwhile() {
    let mut rig = Rig::new(Policy {
        cores_milli: 1_000,
        cpu_factor_max: 1,
        memory_limit: Some(1_000_000_000),
        ..policy()
    });
    let mut definition = rig::definition("Long", Options::default());
    definition.concurrency = Some(1);
    rig.machine
        .install(0, "code".into(), &[definition])
        .expect("a definition without a schedule");
    rig.start_and_dispatch();
    let parent = rig.submit("Long", Options::default());
    let run = one_run(&mut rig, parent);
    let child = rig.submit("Long", child_of(parent, 0));
    assert!(rig.start_and_dispatch().is_empty());
    waits(&mut rig, run, true);
    let (slot, _, attempt) = one_run(&mut rig, child);
    waits(&mut rig, run, false); // it goes on at once, beside its child
    rig.succeed(slot, child, attempt);
    rig.machine.audit().expect("the counters agree");
    let other = rig.submit("Long", Options::default());
    assert!(
        rig.start_and_dispatch().is_empty(),
        "the name is the parent's again"
    );
    rig.succeed(run.0, run.1, run.2);
    one_run(&mut rig, other);
}

#[test]
fn parents_one_after_the_other_start_one_worker_for_their_children() {
    let mut rig = Rig::new(policy());
    rig.workers_up(&[Lane::Long]);
    for _ in 0..5 {
        let parent = rig.submit("Long", Options::default());
        let run = one_run(&mut rig, parent);
        waits(&mut rig, run, true);
        assert!(rig.start_and_dispatch().is_empty());
        let child = rig.submit("Long", child_of(parent, 0));
        let (slot, _, attempt) = one_run(&mut rig, child);
        rig.succeed(slot, child, attempt);
        waits(&mut rig, run, false);
        rig.succeed(run.0, run.1, run.2);
        assert_eq!(rig.machine.workers().len(), 2);
    }
    rig.now += 20_000;
    rig.machine.tick(rig.now);
    let stops = rig.take();
    let stops = stops.iter().filter(|it| matches!(it, Action::Stop { .. }));
    assert_eq!(stops.count(), 1, "the guaranteed one stays");
}

#[test]
fn the_next_run_of_a_parent_finds_its_children() {
    let mut rig = Rig::new(policy());
    rig.workers_up(&[Lane::Long]);
    let parent = rig.submit("Long", options(|it| it.retries = 1));
    let (slot, _, _) = one_run(&mut rig, parent);
    let first = rig.submit("Long", child_of(parent, 0));
    let second = rig.submit("Long", child_of(parent, 1));
    let (other, _, attempt) = one_run(&mut rig, first);
    rig.succeed(other, first, attempt);
    rig.machine.worker_gone(rig.now, slot, death("signal"));
    rig.run_until_dispatched(parent, 2);
    let again = |rig: &mut Rig, call| rig.try_submit("Long", child_of_run(parent, 2, call));
    assert_eq!(again(&mut rig, 0), Ok(Submitted::Known(first)));
    assert_eq!(again(&mut rig, 1), Ok(Submitted::Known(second)));
    assert!(matches!(again(&mut rig, 2), Ok(Submitted::New(_))));
    assert_eq!(rig.machine.children(parent)[..2], [first, second]);
    let mut other = child_of_run(parent, 2, 1);
    other.child = other.child.map(|child| Child { digest: 7, ..child });
    let told = refusal(&mut rig, other);
    assert!(told.contains("call 1 of request"), "{told}");
    assert!(
        told.contains(&format!(
            "Long with other arguments, which its earlier run submitted there as {second}"
        )),
        "{told}"
    );
    let named = rig
        .try_submit("Short", child_of_run(parent, 2, 1))
        .map_err(|it| it.to_string());
    assert!(named.is_err_and(|it| it.contains("got Short")));
}

#[test]
fn a_server_that_was_started_again_knows_them_too() {
    let mut rig = Rig::new(Policy {
        durable: true,
        ..policy()
    });
    let parent = left(1, Status::Running, 1, options(|it| it.retries = 1));
    let known = KnownChild {
        parent: RequestId(1),
        call: 3,
        id: RequestId(2),
        name: "Long".into(),
        digest: 0,
    };
    rig.machine.restore(0, vec![parent], &[], &[], RequestId(5));
    let of_another = KnownChild {
        parent: RequestId(4),
        ..known.clone()
    };
    rig.machine
        .restore_children(0, &[known, of_another], Vec::new());
    rig.workers_up(&[Lane::Long]);
    rig.commit_all();
    rig.run_until_dispatched(RequestId(1), 2);
    let found = rig.try_submit("Long", child_of_run(RequestId(1), 2, 3));
    assert_eq!(found, Ok(Submitted::Known(RequestId(2))));
    assert!(
        rig.machine.children(RequestId(4)).is_empty(),
        "its parent has ended"
    );
    rig.commit_all();
    let slot = rig.machine.view(RequestId(1)).and_then(|it| it.slot);
    rig.succeed(slot.expect("it runs"), RequestId(1), 2);
    rig.commit_all();
    let ops = rig.take();
    let forgets = |it: &Action| matches!(it, Action::Store(Op::Forget { parent }) if parent.0 == 1);
    assert!(ops.iter().any(forgets), "{ops:?}");
}

#[test]
fn a_parent_that_ended_with_its_server_takes_its_children_with_it() {
    let mut rig = Rig::new(Policy {
        durable: true,
        ..policy()
    });
    let parent = left(1, Status::Running, 1, Options::default());
    let child = left(2, Status::Queued, 0, child_of(RequestId(1), 0));
    rig.machine
        .restore(0, vec![parent, child], &[], &[], RequestId(5));
    let known = KnownChild {
        parent: RequestId(1),
        call: 0,
        id: RequestId(2),
        name: "Long".into(),
        digest: 0,
    };
    rig.machine.restore_children(0, &[known], Vec::new());
    rig.commit_all();
    assert_eq!(rig.ended(RequestId(1)), Some(Status::Failed));
    assert_eq!(rig.ended(RequestId(2)), Some(Status::Cancelled));
}

#[test]
fn what_does_not_succeed_takes_its_unfinished_children_with_it() {
    for is_cancelled in [true, false] {
        let mut rig = Rig::new(policy());
        rig.workers_up(&[Lane::Long]);
        let parent = rig.submit("Long", Options::default());
        let run = one_run(&mut rig, parent);
        let child = rig.submit("Long", child_of(parent, 0));
        let child_run = one_run(&mut rig, child);
        let late = |parent, call| {
            options(|it| {
                *it = child_of(parent, call);
                it.not_before = Some(1_000_000);
            })
        };
        let grandchild = rig.submit("Long", late(child, 0));
        let waiting = rig.submit("Long", late(parent, 1));
        if is_cancelled {
            rig.machine.cancel(rig.now, parent);
        } else {
            rig.machine.worker_gone(rig.now, run.0, death("signal"));
        }
        assert_eq!(rig.ended(waiting), Some(Status::Cancelled));
        assert_eq!(rig.ended(grandchild), Some(Status::Cancelled));
        let actions = rig.take();
        let interrupts = |it: &Action| matches!(it, Action::Interrupt { id, .. } if *id == child);
        assert!(actions.iter().any(interrupts), "{actions:?}");
        let told = refusal(&mut rig, child_of(parent, 2));
        assert!(
            told.contains("a request in a run that goes on and is not being ended"),
            "{told}"
        );
        rig.machine
            .finished(rig.now, child_run.0, child, 1, Outcome::Cancelled, None);
        assert_eq!(rig.ended(child), Some(Status::Cancelled));
        rig.machine.audit().expect("the counters agree");
    }
}

#[test]
fn children_of_one_that_succeeds_go_on() {
    let mut rig = Rig::new(policy());
    rig.workers_up(&[Lane::Long]);
    let parent = rig.submit("Long", Options::default());
    let run = one_run(&mut rig, parent);
    let child = rig.submit("Long", child_of(parent, 0));
    rig.succeed(run.0, run.1, run.2);
    one_run(&mut rig, child);
}

#[test]
fn a_child_that_would_wait_for_what_waits_for_it_is_refused() {
    let mut rig = Rig::new(policy());
    rig.workers_up(&[Lane::Long]);
    let holder = rig.submit("Long", options(|it| it.key = Some("gpu".into())));
    let run = one_run(&mut rig, holder);
    let between = rig.submit("Long", child_of(holder, 0));
    waits(&mut rig, run, true);
    let _ = one_run(&mut rig, between);
    let mut needs = child_of(between, 0);
    needs.key = Some("gpu".into());
    let told = refusal(&mut rig, needs.clone());
    assert!(
        told.contains(&format!("a child of request {between}")),
        "{told}"
    );
    assert!(
        told.contains(&format!("\"gpu\", which {holder} (Long) holds")),
        "{told}"
    );
    needs.key_at_once = 2;
    assert!(
        rig.try_submit("Long", needs).is_ok(),
        "there is a second place"
    );
    let mut after = child_of(between, 1);
    after.after = vec![holder];
    let told = refusal(&mut rig, after);
    assert!(told.contains("which it is a child of"), "{told}");
    let told = refusal(&mut rig, child_of(between, 10_000));
    assert!(
        told.contains("children_max is 10000, this would make 10001"),
        "{told}"
    );
}

#[test]
fn children_are_taken_while_others_are_not_and_belong_to_their_parents_submitter() {
    let mut rig = Rig::new(policy());
    rig.workers_up(&[Lane::Long]);
    let parent = rig.submit_as("ann", "Long", options(|it| it.priority = 5));
    one_run(&mut rig, parent);
    let by: Arc<str> = "ann".into();
    rig.machine.cordon(
        rig.now,
        Some(Cordon {
            by: "ann".into(),
            reason: "".into(),
            at: 0,
            dispatches: true,
        }),
    );
    assert!(rig.try_submit("Long", Options::default()).is_err());
    let child = rig.submit_as("bob", "Long", child_of(parent, 0));
    let request = rig.machine.request(child).expect("it was accepted");
    assert_eq!(request.submission.submitter, by);
    assert_eq!(request.submission.options.priority, 5);
    rig.machine.drain(rig.now);
    let second = rig.submit("Long", child_of(parent, 1));
    let begun = rig.start_and_dispatch();
    let begun: Vec<RequestId> = begun.into_iter().map(|(_, id, _)| id).collect();
    assert!(
        begun.contains(&child) && begun.contains(&second),
        "what runs needs them"
    );
}

#[test]
fn a_server_that_drains_begins_children_alone() {
    let mut rig = Rig::new(policy());
    rig.workers_up(&[Lane::Long]);
    let parent = rig.submit("Long", Options::default());
    let run = one_run(&mut rig, parent);
    let other = rig.submit("Long", options(|it| it.not_before = Some(5)));
    let child = rig.submit("Long", child_of(parent, 0));
    rig.machine.drain(rig.now);
    rig.now = 10;
    rig.machine.tick(rig.now);
    waits(&mut rig, run, true);
    let (slot, _, attempt) = one_run(&mut rig, child);
    rig.succeed(slot, child, attempt);
    waits(&mut rig, run, false);
    rig.succeed(run.0, run.1, run.2);
    assert!(rig.start_and_dispatch().is_empty());
    assert!(rig.machine.is_idle());
    assert!(
        rig.machine.request(other).is_some(),
        "it waits for the next server"
    );
}

#[test]
fn children_begin_before_what_has_not_begun_and_bound_the_processes_that_wait() {
    let mut rig = Rig::new(Policy {
        workers_max: 2,
        memory_limit: Some(u64::MAX / 4),
        ..policy()
    });
    rig.workers_up(&[Lane::Long]);
    let roots: Vec<RequestId> = (0..20)
        .map(|_| rig.submit("Long", Options::default()))
        .collect();
    let mut runs: VecDeque<Run> = rig.start_and_dispatch().into();
    let mut parents: HashMap<RequestId, Run> = HashMap::new();
    let mut most = 0;
    let mut ended = 0;
    for _ in 0..10_000 {
        let Some(run) = runs.pop_front() else {
            rig.now = rig.machine.next_tick().unwrap_or(rig.now + 1).max(rig.now);
            rig.machine.tick(rig.now);
            runs.extend(rig.start_and_dispatch());
            if ended == 40 {
                break;
            }
            continue;
        };
        let (slot, id, attempt) = run;
        if roots.contains(&id) {
            rig.submit("Long", child_of(id, 0));
            waits(&mut rig, run, true);
            parents.insert(id, run);
        } else {
            let parent = rig
                .machine
                .request(id)
                .and_then(|it| it.submission.options.parent);
            rig.succeed(slot, id, attempt);
            let above = parent
                .and_then(|parent| parents.remove(&parent))
                .expect("its parent waits");
            waits(&mut rig, above, false);
            rig.succeed(above.0, above.1, above.2);
            ended += 2;
        }
        most = most.max(rig.machine.workers().len());
        runs.extend(rig.start_and_dispatch());
    }
    assert_eq!(ended, 40);
    assert!(most <= 6, "{most} processes at once for two places");
}

#[test]
fn a_run_that_was_handed_and_waits_before_that_is_known_gives_its_place_back() {
    let mut rig = Rig::new(Policy {
        burst: false,
        ..policy()
    });
    rig.workers_up(&[Lane::Long]);
    // A mean of short runs lets a second one be handed behind the first.
    let first = rig.submit("Long", Options::default());
    let (slot, ..) = one_run(&mut rig, first);
    rig.succeed(slot, first, 1);
    let short = options(|it| it.ahead = 4);
    let first = rig.submit("Long", short.clone());
    let parent = rig.submit("Long", short);
    let runs = rig.start_and_dispatch();
    assert_eq!(runs.len(), 2, "the second one is handed");
    waits(&mut rig, (slot, parent, 1), true);
    assert_eq!(rig.machine.figures(rig.now).lanes[1].waiting, 0);
    rig.succeed(slot, first, 1);
    rig.machine.audit().expect("the counters agree");
    assert_eq!(rig.machine.figures(rig.now).lanes[1].waiting, 1);
    let child = rig.submit("Long", child_of(parent, 0));
    one_run(&mut rig, child);
}

#[test]
fn a_run_of_before_submits_nothing() {
    let mut rig = Rig::new(policy());
    rig.workers_up(&[Lane::Long]);
    let parent = rig.submit("Long", options(|it| it.retries = 1));
    let (slot, ..) = one_run(&mut rig, parent);
    rig.machine.worker_gone(rig.now, slot, death("signal"));
    rig.run_until_dispatched(parent, 2);
    let told = refusal(&mut rig, child_of_run(parent, 1, 0));
    assert!(told.contains(&format!("got run 1 of {parent}")), "{told}");
}

#[test]
fn an_idempotency_key_of_its_own_replaces_the_number_of_the_call() {
    let mut rig = Rig::new(policy());
    rig.workers_up(&[Lane::Long]);
    let parent = rig.submit("Long", options(|it| it.idempotency = Some("above".into())));
    one_run(&mut rig, parent);
    let keyed = |call, key: &str| {
        let mut options = child_of(parent, call);
        options.idempotency = Some(key.into());
        options
    };
    let first = rig.submit("Long", keyed(0, "a"));
    let other = rig.submit("Long", keyed(0, "b"));
    assert_ne!(first, other);
    let again = rig.try_submit("Long", keyed(7, "a"));
    assert_eq!(again, Ok(Submitted::Known(first)));
    let told = refusal(&mut rig, keyed(1, "above"));
    assert!(
        told.contains(&format!("that of {parent}, which it is a child of")),
        "{told}"
    );
}

#[test]
fn what_comes_after_a_request_above_is_no_predecessor_of_a_child() {
    let mut rig = Rig::new(policy());
    rig.workers_up(&[Lane::Long]);
    let parent = rig.submit("Long", Options::default());
    one_run(&mut rig, parent);
    let stranger = rig.submit("Long", options(|it| it.after = vec![parent]));
    let mut child = child_of(parent, 0);
    child.after = vec![stranger];
    let told = refusal(&mut rig, child);
    assert!(told.contains("which it is a child of"), "{told}");
}

#[test]
fn an_old_child_that_an_operator_retries_is_not_its_parents_next_one() {
    let mut rig = Rig::new(Policy {
        durable: true,
        ..policy()
    });
    rig.workers_up(&[Lane::Long]);
    let parent = left(1, Status::Queued, 0, Options::default());
    rig.machine.restore(0, vec![parent], &[], &[], RequestId(5));
    rig.commit_all();
    let run = one_run(&mut rig, RequestId(1));
    let mut old = left(2, Status::Failed, 1, child_of(RequestId(1), 0));
    old.forgiven = 0;
    assert!(rig.machine.retry(rig.now, old).is_ok());
    rig.commit_all();
    let mine = rig.try_submit("Long", child_of_run(RequestId(1), run.2, 0));
    assert!(matches!(mine, Ok(Submitted::New(_))), "{mine:?}");
}

#[test]
fn a_cordon_that_begins_nothing_begins_children() {
    let mut rig = Rig::new(policy());
    rig.workers_up(&[Lane::Long]);
    let parent = rig.submit("Long", Options::default());
    let run = one_run(&mut rig, parent);
    let child = rig.submit("Long", child_of(parent, 0));
    rig.machine.cordon(
        rig.now,
        Some(Cordon {
            by: "ann".into(),
            reason: "".into(),
            at: 0,
            dispatches: false,
        }),
    );
    waits(&mut rig, run, true);
    one_run(&mut rig, child);
}
