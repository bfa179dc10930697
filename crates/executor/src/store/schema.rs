//! The tables of the database, with the migrations from earlier versions.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::config::StoreConfig;
use super::directory::DATABASE;
use super::error::{Result, StoreError};
use super::shrink;

/// The migration to version n from version n - 1, at index n - 1. A released one is never changed.
const MIGRATIONS: [&str; 7] = [
    include_str!("migration_1.sql"),
    include_str!("migration_2.sql"),
    include_str!("migration_3.sql"),
    include_str!("migration_4.sql"),
    include_str!("migration_5.sql"),
    include_str!("migration_6.sql"),
    include_str!("migration_7.sql"),
];
/// The version that this code reads and writes.
#[allow(clippy::cast_possible_wrap)] // a handful
pub const VERSION: i64 = MIGRATIONS.len() as i64;
/// Pages of the WAL, of 4 KiB, at which a commit writes them back at the latest; an idle writer does it sooner. A
/// stream of 60,000 requests is as fast as with 8,000, within the noise, and slower with 1,000 (test `streaming`).
const CHECKPOINT_PAGES: u32 = 2_000;
const CACHE_KIB: i32 = 8_192;
/// The WAL's file is truncated to this when it starts anew: a long reader may have let it grow.
const LOG_BYTES_KEPT: i64 = 64 << 20;

/// Open the database for writing and bring it to this version.
pub(super) fn open(config: &StoreConfig) -> Result<Connection> {
    let path = config.directory.join(DATABASE);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let failed = StoreError::database;
    let mut connection =
        Connection::open_with_flags(&path, flags).map_err(failed("cannot open the database"))?;
    set_up(&connection, config).map_err(failed("cannot set up the database"))?;
    migrate(&mut connection, &path, &MIGRATIONS)?;
    Ok(connection)
}

fn set_up(connection: &Connection, config: &StoreConfig) -> rusqlite::Result<()> {
    connection.busy_timeout(std::time::Duration::from_millis(config.locked_ms_max))?;
    shrink::prepare(connection)?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", config.synchronous.word())?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // Debian's library overwrites deleted rows, so a prune would write as much as it frees.
    connection.pragma_update_and_check(None, "secure_delete", false, |_| Ok(()))?;
    connection.pragma_update_and_check(None, "journal_size_limit", LOG_BYTES_KEPT, |_| Ok(()))?;
    connection.pragma_update_and_check(None, "wal_autocheckpoint", CHECKPOINT_PAGES, |_| Ok(()))
}

/// Apply the missing migrations, each in a transaction with its number.
fn migrate(connection: &mut Connection, path: &Path, migrations: &[&str]) -> Result<()> {
    let failed = StoreError::database;
    let ours = i64::try_from(migrations.len()).unwrap_or(i64::MAX);
    let found = version(connection).map_err(failed("cannot read the version"))?;
    if found > ours {
        return Err(StoreError::Newer {
            database: path.into(),
            found,
            ours,
        });
    }
    for (number, migration) in (1..)
        .zip(migrations)
        .skip_while(|(number, _)| *number <= found)
    {
        step(connection, number, migration).map_err(failed("cannot migrate the database"))?;
    }
    Ok(())
}

fn step(connection: &mut Connection, number: i64, migration: &str) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(migration)?;
    transaction.pragma_update(None, "user_version", number)?;
    transaction.commit()
}

pub(super) fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables(connection: &Connection) -> Vec<String> {
        let mut statement = connection
            .prepare("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
            .unwrap();
        let names = statement.query_map([], |row| row.get(0)).unwrap();
        names.map(|name| name.unwrap()).collect()
    }

    #[test]
    fn migrations_that_are_missing_are_applied_and_no_others() {
        let mut connection = Connection::open_in_memory().unwrap();
        let path = Path::new("requests.db");
        migrate(&mut connection, path, &["CREATE TABLE one(a)"]).unwrap();
        assert_eq!(version(&connection).unwrap(), 1);
        let both = ["this would fail", "CREATE TABLE two(a)"];
        migrate(&mut connection, path, &both).unwrap();
        assert_eq!(version(&connection).unwrap(), 2);
        assert_eq!(tables(&connection), ["one", "two"]);
    }

    #[test]
    fn a_migration_that_fails_leaves_the_version_before_it_whole() {
        let mut connection = Connection::open_in_memory().unwrap();
        let broken = ["CREATE TABLE one(a)", "CREATE TABLE two(a); nonsense"];
        assert!(migrate(&mut connection, Path::new("x"), &broken).is_err());
        assert_eq!(version(&connection).unwrap(), 1);
        assert_eq!(tables(&connection), ["one"]);
    }

    #[test]
    fn a_later_version_is_refused_with_both_named() {
        let mut connection = Connection::open_in_memory().unwrap();
        connection
            .pragma_update(None, "user_version", VERSION + 1)
            .unwrap();
        let error = migrate(
            &mut connection,
            Path::new("/state/requests.db"),
            &MIGRATIONS,
        )
        .unwrap_err()
        .to_string();
        assert!(
            error.contains(&format!("version {}", VERSION + 1))
                && error.contains(&format!("up to {VERSION}")),
            "{error}"
        );
        assert!(error.contains("/state/requests.db"), "{error}");
    }
}
