//! How many unfinished requests a submitter may have.

mod rig;

use forebay_executor::machine::{Cancelled, Policy};
use forebay_executor::request::{Lane, Options};

use rig::{Rig, options};

fn rig(most: u32) -> Rig {
    let mut rig = Rig::new(Policy {
        guaranteed: [0, 1, 0],
        queued_per_submitter_max: most,
        ..Policy::default()
    });
    rig.workers_up(&[Lane::Long]);
    rig
}

fn later() -> Options {
    options(|options| options.not_before = Some(u64::MAX))
}

fn with_quota(quota: u32) -> Options {
    options(|options| {
        options.not_before = Some(u64::MAX);
        options.quota = Some(quota);
    })
}

#[test]
fn a_submitter_at_its_limit_is_refused_and_others_are_not() {
    let mut rig = rig(2);
    let first = rig.submit_as("ann", "Long", later());
    rig.submit_as("ann", "Long", later());
    let refusal = rig
        .try_submit_as("ann", "Long", later())
        .expect_err("taken");
    assert_eq!(
        (refusal.code, &*refusal.object),
        ("limit", "submitter \"ann\"")
    );
    assert_eq!(
        (&*refusal.limit, &*refusal.value),
        ("max_queued_per_submitter", "3")
    );
    assert!(refusal.message.contains("is 2"), "{}", refusal.message);
    rig.submit_as("bob", "Long", later());
    rig.commit_all();
    assert_eq!(rig.machine.cancel(rig.now, first), Cancelled::Now);
    assert!(
        rig.try_submit_as("ann", "Long", later()).is_err(),
        "its end is not on disk"
    );
    rig.commit_all();
    rig.submit_as("ann", "Long", later());
    assert!(rig.try_submit_as("ann", "Long", later()).is_err());
    rig.machine.audit().expect("counters that agree");
}

#[test]
fn a_quota_of_the_submission_takes_the_place_of_the_limit() {
    let mut rig = rig(1);
    for _ in 0..3 {
        rig.submit_as("ann", "Long", with_quota(3));
    }
    let refusal = rig
        .try_submit_as("ann", "Long", with_quota(3))
        .expect_err("taken");
    assert_eq!((&*refusal.limit, &*refusal.value), ("quota", "4"));
    assert!(rig.try_submit_as("ann", "Long", later()).is_err());
}

#[test]
fn a_refused_submission_counts_no_longer() {
    let mut rig = rig(1);
    rig.submit_as("ann", "Long", later());
    let given = rig.store_ops();
    rig.machine.not_committed(0, given, "disk full", false);
    rig.machine.retry_store(0);
    rig.submit_as("ann", "Long", later());
    rig.machine.audit().expect("counters that agree");
}

#[test]
fn without_a_limit_there_is_none() {
    let mut rig = rig(0);
    for _ in 0..50 {
        rig.submit_as("ann", "Long", later());
    }
}

#[test]
fn a_retry_counts_as_a_submission_does() {
    let mut rig = rig(1);
    let first = rig.submit_as("ann", "Long", later());
    rig.commit_all();
    rig.machine.cancel(rig.now, first);
    rig.commit_all();
    let ended = rig.ended_as_restored(first);
    let second = rig.submit_as("ann", "Long", later());
    rig.commit_all();
    let refusal = rig
        .machine
        .retry(rig.now, ended.clone())
        .expect_err("taken");
    assert_eq!(
        (refusal.code, &*refusal.object),
        ("limit", "submitter \"ann\"")
    );
    assert_eq!(
        (&*refusal.limit, &*refusal.value),
        ("max_queued_per_submitter", "2")
    );
    assert!(rig.machine.request(first).is_none(), "it has ended");
    rig.machine.cancel(rig.now, second);
    rig.commit_all();
    assert_eq!(rig.machine.retry(rig.now, ended), Ok(true));
    rig.machine.audit().expect("counters that agree");
}

#[test]
fn a_retry_has_the_quota_of_its_submission() {
    let mut rig = rig(1);
    let first = rig.submit_as("ann", "Long", with_quota(2));
    rig.commit_all();
    rig.machine.cancel(rig.now, first);
    rig.commit_all();
    let ended = rig.ended_as_restored(first);
    rig.submit_as("ann", "Long", with_quota(2));
    let third = rig.submit_as("ann", "Long", with_quota(2));
    rig.commit_all();
    let refusal = rig
        .machine
        .retry(rig.now, ended.clone())
        .expect_err("taken");
    assert_eq!((&*refusal.limit, &*refusal.value), ("quota", "3"));
    rig.machine.cancel(rig.now, third);
    rig.commit_all();
    assert_eq!(rig.machine.retry(rig.now, ended), Ok(true));
}

#[test]
fn a_retry_finds_no_room_in_a_full_queue() {
    let mut rig = Rig::new(Policy {
        guaranteed: [0, 1, 0],
        queued_max: 1,
        ..Policy::default()
    });
    rig.workers_up(&[Lane::Long]);
    let first = rig.submit("Long", later());
    rig.commit_all();
    rig.machine.cancel(rig.now, first);
    rig.commit_all();
    let ended = rig.ended_as_restored(first);
    rig.submit("Long", later());
    let refusal = rig.machine.retry(rig.now, ended).expect_err("taken");
    assert_eq!((refusal.code, &*refusal.limit), ("limit", "max_queued"));
    assert_eq!((&*refusal.object, &*refusal.value), ("Long", "2"));
}
