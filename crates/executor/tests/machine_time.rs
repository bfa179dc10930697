//! What time does: time-outs, the steps of an interrupt, back-offs, later requests, schedules.

mod rig;

use forebay_executor::action::{Action, Step};
use forebay_executor::id::RequestId;
use forebay_executor::machine::{Cancelled, Cordon, Definition, Policy, SCHEDULE_SUBMITTER};
use forebay_executor::op::{Op, Restored};
use forebay_executor::request::{Failure, Lane, Options, Outcome, Status};

use rig::{Rig, death, definition, options};

const HOUR: u64 = 3_600_000;

fn rig(lane: Lane) -> Rig {
    let mut rig = Rig::new(Policy {
        durable: false,
        guaranteed: [0, 1, 1],
        burst: false,
        ..Policy::default()
    });
    rig.workers_up(&[lane]);
    rig
}

fn steps(rig: &mut Rig) -> Vec<Step> {
    let actions = rig.take().into_iter();
    let step = |action| match action {
        Action::Interrupt { step, .. } => Some(step),
        _ => None,
    };
    actions.filter_map(step).collect()
}

#[test]
fn a_run_that_takes_too_long_gets_an_exception_then_a_termination_then_a_kill() {
    let mut rig = rig(Lane::Long);
    let id = rig.submit("Long", options(|options| options.timeout_ms = Some(1_000)));
    rig.take();
    for (at, expected) in [
        (999, vec![]),
        (1_000, vec![Step::Exception]),
        (5_999, vec![]),
        (6_000, vec![Step::Terminate]),
        (11_000, vec![Step::Kill]),
        (16_000, vec![Step::Kill]),
    ] {
        rig.machine.tick(at);
        assert_eq!(steps(&mut rig), expected, "at {at}");
    }
    rig.machine.worker_gone(16_001, 0, death("signal"));
    assert_eq!(rig.ended(id), Some(Status::Failed));
    let timed_out = Failure::TimedOut { timeout_ms: 1_000 };
    assert_eq!(rig.endings[&id].outcome, Outcome::Failed(timed_out));
}

#[test]
fn a_run_that_timed_out_is_run_again_while_retries_are_left_and_its_kill_counts_as_no_death() {
    let mut rig = rig(Lane::Long);
    let id = rig.submit(
        "Long",
        options(|options| {
            options.timeout_ms = Some(1_000);
            options.retries = 5;
        }),
    );
    for attempt in 1..=6 {
        rig.run_until_dispatched(id, attempt);
        rig.now += 1_000;
        rig.machine.tick(rig.now);
        let slot = rig.machine.view(id).unwrap().slot.unwrap();
        rig.machine.worker_gone(rig.now, slot, death("signal"));
    }
    assert_eq!(rig.ended(id), Some(Status::Failed), "and is not set aside");
}

#[test]
fn a_cancel_that_comes_too_late_changes_nothing() {
    let mut rig = rig(Lane::Long);
    let id = rig.submit("Long", options(|options| options.retries = 1));
    rig.take();
    assert_eq!(rig.machine.cancel(1, id), Cancelled::Asked);
    assert_eq!(rig.machine.cancel(1, id), Cancelled::Asked);
    assert_eq!(steps(&mut rig), [Step::Exception], "once");
    rig.succeed(0, id, 1);
    assert_eq!(rig.ended(id), Some(Status::Succeeded));
}

#[test]
fn a_cancelled_run_whose_worker_died_is_cancelled_and_not_run_again() {
    let mut rig = rig(Lane::Long);
    let id = rig.submit("Long", options(|options| options.retries = 5));
    rig.take();
    rig.machine.cancel(1, id);
    rig.machine.worker_gone(2, 0, death("signal"));
    assert_eq!(rig.ended(id), Some(Status::Cancelled));
}

#[test]
fn an_async_run_that_does_not_heed_hurts_no_other_of_its_worker() {
    let mut rig = rig(Lane::Async);
    let lane = || options(|options| options.lane = Lane::Async);
    let (stuck, other) = (rig.submit("Async", lane()), rig.submit("Async", lane()));
    rig.take();
    rig.machine.cancel(0, stuck);
    for at in [5_000, 10_000, 15_000] {
        rig.machine.tick(at);
        assert!(
            !steps(&mut rig).contains(&Step::Kill),
            "the other still runs"
        );
    }
    let next = rig.submit("Async", lane());
    assert!(
        rig.machine.view(next).unwrap().slot.is_none(),
        "the worker takes nothing more"
    );
    rig.now = 15_001;
    rig.succeed(0, other, 1);
    let mut seen = Vec::new();
    for at in [20_000, 25_000, 30_000] {
        rig.machine.tick(at);
        seen.extend(steps(&mut rig));
    }
    assert!(seen.ends_with(&[Step::Kill]), "{seen:?}");
    rig.machine.worker_gone(30_001, 0, death("signal"));
    assert_eq!(rig.ended(stuck), Some(Status::Cancelled));
    assert_eq!(rig.ended(other), Some(Status::Succeeded));
}

