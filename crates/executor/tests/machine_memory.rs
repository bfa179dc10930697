//! Admission by measured memory, and the guard.

mod rig;

use forebay_executor::action::Action;
use forebay_executor::machine::Policy;
use forebay_executor::op::Op;
use forebay_executor::request::{Failure, Lane, Options, Outcome, Status};

use rig::{Rig, death, definition, options};

const MB: u64 = 1_000_000;

fn policy() -> Policy {
    Policy {
        durable: false,
        guaranteed: [0, 1, 0],
        memory_limit: Some(750 * MB),
        worker_bytes: 20 * MB,
        burst_run_ms_min: 0,
        ..Policy::default()
    }
}

fn hint(megabytes: u64) -> Options {
    options(|options| options.memory_bytes = Some(megabytes * MB))
}

/// A rig with a worker of 20 MB, and 100 MB resident.
fn rig(policy: Policy) -> Rig {
    let mut rig = Rig::new(policy);
    rig.workers_up(&[Lane::Long]);
    rig.now = 1_000;
    rig.machine.measured(rig.now, 0, 20 * MB);
    rig.machine.machine_measured(rig.now, 100 * MB, 0.0);
    rig.take();
    rig
}

#[test]
fn as_many_run_as_fit_and_the_next_one_says_what_it_lacks() {
    let mut rig = rig(policy());
    let ids: Vec<_> = (0..30).map(|_| rig.submit("Long", hint(60))).collect();
    let runs = rig.start_and_dispatch();
    // 727.5 MB may be taken, 100 are; the first needs 60 more in the worker that is there, others 80.
    assert_eq!(runs.len(), 1 + 7);
    let why = rig.machine.why(1_000, ids[8]).unwrap();
    assert_eq!(why.reason, "waiting: needs 80 MB, 8 MB free of 750 MB");
    assert!(!why.next.is_empty());
    // What has grown to its estimate is promised no more, and what ends gives its memory back.
    rig.succeed(runs[0].0, ids[0], 1);
    assert_eq!(rig.start_and_dispatch().len(), 1);
}

#[test]
fn one_runs_whatever_it_needs() {
    let mut rig = rig(policy());
    rig.submit("Long", hint(5_000));
    rig.submit("Long", hint(5_000));
    assert_eq!(rig.start_and_dispatch().len(), 1);
}

#[test]
fn an_unknown_request_runs_alone_until_it_levels_off_and_teaches_its_name() {
    let mut rig = rig(policy());
    let ids: Vec<_> = (0..3)
        .map(|_| rig.submit("Long", Options::default()))
        .collect();
    assert_eq!(rig.start_and_dispatch().len(), 1);
    let why = rig.machine.why(1_000, ids[1]).unwrap();
    assert!(why.reason.contains("runs alone"), "{why:?}");
    for (reading, bytes) in [50, 150, 200, 200, 200, 200, 200, 200]
        .into_iter()
        .enumerate()
    {
        assert!(
            rig.start_and_dispatch().is_empty(),
            "it grew until lately: {reading}"
        );
        rig.now += 100;
        rig.machine.measured(rig.now, 0, bytes * MB);
    }
    // 100 + 180 are resident, so two of 200 MB fit beside it.
    assert_eq!(rig.start_and_dispatch().len(), 2);
}

/// The gauge is not exact: growth of a megabyte between two readings is none.
#[test]
fn a_run_has_levelled_off_while_it_grows_by_no_more_than_a_megabyte_at_a_time() {
    for (growth, has_levelled) in [(MB, true), (MB + 1, false)] {
        let mut rig = rig(policy());
        rig.submit("Long", Options::default());
        rig.submit("Long", Options::default());
        assert_eq!(rig.start_and_dispatch().len(), 1);
        for reading in 0..6 {
            assert!(rig.start_and_dispatch().is_empty(), "reading {reading}");
            rig.now += 100;
            rig.machine.measured(rig.now, 0, 50 * MB + reading * growth);
        }
        let begun = rig.start_and_dispatch().len();
        assert_eq!(begun == 1, has_levelled, "{growth} bytes a reading");
    }
}

