//! An end counts for its run alone: one that comes after a later run has begun changes nothing.

use forebay_executor::id::RequestId;
use forebay_executor::op::Op;
use forebay_executor::request::{Failure, Outcome, Status};
use forebay_executor::store::{Answer, Fetched, Payload, Question, StoreConfig};

use crate::given::{self, Directory, Driven, accept, blob, claim, end, end_of};

fn park(attempt: u32) -> Op {
    Op::Park {
        id: RequestId(1),
        attempt,
        wake_at: 5,
        failure: Failure::OutcomeUnknown,
        deaths: 0,
    }
}

fn succeeded(attempt: u32, result: &[u8]) -> Op {
    end_of(
        (1, attempt),
        Status::Succeeded,
        Outcome::Succeeded(blob(result)),
    )
}

/// The request after these changes, each of which is a commit.
fn stands_after(driven: &mut Driven, ops: Vec<Op>) -> (Status, u32, Option<Payload>) {
    for op in ops {
        driven.commit(vec![op]);
    }
    driven.store.fetch(RequestId(1), Question::Row, 7);
    let Answer::Fetched {
        found: Fetched::Row(row),
        ..
    } = driven.answer()
    else {
        panic!("no row");
    };
    let payload = row.ending.map(|ending| ending.payload);
    (row.status, row.attempts, payload)
}

#[test]
fn the_end_of_an_earlier_run_changes_nothing() {
    let directory = Directory::new();
    let (mut driven, _) = Driven::open(directory.path());
    let second_runs = vec![accept(1), claim(1, 1), park(1), claim(1, 2)];
    let before = stands_after(&mut driven, second_runs);
    assert_eq!(before, (Status::Running, 2, None));
    let late = vec![succeeded(1, b"\x01"), park(1)];
    assert_eq!(stands_after(&mut driven, late), before);
    driven.commit(vec![park(2)]);
    // In one batch with what it is late for, too.
    driven.commit(vec![claim(1, 3), succeeded(2, b"\x01")]);
    assert_eq!(stands_after(&mut driven, vec![]).1, 3);
    driven.commit(vec![succeeded(3, b"\x02"), succeeded(1, b"\x01")]);
    let ended = (Status::Succeeded, 3, Some(Payload::Result(blob(*b"\x02"))));
    assert_eq!(stands_after(&mut driven, vec![]), ended);
    // An end that is given again, as after a sync that failed, is the one that stands.
    let again = vec![succeeded(3, b"\x03"), park(3)];
    assert_eq!(stands_after(&mut driven, again), ended);
}

#[test]
fn the_end_of_a_run_before_a_retry_changes_nothing() {
    let directory = Directory::new();
    let (mut driven, _) = Driven::open(directory.path());
    let failed = end_of(
        (1, 1),
        Status::Failed,
        Outcome::Failed(Failure::OutcomeUnknown),
    );
    let retry = Op::Retry {
        id: RequestId(1),
        at: 9,
    };
    let retried = vec![accept(1), claim(1, 1), failed, retry];
    let waits = stands_after(&mut driven, retried);
    assert_eq!(waits, (Status::Queued, 1, None));
    assert_eq!(
        stands_after(&mut driven, vec![succeeded(1, b"\x01")]),
        waits
    );
    // It is cancelled before its next run.
    let cancelled = end_of((1, 1), Status::Cancelled, Outcome::Cancelled);
    let ended = stands_after(&mut driven, vec![cancelled]);
    assert_eq!((ended.0, ended.1), (Status::Cancelled, 1));
}

#[test]
fn a_request_ends_whose_claimed_run_no_worker_received() {
    let directory = Directory::new();
    let (mut driven, _) = Driven::open(directory.path());
    let Op::End { id, ending, .. } = end_of((1, 0), Status::Cancelled, Outcome::Cancelled) else {
        unreachable!("an end");
    };
    let cancelled = Op::End {
        id,
        ending,
        deaths: 0,
        claimed: 1,
    };
    let ended = stands_after(&mut driven, vec![accept(1), claim(1, 1), cancelled]);
    assert_eq!((ended.0, ended.1), (Status::Cancelled, 0));
}

#[test]
fn a_late_result_does_not_replace_the_file_of_a_later_run() {
    let directory = Directory::new();
    let config = StoreConfig {
        result_bytes_max: 10,
        ..given::config(directory.path())
    };
    let (mut driven, _) = Driven::with(config);
    let large = |attempt: u32| succeeded(attempt, &[u8::try_from(attempt).expect("few"); 20]);
    let ended = vec![accept(1), claim(1, 1), park(1), claim(1, 2), large(2)];
    let stands = stands_after(&mut driven, ended);
    assert_eq!(stands.2, Some(Payload::File(20)));
    let file = directory
        .path()
        .join("results")
        .join(RequestId(1).to_string());
    driven.file(large(1));
    assert_eq!(driven.filed(), (RequestId(1), None));
    assert_eq!(stands_after(&mut driven, vec![large(1)]), stands);
    assert_eq!(std::fs::read(file).expect("a file"), [2; 20]);
}

#[test]
fn a_server_that_lost_its_store_to_another_one_ends_nothing() {
    let directory = Directory::new();
    let (mut first, _) = Driven::open(directory.path());
    first.commit(vec![accept(1), accept(2), claim(1, 1), claim(2, 1)]);
    // Whoever removes the journal removes the lock with it: a second server may start beside the first.
    std::fs::remove_file(directory.path().join("journal")).expect("a journal");
    let (mut second, recovery) = Driven::open(directory.path());
    assert_eq!(recovery.restored.len(), 2);
    second.commit(vec![park(1), claim(1, 2)]);
    first.commit(vec![succeeded(1, b"\x01"), end(2)]);
    let stands = stands_after(&mut second, vec![]);
    assert_eq!(stands, (Status::Running, 2, None));
    let ended = stands_after(&mut second, vec![succeeded(2, b"\x02")]);
    let payload = Some(Payload::Result(blob(*b"\x02")));
    assert_eq!(ended, (Status::Succeeded, 2, payload));
    // Of what the second one has not begun, the first one's end is the only one.
    second.store.fetch(RequestId(2), Question::Ending, 8);
    let answer = second.answer();
    let Answer::Fetched { found, .. } = answer else {
        panic!("{answer:?}");
    };
    assert!(matches!(found, Fetched::Ending(_)), "{found:?}");
}