#[test]
fn a_failure_is_followed_by_a_longer_wait_each_time() {
    let mut rig = rig(Lane::Long);
    let id = rig.submit(
        "Long",
        options(|options| {
            options.retries = 3;
            options.backoff_ms = 1_000;
            options.backoff_max_ms = 3_000;
        }),
    );
    for (attempt, whole) in [(1, 1_000), (2, 2_000), (3, 3_000)] {
        rig.run_until_dispatched(id, attempt);
        let raised = Outcome::Failed(Failure::Raised(Vec::new().into()));
        let slot = rig.machine.view(id).unwrap().slot.unwrap();
        rig.machine
            .finished(rig.now, slot, id, attempt, raised, None);
        let wait = rig.machine.next_tick().unwrap() - rig.now;
        assert!(
            (whole / 2..=whole).contains(&wait),
            "{wait} ms after run {attempt}"
        );
    }
    rig.run_until_dispatched(id, 4);
    let why = rig.machine.why(rig.now, id).unwrap();
    assert_eq!(why.decisions.len(), 5, "{why:?}");
}

#[test]
fn a_request_for_later_holds_no_worker_until_then() {
    let mut rig = rig(Lane::Long);
    let id = rig.submit("Long", options(|options| options.not_before = Some(5_000)));
    assert_eq!(
        rig.machine.why(0, id).unwrap().reason,
        "waiting: its time is in 5.0 s"
    );
    assert_eq!(rig.machine.next_tick(), Some(5_000));
    rig.machine.tick(5_000);
    assert_eq!(rig.dispatched().len(), 1);
}

#[test]
fn a_schedule_fires_at_its_time_skips_what_still_runs_and_makes_up_once() {
    let mut rig = rig(Lane::Long);
    let hourly = Definition {
        cron: Some("@hourly".into()),
        ..definition("hourly", Options::default())
    };
    rig.machine
        .install(0, "code".into(), std::slice::from_ref(&hourly))
        .unwrap();
    assert_eq!(rig.machine.next_tick(), Some(HOUR));
    rig.machine.tick(HOUR);
    let (slot, id, _) = rig.start_and_dispatch()[0];
    assert_eq!(
        &*rig.machine.request(id).unwrap().submission.submitter,
        SCHEDULE_SUBMITTER
    );
    rig.machine.tick(2 * HOUR);
    let seen = &rig.machine.schedules()[0];
    assert_eq!((seen.skipped, seen.next_at), (1, Some(3 * HOUR)));
    assert!(seen.said.starts_with("skipped"));
    rig.now = 2 * HOUR;
    rig.succeed(slot, id, 1);
    // Nobody ticked for a day: one request, not 24.
    rig.now = 26 * HOUR;
    rig.machine.tick(rig.now);
    assert_eq!(rig.start_and_dispatch().len(), 1);
    assert_eq!(rig.machine.schedules()[0].next_at, Some(27 * HOUR));
    assert!(rig.machine.set_schedule(26 * HOUR, "hourly", true));
    assert_eq!(rig.machine.schedules()[0].next_at, None);
    assert!(!rig.machine.set_schedule(0, "none", true));
    let wrong = Definition {
        cron: Some("61 * * * *".into()),
        ..hourly
    };
    let refusal = rig.machine.install(0, "code".into(), &[wrong]).unwrap_err();
    assert_eq!(
        (refusal.code, &*refusal.object),
        ("invalid", "cron of hourly")
    );
}

#[test]
fn a_time_missed_while_no_server_ran_is_made_up_for() {
    let mut rig = rig(Lane::Long);
    rig.machine
        .restore(0, Vec::new(), &[], &[("hourly".into(), HOUR)], RequestId(9));
    let hourly = Definition {
        cron: Some("@hourly".into()),
        ..definition("hourly", Options::default())
    };
    rig.machine
        .install(10 * HOUR, "code".into(), &[hourly])
        .unwrap();
    rig.machine.tick(10 * HOUR);
    let unfinished = rig.machine.figures(10 * HOUR).unfinished;
    assert_eq!(unfinished, 1);
}

fn hourly() -> Definition {
    Definition {
        cron: Some("@hourly".into()),
        ..definition("hourly", Options::default())
    }
}

