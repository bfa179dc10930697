//! Results that workers leave in files: looked at, renamed, committed; refused; removed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use forebay_executor::id::RequestId;
use forebay_executor::op::Op;
use forebay_executor::request::{Outcome, Status};
use forebay_executor::store::{Answer, Fetched, Payload, Question};

use crate::given::{Directory, Driven, accept, blob, claim, end_with};

const CONTENT: &[u8] = b"what a worker has written";

fn results(directory: &Path) -> PathBuf {
    directory.join("results")
}

/// Where the first run of a request leaves its result.
fn left(directory: &Path, id: u64) -> PathBuf {
    results(directory).join(format!("{}.1.new", RequestId(id)))
}

fn kept(directory: &Path, id: u64) -> PathBuf {
    results(directory).join(RequestId(id).to_string())
}

/// The end of a request whose worker has left `CONTENT`.
fn end(id: u64) -> Op {
    let outcome = Outcome::InFile(CONTENT.len() as u64);
    end_with(id, Status::Succeeded, outcome)
}

fn begun(directory: &Directory, ids: std::ops::RangeInclusive<u64>) -> Driven {
    let (mut driven, _) = Driven::open(directory.path());
    for id in ids {
        driven.commit(vec![accept(id), claim(id, 1)]);
    }
    driven
}

fn payload(driven: &mut Driven, id: u64, question: Question) -> Payload {
    driven.store.fetch(RequestId(id), question, 7);
    match driven.answer() {
        Answer::Fetched {
            found: Fetched::Ending(ending),
            ..
        } => ending.payload,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_a_worker_left_is_the_result_and_is_read_only_for_who_wants_it_whole() {
    let directory = Directory::new();
    let mut driven = begun(&directory, 1..=1);
    fs::write(left(directory.path(), 1), CONTENT).expect("written");
    driven.file(end(1));
    assert_eq!(driven.filed(), (RequestId(1), None));
    driven.commit(vec![end(1)]);
    assert!(!left(directory.path(), 1).exists());
    let path = kept(directory.path(), 1);
    assert_eq!(driven.store.result_path(RequestId(1)), path);
    assert_eq!(fs::read(&path).expect("a file"), CONTENT);
    driven.store.close();

    let (mut driven, _) = Driven::open(directory.path());
    let bytes = CONTENT.len() as u64;
    assert_eq!(
        payload(&mut driven, 1, Question::Ending),
        Payload::File(bytes)
    );
    let whole = payload(&mut driven, 1, Question::Whole);
    assert_eq!(whole, Payload::Result(blob(CONTENT)));
}

#[test]
fn the_writer_does_it_where_it_was_not_done_before_the_end() {
    let directory = Directory::new();
    let mut driven = begun(&directory, 1..=2);
    fs::write(left(directory.path(), 1), CONTENT).expect("written");
    // Of a try that came as far as the rename, and whose sync failed.
    fs::write(kept(directory.path(), 2), CONTENT).expect("written");
    driven.commit(vec![end(1), end(2)]);
    for id in [1, 2] {
        let read = fs::read(kept(directory.path(), id));
        assert_eq!(read.expect("a file"), CONTENT);
    }
    assert!(!left(directory.path(), 1).exists());
}

#[test]
fn what_is_not_what_the_worker_said_gets_no_name() {
    let directory = Directory::new();
    let victim = directory.path().join("victim");
    let mut driven = begun(&directory, 1..=5);
    fs::write(&victim, CONTENT).expect("written");
    let path = |id| left(directory.path(), id);
    symlink(&victim, path(1)).expect("a link");
    fs::hard_link(&victim, path(2)).expect("a name");
    fs::write(path(3), &CONTENT[1..]).expect("written");
    fs::create_dir(path(4)).expect("a directory");
    for (id, what) in [
        (1, "is not a regular file"),
        (2, "has 2 names"),
        (3, "has 24 bytes instead of 25"),
        (4, "is not a regular file"),
        (5, "is not there"),
    ] {
        driven.file(end(id));
        let (_, unfit) = driven.filed();
        let unfit = unfit.expect("it is unfit");
        assert!(unfit.ends_with(what), "{unfit}");
        assert!(unfit.contains(&path(id).display().to_string()), "{unfit}");
        assert!(!kept(directory.path(), id).exists());
        assert!(id == 4 || path(id).symlink_metadata().is_err());
    }
    assert_eq!(fs::read(&victim).expect("as it was"), CONTENT);
}

#[test]
fn what_nobody_told_of_is_gone_once_the_next_server_has_opened() {
    let directory = Directory::new();
    let driven = begun(&directory, 1..=1);
    fs::write(left(directory.path(), 1), CONTENT).expect("written");
    driven.store.close();
    assert!(left(directory.path(), 1).exists());
    let (_driven, _) = Driven::open(directory.path());
    assert!(!left(directory.path(), 1).exists());
}

#[test]
fn what_a_dead_worker_left_is_removed_and_nothing_else() {
    let directory = Directory::new();
    let mut driven = begun(&directory, 1..=2);
    fs::write(left(directory.path(), 1), CONTENT).expect("written");
    fs::write(left(directory.path(), 2), CONTENT).expect("written");
    driven.store.discard(RequestId(1), 1);
    driven.store.discard(RequestId(2), 2);
    driven.file(end(2)); // answered behind them
    assert_eq!(driven.filed(), (RequestId(2), None));
    assert!(!left(directory.path(), 1).exists());
    assert!(kept(directory.path(), 2).exists());
}