/// As with workers elsewhere, where a run that began alone would be alone until it ended, since nothing measures it.
#[test]
fn unknown_requests_run_side_by_side_where_their_need_is_assumed() {
    let mut rig = Rig::new(Policy {
        unknown_bytes: [Some(64 * MB); 3],
        ..policy()
    });
    rig.workers_up(&[Lane::Long]);
    rig.now = 1_000;
    rig.take();
    let ids: Vec<_> = (0..12)
        .map(|_| rig.submit("Long", Options::default()))
        .collect();
    // Each is taken for 64 MB above the 20 MB of its worker, of 727.5 MB.
    assert_eq!(rig.start_and_dispatch().len(), 8);
    let why = rig.machine.why(1_000, ids[8]).unwrap();
    assert!(why.reason.contains("needs 84 MB"), "{why:?}");
}

#[test]
fn an_unknown_request_begins_beside_one_that_never_ends_where_half_is_free() {
    let mut rig = rig(policy());
    let endless = rig.submit("Long", hint(100));
    assert_eq!(rig.start_and_dispatch().len(), 1);
    let unknown = rig.submit("Other", Options::default());
    assert_eq!(rig.start_and_dispatch().len(), 1);
    assert!(rig.machine.view(unknown).unwrap().slot.is_some());

    let third = rig.submit("Third", Options::default());
    assert!(rig.start_and_dispatch().is_empty(), "one at a time");
    rig.machine.machine_measured(rig.now, 400 * MB, 0.0);
    rig.succeed(1, unknown, 1);
    assert!(rig.start_and_dispatch().is_empty(), "too little is free");
    let why = rig.machine.why(rig.now, third).unwrap();
    assert!(
        why.reason.contains("its need of memory is unknown"),
        "{why:?}"
    );
    rig.succeed(0, endless, 1);
    assert_eq!(rig.start_and_dispatch().len(), 1);
}

#[test]
fn the_end_of_the_first_run_teaches_its_peak_and_that_is_stored() {
    let mut rig = rig(Policy {
        durable: true,
        ..policy()
    });
    let first = rig.submit("Long", Options::default());
    for _ in 0..10 {
        rig.submit("Long", Options::default());
    }
    rig.commit_all();
    rig.take();
    let done = Outcome::Succeeded(Vec::new().into());
    rig.now += 100;
    rig.machine
        .finished(rig.now, 0, first, 1, done, Some(220 * MB));
    let stored = |action: &Action| matches!(action, Action::Store(Op::Peak { bytes, .. }) if *bytes == 220 * MB);
    assert!(rig.machine.actions().any(|action| stored(&action)));
    // 627.5 are free: 200 more for the next one in the same worker, and one new worker of 220.
    let promised = rig.machine.figures(rig.now).promised_bytes;
    assert_eq!(promised, (200 + 220) * MB);
}

#[test]
fn a_run_too_short_to_be_measured_asks_for_a_measurement() {
    let mut rig = rig(policy());
    let first = rig.submit("Long", Options::default());
    let next = rig.submit("Long", Options::default());
    rig.take();
    rig.succeed(0, first, 1);
    let actions = rig.take();
    assert!(
        actions
            .iter()
            .any(|action| matches!(action, Action::Measure { slot: 0 }))
    );
    assert_eq!(
        rig.machine.view(next).unwrap().slot,
        Some(0),
        "nobody waits for it"
    );
    rig.succeed(0, next, 1);
    rig.machine.measured(rig.now, 0, 25 * MB);
    rig.now += 100;
    for _ in 0..5 {
        rig.submit("Long", Options::default());
    }
    assert_eq!(rig.start_and_dispatch().len(), 5, "the name is known now");
}

#[test]
fn a_short_request_finds_memory_that_long_ones_left() {
    let mut rig = rig(Policy {
        guaranteed: [1, 1, 0],
        ..policy()
    });
    let definitions = [
        definition("Long", Options::default()),
        definition("Short", options(|options| options.lane = Lane::Short)),
    ];
    rig.machine
        .install(rig.now, "code".into(), &definitions)
        .unwrap();
    for _ in 0..30 {
        rig.submit("Long", hint(60));
    }
    assert_eq!(rig.start_and_dispatch().len(), 7, "one fewer than fit");
    let short = rig.submit("Short", options(|options| options.lane = Lane::Short));
    assert!(rig.machine.view(short).unwrap().slot.is_some());
}

