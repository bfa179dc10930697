//! Databases of other versions.

use forebay_executor::id::{EPOCH_MS, RequestId, SEQUENCE_BITS};
use forebay_executor::op::Restored;
use forebay_executor::request::Status;
use forebay_executor::store::{DatabaseReader, Filter, Store, StoreConfig, VERSION};
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
fn a_database_of_version_4_opens_and_its_ids_go_on() {
    let directory = Directory::new();
    let database = Connection::open(directory.path().join("requests.db")).expect("opens");
    database
        .execute_batch(include_str!("version_4.sql"))
        .expect("the fixture");
    drop(database);
    let first = (1_760_000_000_000 - EPOCH_MS) << SEQUENCE_BITS;
    let ids = [first, first + 1, first + 0xfffe, first + 0xffff];
    let (mut driven, recovery) = Driven::open(directory.path());
    let counted = |one: &Restored| (one.request.id.0, one.attempts, one.forgiven, one.deaths);
    let counted: Vec<_> = recovery.restored.iter().map(counted).collect();
    assert_eq!(counted, [(ids[1], 3, 2, 1), (ids[3], 1, 0, 0)]);
    assert_eq!(recovery.paused, ["weekly".into()]);
    assert_eq!(recovery.resumed, [("nightly".into(), 1_760_000_000_005)]);
    assert_eq!(recovery.last, RequestId(ids[3]));
    let next = RequestId::after(recovery.last, 1_760_000_000_000, 0);
    driven.commit(vec![accept(next.0)]);
    let reader = DatabaseReader::open(directory.path()).expect("opens");
    let page = reader.page(&Filter::default(), None, 9).expect("a page");
    let listed: Vec<_> = page.requests.iter().map(|one| one.id.0).collect();
    assert_eq!(listed, [next.0, ids[3], ids[2], ids[1], ids[0]]);
    assert!(next.to_string() > RequestId(ids[3]).to_string());
    let begins = RequestId::beginning_with(&next.to_string()[..8]).expect("a beginning");
    assert_eq!(reader.among(&begins, 9).expect("read").len(), 5);
    assert_eq!(reader.runs(RequestId(ids[1]), 9).expect("read").len(), 1);
    driven.commit(vec![end(ids[3])]);
    assert_eq!(
        reader.status(RequestId(ids[3])).expect("read"),
        Some(Status::Succeeded)
    );
}

#[test]
fn a_server_that_starts_writes_one_page_into_a_database_that_it_finds_in_order() {
    /// Of the log: its head, and one page with its own.
    const ONE_PAGE: u64 = 32 + 24 + 4_096;
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
        // Where its events begin.
        assert_eq!(log.len(), ONE_PAGE, "{auto_vacuum}");
        driven.store.close();
        let after = std::fs::read(&path).expect("read");
        assert_eq!(after.len(), before.len(), "{auto_vacuum}");
        let pages = after.chunks(4_096).zip(before.chunks(4_096));
        let changed = pages.filter(|(after, before)| after != before).count();
        assert_eq!(changed, 1, "{auto_vacuum}");
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