fn durable(lane: Lane) -> Rig {
    let mut rig = Rig::new(Policy {
        guaranteed: [0, 1, 1],
        burst: false,
        ..Policy::default()
    });
    rig.workers_up(&[lane]);
    rig.machine
        .install(0, "code".into(), &[hourly()])
        .expect("installed");
    rig
}

#[test]
fn a_time_whose_request_the_store_refuses_comes_again() {
    let mut rig = durable(Lane::Long);
    rig.now = HOUR;
    rig.machine.tick(rig.now);
    let given = rig.store_ops();
    rig.machine.not_committed(HOUR, given, "full", false);
    let seen = rig.machine.schedules().remove(0);
    assert_eq!((seen.fired_at, seen.last), (None, None));
    assert!(seen.said.contains("full"), "{}", seen.said);
    // Refused at once, as long as the store is down.
    rig.machine.tick(HOUR + 1_000);
    assert_eq!(rig.machine.figures(HOUR + 1_000).unfinished, 0);
    rig.machine.retry_store(HOUR + 1_500);
    rig.machine.tick(HOUR + 2_000);
    rig.commit_all();
    let seen = rig.machine.schedules().remove(0);
    assert_eq!(seen.fired_at, Some(HOUR + 2_000));
    assert_eq!(rig.machine.figures(HOUR + 2_000).unfinished, 1);
    assert_eq!(seen.next_at, Some(2 * HOUR));
}

#[test]
fn what_a_schedule_left_unfinished_at_a_restart_is_not_submitted_beside() {
    let mut before = durable(Lane::Long);
    before.machine.tick(HOUR);
    let id = before.machine.schedules()[0].last.expect("a request");
    let restored = Restored {
        request: (**before.machine.request(id).expect("unfinished")).clone(),
        status: Status::Queued,
        attempts: 0,
        forgiven: 0,
        retried: false,
        deaths: 0,
        wake_at: None,
        rebooted: false,
    };
    let mut rig = rig(Lane::Long);
    let fired = [("hourly".into(), HOUR)];
    rig.machine.restore(HOUR, vec![restored], &[], &fired, id);
    rig.machine
        .install(HOUR, "code".into(), &[hourly()])
        .unwrap();
    rig.machine.tick(2 * HOUR);
    assert_eq!(rig.machine.schedules()[0].skipped, 1);
}

#[test]
fn a_schedule_stays_paused_over_installs_and_restarts() {
    let mut rig = durable(Lane::Long);
    assert!(rig.machine.set_schedule(0, "hourly", true));
    let written = rig
        .take()
        .into_iter()
        .any(|action| matches!(action, Action::Store(Op::Paused { name }) if &*name == "hourly"));
    assert!(written);
    rig.machine.install(0, "more".into(), &[hourly()]).unwrap();
    assert!(rig.machine.schedules()[0].paused);

    let mut later = Rig::new(Policy::default());
    later.machine.remember_paused("hourly".into());
    later
        .machine
        .install(0, "code".into(), &[hourly()])
        .unwrap();
    assert!(later.machine.schedules()[0].paused);
    assert_eq!(later.machine.next_tick(), None);
}

#[test]
fn a_time_that_passed_while_a_schedule_was_paused_is_not_made_up_for() {
    const RESUMED: u64 = 3 * HOUR + HOUR / 2;
    let mut rig = durable(Lane::Long);
    rig.machine.tick(HOUR);
    assert_eq!(rig.machine.schedules()[0].fired_at, Some(HOUR));
    let paused = HOUR + HOUR / 2;
    assert!(rig.machine.set_schedule(paused, "hourly", true));
    rig.take();
    assert!(rig.machine.set_schedule(RESUMED, "hourly", false));
    let written = rig.take().into_iter().any(|action| {
        matches!(action, Action::Store(Op::Resumed { name, at: RESUMED }) if &*name == "hourly")
    });
    assert!(written);
    let next = |rig: &Rig| rig.machine.schedules()[0].next_at;
    assert_eq!(next(&rig), Some(4 * HOUR));
    rig.machine
        .install(RESUMED, "more".into(), &[hourly()])
        .unwrap();
    assert_eq!(next(&rig), Some(4 * HOUR));
    rig.machine.set_wall(RESUMED, RESUMED + HOUR / 10);
    assert_eq!(next(&rig), Some(4 * HOUR));

    // What passes while no server runs is made up for from there on.
    for (now, due) in [(RESUMED + 1, 4 * HOUR), (9 * HOUR, 4 * HOUR)] {
        let mut later = Rig::new(Policy::default());
        let fired = [("hourly".into(), HOUR)];
        later
            .machine
            .restore(now, Vec::new(), &[], &fired, RequestId(9));
        later.machine.remember_resumed("hourly".into(), RESUMED);
        later
            .machine
            .install(now, "code".into(), &[hourly()])
            .unwrap();
        assert_eq!(next(&later), Some(due), "at {now}");
    }
}

