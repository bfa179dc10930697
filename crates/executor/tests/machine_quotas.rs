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