#[test]
fn cores_and_pressure_keep_requests_waiting_too() {
    let mut rig = rig(Policy {
        cores_milli: 1_000,
        cpu_factor_max: 4,
        ..policy()
    });
    let heavy = || options(|options| (options.cpu_milli, options.memory_bytes) = (2_000, Some(MB)));
    let ids: Vec<_> = (0..3).map(|_| rig.submit("Long", heavy())).collect();
    assert_eq!(rig.start_and_dispatch().len(), 2);
    let why = rig.machine.why(rig.now, ids[2]).unwrap();
    assert_eq!(
        why.reason,
        "waiting: asks for 2000 thousandths of a core, 4000 of 4000 are taken"
    );
    rig.machine.machine_measured(rig.now, 100 * MB, 0.5);
    rig.succeed(0, ids[0], 1);
    assert!(rig.start_and_dispatch().is_empty());
    let why = rig.machine.why(rig.now, ids[2]).unwrap();
    assert_eq!(
        why.reason,
        "waiting: the machine stalls for memory 50 % of the time"
    );
    rig.machine.machine_measured(rig.now, 100 * MB, 0.0);
    assert_eq!(rig.start_and_dispatch().len(), 1);
}

#[test]
fn a_short_request_does_not_wait_for_the_cores_of_long_ones() {
    let mut rig = rig(Policy {
        cores_milli: 1_000,
        cpu_factor_max: 4,
        ..policy()
    });
    let heavy = || options(|options| (options.cpu_milli, options.memory_bytes) = (4_000, Some(MB)));
    rig.submit("Long", heavy());
    assert_eq!(rig.start_and_dispatch().len(), 1);
    let short = rig.submit("Short", options(|options| options.lane = Lane::Short));
    rig.start_and_dispatch();
    assert!(rig.machine.view(short).unwrap().slot.is_some());
}

#[test]
fn who_waits_behind_others_is_told_what_the_first_of_them_waits_for() {
    let mut rig = rig(policy());
    rig.submit_as("ann", "Long", hint(600));
    assert_eq!(rig.start_and_dispatch().len(), 1);
    let waiting: Vec<_> = (0..3)
        .map(|_| rig.submit_as("ann", "Long", hint(600)))
        .collect();
    rig.start_and_dispatch();
    let told = |id| rig.machine.why(rig.now, id).unwrap().reason;
    let first = told(waiting[0]);
    let need = first.strip_prefix("waiting: ").unwrap();
    assert!(need.starts_with("needs 6"), "{first}");
    assert_eq!(
        told(waiting[1]),
        format!("waiting: 1 request of its submitter comes first; the first of them: {need}")
    );
    assert_eq!(
        told(waiting[2]),
        format!("waiting: 2 requests of its submitter come first; the first of them: {need}")
    );
}

#[test]
fn a_large_request_is_overtaken_for_a_while_and_then_comes_first() {
    let mut rig = rig(policy());
    let small = rig.submit_as("ann", "Long", hint(300));
    let large = rig.submit_as("bob", "Long", hint(650));
    rig.start_and_dispatch();
    for step in 0..20_u64 {
        rig.now += 1_000;
        let next = rig.submit_as("ann", "Long", hint(60));
        let overtook = !rig.start_and_dispatch().is_empty();
        assert_eq!(
            overtook,
            step < 4,
            "memory for four, then it waits in front: {step}"
        );
        if step == 19 {
            let why = rig.machine.why(rig.now, next).unwrap();
            assert!(
                why.reason.contains("come first") || why.reason.contains("comes first"),
                "{why:?}"
            );
        }
    }
    let running: Vec<_> = rig.machine.workers();
    for worker in running.iter().filter(|worker| worker.running != [small]) {
        rig.succeed(worker.slot, worker.running[0], 1);
        assert!(
            rig.start_and_dispatch().is_empty(),
            "what became free is kept for it"
        );
    }
    rig.succeed(0, small, 1);
    assert_eq!(rig.start_and_dispatch()[0].1, large);
}

