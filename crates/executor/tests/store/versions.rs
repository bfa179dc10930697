//! Databases of other versions.

use forebay_executor::id::RequestId;
use forebay_executor::op::Restored;
use forebay_executor::request::Status;
use forebay_executor::store::{Store, StoreConfig, VERSION};
use rusqlite::Connection;

use crate::given::{Directory, Driven, accept, end};

#[test]
fn a_database_of_version_1_is_read_by_this_one() {
    let directory = Directory::new();
    let database = Connection::open(directory.path().join("requests.db")).expect("opens");
    database
        .execute_batch(include_str!("version_1.sql"))
        .expect("the fixture");
    drop(database);
    let (driven, recovery) = Driven::open(directory.path());
    let stands: Vec<_> = recovery
        .restored
        .iter()
        .map(|one| (one.request.id.0, one.status, one.attempts, one.rebooted))
        .collect();
    // The boot of the fixture is none of this machine's.
    assert_eq!(
        stands,
        [(2, Status::Queued, 1, true), (3, Status::Running, 1, true)]
    );
    assert_eq!(recovery.restored[0].request.submission.options.retries, 3);
    let counted = |one: &Restored| (one.forgiven, one.deaths);
    let counted: Vec<_> = recovery.restored.iter().map(counted).collect();
    assert_eq!(counted, [(0, 1), (0, 0)]);
    assert!(recovery.paused.is_empty() && recovery.resumed.is_empty());
    assert_eq!(&*recovery.restored[0].request.submission.arguments, b"\x80");
    assert_eq!(
        recovery.known,
        [("once".into(), RequestId(1), "digits".into())]
    );
    assert_eq!(
        recovery.learnt,
        [("digits".into(), "c0de".into(), vec![1, 2])]
    );
    assert_eq!(recovery.fired, [("nightly".into(), 1_760_000_000_000)]);
    assert_eq!(recovery.last, RequestId(9));
    driven.store.close();
    let database = Connection::open(directory.path().join("requests.db")).expect("opens");
    let version: i64 = database
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .expect("a version");
    assert_eq!(version, VERSION);
}

#[test]
fn a_server_that_starts_writes_nothing_into_a_database_that_it_finds_in_order() {
    let directory = Directory::new();
    let (mut driven, _) = Driven::open(directory.path());
    driven.commit(vec![accept(1), end(1)]);
    driven.store.close();
    let path = directory.path().join("requests.db");
    for auto_vacuum in ["INCREMENTAL", "NONE"] {
        // As an earlier version made it, the second time.
        let database = Connection::open(&path).expect("opens");
        database
            .execute_batch(&format!(
                "PRAGMA journal_mode = DELETE; PRAGMA auto_vacuum = {auto_vacuum}; VACUUM; \
                 PRAGMA journal_mode = WAL;"
            ))
            .expect("made anew");
        drop(database);
        let before = std::fs::read(&path).expect("read");
        let (driven, _) = Driven::open(directory.path());
        let log = std::fs::metadata(directory.path().join("requests.db-wal")).expect("a log");
        assert_eq!(log.len(), 0, "{auto_vacuum}");
        driven.store.close();
        assert_eq!(std::fs::read(&path).expect("read"), before, "{auto_vacuum}");
    }
}

#[test]
fn a_database_of_a_later_version_is_refused_and_left_as_it_is() {
    let directory = Directory::new();
    let path = directory.path().join("requests.db");
    let database = Connection::open(&path).expect("opens");
    database
        .execute_batch("CREATE TABLE later(a); PRAGMA user_version = 42")
        .expect("made");
    drop(database);
    let text = Store::open(StoreConfig::new(directory.path()))
        .expect_err("refused")
        .to_string();
    assert!(
        text.contains("version 42") && text.contains(&format!("up to {VERSION}")),
        "{text}"
    );
    let database = Connection::open(&path).expect("opens");
    assert!(database.prepare("SELECT a FROM later").is_ok());
}

#[test]
fn a_file_of_something_else_is_refused() {
    let directory = Directory::new();
    std::fs::write(directory.path().join("requests.db"), vec![b'x'; 8_192]).expect("written");
    let error = Store::open(StoreConfig::new(directory.path())).expect_err("refused");
    assert!(error.to_string().contains("not a database"), "{error}");
}
