//! Copies of the database while it is written to: one moment, whole, and let go of in time.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use forebay_executor::id::RequestId;
use forebay_executor::op::Op;
use forebay_executor::request::{Options, Outcome, Status};
use forebay_executor::store::{
    CopyLimits, DatabaseCopy, DatabaseReader, Store, StoreError, VERSION, copy_database,
};
use rusqlite::Connection;

use crate::given::{Directory, Driven, accept, blob, claim, config, end, end_with, request};

/// Small steps, so that a small database takes many.
const STEPS: CopyLimits = CopyLimits {
    step_pages: 8,
    log_growth_max: u64::MAX,
    moments_max: 1,
};

/// Where a copy goes: a folder that a store may be opened in.
fn target(of: &Directory) -> PathBuf {
    of.path().join("requests.db")
}

/// Copy all of it, whatever happens meanwhile.
fn copied(from: &Path, to: &Directory, mut meanwhile: impl FnMut()) -> DatabaseCopy {
    let copy = copy_database(from, &target(to), &STEPS, |_, _| {
        meanwhile();
        true
    });
    copy.expect("copied").expect("nobody stops it")
}

/// A request with so many bytes of arguments.
fn large(id: u64, bytes: usize) -> Op {
    Op::Accept(request(id, vec![7; bytes], Options::default()))
}

#[test]
fn a_copy_is_one_moment_whatever_is_written_meanwhile() {
    let (from, to) = (Directory::new(), Directory::new());
    let (mut driven, _) = Driven::open(from.path());
    driven.commit((1..=200).map(|id| large(id, 3_000)).collect());
    driven.commit(vec![claim(1, 1), end(2)]);
    let mut next = 201;
    let copy = copied(from.path(), &to, || {
        // Before and behind what has been copied already.
        let ended = next - 100;
        driven.commit(vec![large(next, 3_000), claim(ended, 1), end(ended)]);
        next += 1;
    });
    assert!(next > 215, "{next}: it took several steps");
    let contents = copy.contents().expect("read");
    assert_eq!((contents.requests, contents.unfinished), (200, 199));
    assert_eq!(contents.newest, Some(RequestId(200)));
    assert_eq!(contents.version, VERSION);
    assert_eq!(copy.faults().expect("checked"), Vec::<String>::new());
    drop(copy);
    let mode = std::fs::metadata(target(&to)).expect("there").permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    let files: Vec<_> = std::fs::read_dir(to.path()).expect("read").collect();
    assert_eq!(files.len(), 1, "no log beside it: {files:?}");
    driven.store.close();

    let (driven, recovery) = Driven::open(to.path());
    let running = recovery.restored.iter().find(|one| one.request.id.0 == 1);
    assert_eq!(running.expect("there").status, Status::Running);
    assert_eq!(recovery.restored.len(), 199);
    assert_eq!(recovery.last, RequestId(200));
    driven.store.close();
}

#[test]
fn a_moment_whose_log_grows_too_much_is_let_go() {
    let (from, to) = (Directory::new(), Directory::new());
    let (mut driven, _) = Driven::open(from.path());
    driven.commit((1..=200).map(|id| large(id, 3_000)).collect());
    let limits = CopyLimits {
        log_growth_max: 200_000,
        moments_max: 2,
        ..STEPS
    };
    // Grows in the first moment alone.
    let mut next = 201;
    let copy = copy_database(from.path(), &target(&to), &limits, |_, _| {
        if next < 202 {
            driven.commit(vec![large(next, 1_000_000)]);
            next += 1;
        }
        true
    });
    let contents = copy.expect("copied").expect("all").contents();
    assert!(contents.expect("read").requests > 200, "a later moment");

    let to = Directory::new();
    let refused = copy_database(from.path(), &target(&to), &limits, |_, _| {
        driven.commit(vec![large(next, 5_000_000)]);
        next += 1;
        true
    });
    let refused = refused.expect_err("it never ends");
    assert!(matches!(refused, StoreError::Outrun { moments: 2, .. }));
    assert!(refused.to_string().contains("200000 bytes"), "{refused}");
}

#[test]
fn a_copy_that_nobody_wants_any_more_ends_at_its_next_step() {
    let (from, to) = (Directory::new(), Directory::new());
    let (mut driven, _) = Driven::open(from.path());
    driven.commit((1..=200).map(|id| large(id, 3_000)).collect());
    let mut seen = Vec::new();
    let copy = copy_database(from.path(), &target(&to), &STEPS, |done, all| {
        seen.push((done, all));
        seen.len() < 3
    });
    assert!(copy.expect("no error").is_none());
    assert_eq!(seen.len(), 3);
    assert!(seen[0].0 > 0 && seen[0].0 < seen[1].0 && seen[1].0 < seen[2].0);
    assert_eq!(seen[0].0, 8 * 4_096);
    assert!(seen.iter().all(|(done, all)| done < all && *all > 600_000));
}