/// Under pressure nothing begins, whatever its size: that is no reason to keep memory for it afterwards.
#[test]
fn the_time_in_which_the_machine_stalled_does_not_count_for_a_large_request() {
    let mut rig = rig(policy());
    rig.submit_as("ann", "Long", hint(300));
    rig.start_and_dispatch();
    rig.machine.machine_measured(rig.now, 100 * MB, 0.5);
    let large = rig.submit_as("bob", "Long", hint(650));
    rig.now += 60_000;
    rig.machine.machine_measured(rig.now, 100 * MB, 0.5);
    assert!(rig.start_and_dispatch().is_empty());
    rig.machine.machine_measured(rig.now, 100 * MB, 0.0);
    let small = rig.submit_as("ann", "Long", hint(60));
    let begun: Vec<_> = rig.start_and_dispatch();
    assert_eq!(begun.iter().map(|run| run.1).collect::<Vec<_>>(), [small]);
    let said = |part: &str| {
        let decisions = rig.machine.why(rig.now, large).unwrap().decisions;
        decisions.iter().any(|(_, text)| text.contains(part))
    };
    assert!(said("did not fit: needs 6") && !said("stalls"));
}

#[test]
fn who_comes_behind_as_many_submitters_as_are_tried_is_told_so() {
    let mut rig = rig(policy());
    rig.submit_as("ann", "Long", hint(300));
    rig.start_and_dispatch();
    for number in 0..8 {
        rig.submit_as(&format!("large {number}"), "Long", hint(650));
    }
    let small = rig.submit_as("bob", "Long", hint(60));
    assert!(rig.start_and_dispatch().is_empty());
    let why = rig.machine.why(rig.now, small).unwrap();
    assert_eq!(
        why.reason,
        "waiting: 8 submitters come before its own, and their requests do not fit"
    );
}

#[test]
fn the_guard_ends_the_youngest_burst_worker_that_outgrew_its_estimate() {
    let mut rig = rig(policy());
    let ids: Vec<_> = (0..4)
        .map(|_| {
            rig.submit(
                "Long",
                options(|options| {
                    options.memory_bytes = Some(60 * MB);
                    options.retries = 1;
                }),
            )
        })
        .collect();
    let runs = rig.start_and_dispatch();
    // The guaranteed worker and the second have outgrown their 80 MB; the third is younger and has not.
    for (slot, bytes) in [(0, 300), (1, 300), (2, 70), (3, 70)] {
        rig.machine.measured(rig.now, slot, bytes * MB);
    }
    rig.machine.machine_measured(rig.now, 740 * MB, 0.0);
    let actions = rig.take();
    let expel = Action::Expel {
        slot: 1,
        peak_bytes: 300 * MB,
        limit_bytes: 750 * MB,
    };
    assert!(
        actions
            .iter()
            .any(|action| format!("{action:?}") == format!("{expel:?}")),
        "{actions:?}"
    );
    rig.machine.machine_measured(rig.now, 745 * MB, 0.0);
    assert!(rig.take().is_empty(), "one at a time");
    rig.machine.worker_gone(rig.now, 1, death("signal"));
    let decisions = rig.machine.why(rig.now, runs[1].1).unwrap().decisions;
    assert!(
        decisions.iter().any(|(_, text)| text.contains("(memory)")),
        "{decisions:?}"
    );
    assert_eq!(ids.len(), 4);
}

/// A worker that is killed gives its memory back soon; one that does not is no shelter for the others.
#[test]
fn the_guard_goes_on_half_a_second_after_a_worker_that_does_not_end() {
    let mut rig = rig(policy());
    for _ in 0..2 {
        rig.submit("Long", hint(60));
    }
    rig.start_and_dispatch();
    for slot in [0, 1] {
        rig.machine.measured(rig.now, slot, 370 * MB);
    }
    let mut expelled = Vec::new();
    for (after_ms, so_far) in [(0, &[1][..]), (499, &[1]), (500, &[1, 0])] {
        let now = rig.now + after_ms;
        rig.machine.machine_measured(now, 745 * MB, 0.0);
        expelled.extend(rig.take().into_iter().filter_map(|action| match action {
            Action::Expel { slot, .. } => Some(slot),
            _ => None,
        }));
        assert_eq!(expelled, so_far, "after {after_ms} ms");
    }
}

