//! Failures of commits, without a thread.

use rusqlite::ffi;

use super::*;
use crate::op::fixture::accept;
use crate::store::outbox::{HookOutbox, OutboxReport};

fn failed(code: std::ffi::c_int) -> Failed {
    Failed::from(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None))
}

#[test]
fn what_somebody_has_to_act_on_is_permanent() {
    for code in [
        ffi::SQLITE_READONLY,
        ffi::SQLITE_CORRUPT,
        ffi::SQLITE_NOTADB,
        ffi::SQLITE_CANTOPEN,
    ] {
        assert_eq!(failed(code).until, Until::Mended, "{code}");
    }
    for code in [
        ffi::SQLITE_FULL,
        ffi::SQLITE_IOERR,
        ffi::SQLITE_IOERR_FSYNC,
        ffi::SQLITE_BUSY,
    ] {
        assert_ne!(failed(code).until, Until::Mended, "{code}");
    }
}

#[test]
fn a_connection_is_kept_where_the_disk_is_full_and_no_other_way() {
    assert!(!failed(ffi::SQLITE_FULL).broken);
    for code in [
        ffi::SQLITE_IOERR_FSYNC,
        ffi::SQLITE_IOERR_WRITE,
        ffi::SQLITE_CORRUPT,
    ] {
        assert!(failed(code).broken, "{code}");
    }
}

fn kept(connection: &Connection) -> Vec<i64> {
    let mut statement = connection
        .prepare("SELECT id FROM requests ORDER BY id")
        .unwrap();
    let ids = statement.query_map([], |row| row.get(0)).unwrap();
    ids.map(|id| id.unwrap()).collect()
}

/// A writer of a new database, and its connection.
fn writer(name: &str, outbox: Option<Arc<HookOutbox>>) -> (WriteThread, Connection) {
    let directory =
        std::env::temp_dir().join(format!("forebay-writer-{name}-{}", std::process::id()));
    let config = StoreConfig {
        outbox,
        ..StoreConfig::new(&directory)
    };
    crate::store::directory::prepare(&directory).unwrap();
    let connection = schema::open(&config).unwrap();
    let journal = Journal::open(&directory.join("journal"), 16).unwrap();
    let writer = WriteThread::new(
        Arc::new(config),
        Arc::new(journal),
        Arc::new(Inbox::new()),
        Arc::new(Inbox::new()),
        Arc::new(Queue::new(16).unwrap()),
        Arc::default(),
    );
    (writer, connection)
}

#[test]
fn what_a_failed_commit_may_have_accepted_is_withdrawn_by_the_next() {
    let (mut writer, connection) = writer("doubtful", None);
    let mut statements = Statements::prepare(&connection).unwrap();
    // The disk has it, and the sync said that it failed.
    writer.batch.ops = vec![accept(1), accept(2)];
    writer.transact(&connection, &mut statements).unwrap();
    writer.refuse(&Failed {
        doubtful: true,
        ..failed(ffi::SQLITE_IOERR_FSYNC)
    });
    assert_eq!(kept(&connection), [1, 2]);
    writer.batch.ops = vec![accept(2), accept(3)];
    writer.commit(&connection, &mut statements).unwrap();
    assert_eq!(kept(&connection), [2, 3], "the second was accepted again");
    assert!(writer.doubtful.is_empty());
    std::fs::remove_dir_all(&writer.config.directory).unwrap();
}

#[test]
fn a_report_is_written_without_the_submission_that_found_no_room() {
    let outbox = Arc::new(HookOutbox::new(Vec::new()).unwrap());
    let (mut writer, connection) = writer("reports", Some(Arc::clone(&outbox)));
    let mut statements = Statements::prepare(&connection).unwrap();
    connection
        .execute_batch(
            "INSERT INTO outbox(number, token, hook, event, at, detail) VALUES(1, 't', 'a', 'dead', 1, '{}');",
        )
        .unwrap();
    let pages: i64 = connection
        .pragma_query_value(None, "page_count", |row| row.get(0))
        .unwrap();
    // As on a full disk: what takes a page more is SQLITE_FULL.
    connection
        .pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))
        .unwrap();
    let token = "t".into();
    assert!(outbox.report(OutboxReport::Answered { number: 1, token }));
    writer.batch.ops = (1..=1_000).map(accept).collect();
    assert!(writer.commit_or_refuse(&connection, &mut statements));
    let mut answers = Vec::new();
    writer.answers.drain(&mut answers).unwrap();
    assert!(matches!(
        answers[..],
        [Answer::NotCommitted { count: 1_000, .. }]
    ));
    assert_eq!((outbox.reports(), kept(&connection)), (0, vec![]));
    let left: i64 = connection
        .query_row("SELECT count(*) FROM outbox", [], |row| row.get(0))
        .unwrap();
    assert_eq!(left, 0);
    drop(statements);
    std::fs::remove_dir_all(&writer.config.directory).unwrap();
}