#[test]
fn what_lost_its_file_is_forgotten_and_its_id_is_not_given_again() {
    let (from, to) = (Directory::new(), Directory::new());
    let (mut driven, _) = Driven::with(forebay_executor::store::StoreConfig {
        result_bytes_max: 10,
        ..config(from.path())
    });
    driven.commit((1..=3).map(accept).collect());
    let result = || Outcome::Succeeded(blob(vec![1; 20]));
    driven.commit(vec![end_with(1, Status::Succeeded, result()), end(2)]);
    driven.commit(vec![end_with(3, Status::Succeeded, result())]);
    let copy = copied(from.path(), &to, || {});
    let named = |behind| copy.results(RequestId(behind), 9).expect("read");
    assert_eq!(named(0), [(RequestId(1), 20), (RequestId(3), 20)]);
    assert_eq!(named(1), [(RequestId(3), 20)]);
    copy.forget(&[RequestId(3), RequestId(9)]).expect("removed");
    assert_eq!(named(0), [(RequestId(1), 20)]);
    assert!(copy.has(RequestId(2)).expect("read"));
    assert!(!copy.has(RequestId(3)).expect("read"));
    drop(copy);
    driven.store.close();
    let (_, recovery) = Store::open(config(to.path())).expect("opens");
    assert_eq!(recovery.last, RequestId(3));
}

#[test]
fn an_earlier_version_is_copied_as_it_is_and_a_later_one_refused() {
    let (from, to) = (Directory::new(), Directory::new());
    let path = from.path().join("requests.db");
    let database = Connection::open(&path).expect("opens");
    let fixture = include_str!("version_1.sql");
    database.execute_batch(fixture).expect("the fixture");
    drop(database);
    let copy = copied(from.path(), &to, || {});
    assert_eq!(copy.contents().expect("read").version, 1);
    copy.forget(&[RequestId(1)]).expect("removed");
    drop(copy);
    let (driven, recovery) = Driven::open(to.path());
    assert_eq!(recovery.restored.len(), 2);
    drop(driven);

    let database = Connection::open(&path).expect("opens");
    let later = VERSION + 1;
    let set = database.pragma_update(None, "user_version", later);
    set.expect("set");
    drop(database);
    let other = Directory::new();
    let refused = copy_database(from.path(), &target(&other), &STEPS, |_, _| true);
    let refused = refused.expect_err("refused");
    assert!(matches!(refused, StoreError::Newer { found, .. } if found == later));
    assert!(!target(&other).exists());
}

#[test]
fn a_store_without_a_server_is_copied_with_what_its_log_has() {
    let (from, to) = (Directory::new(), Directory::new());
    let (mut driven, _) = Driven::open(from.path());
    driven.commit(vec![accept(1), accept(2)]);
    // As a killed server leaves it: the log was never written back.
    let dead = Directory::new();
    for name in ["requests.db", "requests.db-wal"] {
        let _ = std::fs::copy(from.path().join(name), dead.path().join(name));
    }
    let copy = copied(dead.path(), &to, || {});
    assert_eq!(copy.contents().expect("read").requests, 2);
    drop(driven);
    let again = Directory::new();
    let copy = copied(from.path(), &again, || {});
    assert_eq!(copy.contents().expect("read").requests, 2, "in order");
}

#[test]
fn a_store_that_is_damaged_is_named_with_what_to_do() {
    let directory = Directory::new();
    let (mut driven, _) = Driven::open(directory.path());
    driven.commit(vec![accept(1)]);
    driven.store.close();
    let path = target(&directory);
    std::fs::write(&path, [b'x'; 8_192]).expect("written");
    let damaged = Store::open(config(directory.path())).expect_err("refused");
    assert!(matches!(&damaged, StoreError::Damaged { path: told, .. } if *told == path));
    assert!(
        damaged.to_string().contains("start from a backup"),
        "{damaged}"
    );
}

#[test]
fn a_damaged_copy_is_told() {
    let (from, to) = (Directory::new(), Directory::new());
    let (mut driven, _) = Driven::open(from.path());
    driven.commit((1..=200).map(|id| large(id, 3_000)).collect());
    drop(copied(from.path(), &to, || {}));
    let path = target(&to);
    let mut bytes = std::fs::read(&path).expect("read");
    let middle = bytes.len() / 2 / 4_096 * 4_096;
    bytes[middle..middle + 4_096].fill(0xff);
    std::fs::write(&path, bytes).expect("written");
    let copy = DatabaseCopy::open(to.path()).expect("opens");
    // Which of both depends on what SQLite comes across first.
    assert!(copy.faults().map_or(true, |faults| !faults.is_empty()));
    std::fs::write(&path, b"no database").expect("written");
    assert!(
        DatabaseCopy::open(to.path())
            .expect("opens")
            .faults()
            .is_err()
    );
    assert!(DatabaseReader::open(&to.path().join("none")).is_err());
}