/// A run takes its memory after the reading of its worker, and before that of the machine.
#[test]
fn while_no_worker_has_outgrown_its_estimate_the_guard_waits_for_a_reading_of_each() {
    for (old, young, victim) in [(600 * MB, 50 * MB, 0), (50 * MB, 50 * MB, 1)] {
        let mut rig = rig(policy());
        for _ in 0..2 {
            rig.submit("Long", hint(60));
        }
        rig.start_and_dispatch();
        let expelled = |rig: &mut Rig| {
            rig.take().into_iter().find_map(|action| match action {
                Action::Expel { slot, .. } => Some(slot),
                _ => None,
            })
        };
        for slot in [0, 1] {
            rig.machine.measured(rig.now, slot, 50 * MB);
        }
        rig.machine.machine_measured(rig.now, 745 * MB, 0.0);
        assert_eq!(expelled(&mut rig), None, "nobody has outgrown");
        rig.machine.measured(rig.now, 1, young);
        rig.machine.machine_measured(rig.now, 745 * MB, 0.0);
        assert_eq!(expelled(&mut rig), None, "one of two was read");
        rig.machine.measured(rig.now, 0, old);
        rig.machine.machine_measured(rig.now, 745 * MB, 0.0);
        assert_eq!(expelled(&mut rig), Some(victim));
    }
}

#[test]
fn a_worker_that_ends_is_not_waited_for_and_with_its_memory_the_doubt_is_over() {
    let mut rig = rig(policy());
    for _ in 0..2 {
        rig.submit("Long", hint(60));
    }
    rig.start_and_dispatch();
    rig.machine.machine_measured(rig.now, 745 * MB, 0.0);
    rig.machine.worker_gone(rig.now, 1, death("signal"));
    rig.machine.machine_measured(rig.now, 100 * MB, 0.0);
    rig.machine.measured(rig.now, 0, 50 * MB);
    rig.take();
    rig.machine.machine_measured(rig.now, 745 * MB, 0.0);
    assert!(
        rig.take().is_empty(),
        "a new doubt begins with new readings"
    );
}

#[test]
fn the_death_by_the_guard_is_told_with_its_figures() {
    let mut rig = rig(policy());
    let id = rig.submit("Long", hint(60));
    rig.take();
    rig.machine.measured(rig.now, 0, 740 * MB);
    rig.machine.machine_measured(rig.now, 740 * MB, 0.0);
    assert!(
        rig.take()
            .iter()
            .any(|action| matches!(action, Action::Expel { slot: 0, .. }))
    );
    rig.machine.worker_gone(rig.now, 0, death("signal"));
    assert_eq!(rig.ended(id), Some(Status::Failed));
    let Outcome::Failed(Failure::Died(death)) = &rig.endings[&id].outcome else {
        panic!("it died");
    };
    let told = (&*death.cause, death.peak_bytes, death.limit_bytes);
    assert_eq!(told, ("memory", Some(740 * MB), Some(750 * MB)));
}

#[test]
fn an_idle_worker_that_grew_goes_before_anything_that_runs() {
    let mut rig = rig(policy());
    let ids = [rig.submit("Long", hint(60)), rig.submit("Long", hint(60))];
    rig.start_and_dispatch();
    rig.succeed(1, ids[1], 1);
    rig.machine.measured(rig.now, 1, 200 * MB);
    rig.machine.machine_measured(rig.now, 740 * MB, 0.0);
    let actions = rig.take();
    assert!(
        matches!(actions[..], [.., Action::Stop { slot: 1 }]),
        "{actions:?}"
    );
}

#[test]
fn a_reading_of_the_machine_that_is_older_than_its_workers_is_not_believed() {
    let mut rig = rig(policy());
    rig.submit("Long", hint(600));
    rig.take();
    rig.machine.measured(rig.now, 0, 600 * MB);
    rig.machine.machine_measured(rig.now, 0, 0.0);
    assert_eq!(rig.machine.figures(rig.now).resident_bytes, 600 * MB);
    let next = rig.submit("Long", hint(200));
    assert!(rig.start_and_dispatch().is_empty());
    rig.machine.worker_gone(rig.now, 0, death("signal"));
    assert_eq!(rig.machine.figures(rig.now).resident_bytes, 0);
    assert_eq!(rig.start_and_dispatch()[0].1, next);
}