#[test]
fn a_time_that_a_wrong_clock_noted_does_not_silence_a_schedule() {
    let mut rig = rig(Lane::Long);
    let fired = [("hourly".into(), 1_000_000 * HOUR)];
    rig.machine
        .restore(0, Vec::new(), &[], &fired, RequestId(9));
    rig.machine.install(0, "code".into(), &[hourly()]).unwrap();
    assert_eq!(rig.machine.schedules()[0].next_at, Some(HOUR));
}

#[test]
fn a_schedule_follows_the_walls_clock_and_a_delay_does_not() {
    let mut rig = rig(Lane::Long);
    let start = 50 * HOUR;
    rig.now = start;
    rig.machine
        .install(start, "code".into(), &[hourly()])
        .unwrap();
    let delayed = Options {
        not_before: Some(start + HOUR / 2),
        ..Options::default()
    };
    let waiting = rig.submit("Long", delayed);
    // Forward by three hours and a half: once for the times that passed.
    rig.machine.set_wall(start, start + 3 * HOUR + HOUR / 2);
    assert!(rig.machine.next_tick().is_some_and(|due| due <= start));
    rig.machine.tick(start);
    assert_eq!(rig.start_and_dispatch().len(), 1);
    let seen = &rig.machine.schedules()[0];
    assert_eq!(seen.fired_at, Some(start + 3 * HOUR + HOUR / 2));
    assert_eq!(seen.next_at, Some(start + 4 * HOUR));
    assert_eq!(rig.machine.next_tick(), Some(start + HOUR / 2));
    assert!(rig.ended(waiting).is_none());
    // Back by two days: no hour is left out, and none that is near comes twice.
    rig.machine.set_wall(start, start - 44 * HOUR);
    assert_eq!(rig.machine.schedules()[0].next_at, Some(start - 43 * HOUR));
    rig.machine.set_wall(start, start - 43 * HOUR - 1);
    assert_eq!(rig.machine.schedules()[0].next_at, Some(start - 43 * HOUR));
}

#[test]
fn a_schedule_that_is_due_under_a_cordon_fires_once_when_that_is_taken_back() {
    let mut rig = rig(Lane::Long);
    rig.machine.install(0, "code".into(), &[hourly()]).unwrap();
    let cordon = Cordon {
        by: "ann".into(),
        reason: "".into(),
        at: 0,
        dispatches: true,
    };
    rig.machine.cordon(0, Some(cordon));
    assert_eq!(rig.machine.next_tick(), None); // else the driver would never sleep
    rig.machine.tick(5 * HOUR);
    assert_eq!(rig.machine.figures(5 * HOUR).unfinished, 0);
    rig.now = 5 * HOUR + 1;
    rig.machine.cordon(rig.now, None);
    assert!(rig.machine.next_tick().is_some_and(|at| at <= rig.now));
    rig.machine.tick(rig.now);
    assert_eq!(rig.machine.figures(rig.now).unfinished, 1);
    assert_eq!(rig.machine.schedules()[0].next_at, Some(6 * HOUR));
}

/// The feed says of a request that its schedule submitted it: not of one that somebody else did, whoever that says to be.
#[test]
fn a_request_is_scheduled_where_its_schedule_submitted_it_and_nothing_since() {
    let mut rig = rig(Lane::Long);
    rig.machine.install(0, "code".into(), &[hourly()]).unwrap();
    let newest = |rig: &Rig| rig.machine.schedules()[0].last.expect("it has fired");
    let named_so = rig.submit_as(SCHEDULE_SUBMITTER, "hourly", Options::default());
    rig.machine.tick(HOUR);
    let first = newest(&rig);
    assert!(rig.machine.is_scheduled(first));
    assert!(!rig.machine.is_scheduled(named_so));
    rig.now = HOUR;
    for id in [named_so, first] {
        rig.run_until_dispatched(id, 1);
        let slot = rig.machine.view(id).and_then(|view| view.slot);
        rig.succeed(slot.expect("it runs"), id, 1);
    }
    rig.machine.tick(2 * HOUR);
    assert_ne!(newest(&rig), first);
    assert!(rig.machine.is_scheduled(newest(&rig)));
    assert!(!rig.machine.is_scheduled(first));
}
