//! Reads the database beside its writer.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rusqlite::{Connection, OpenFlags, params_from_iter};

use super::directory::DATABASE;
use super::error::{Result, StoreError};

/// A value of a row or of a parameter.
pub use rusqlite::types::Value;

/// A read-only connection. Any thread may use it, one at a time.
///
/// It sees what was committed when a query began. Within the server's process this is the only way to read: see the
/// design note of the store.
#[derive(Debug)]
pub struct DatabaseReader(Mutex<Connection>);

impl DatabaseReader {
    /// Open the database of a state directory, which a [`super::Store`] has created.
    ///
    /// # Errors
    ///
    /// [`StoreError::Database`] if there is none.
    pub fn open(directory: &Path) -> Result<Self> {
        let failed = StoreError::database;
        let what = "cannot open the database for reading";
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection =
            Connection::open_with_flags(directory.join(DATABASE), flags).map_err(failed(what))?;
        connection
            .busy_timeout(std::time::Duration::from_secs(5))
            .map_err(failed(what))?;
        // SQLite opens the WAL and its index with the first query: run one now, while descriptors are free.
        connection
            .query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))
            .map_err(failed(what))?;
        Ok(Self(Mutex::new(connection)))
    }

    /// The rows of a query, at most `rows_max` of them. Blocks on the disk.
    ///
    /// # Errors
    ///
    /// [`StoreError::Database`] for what is no query, and for a disk that fails.
    pub fn query(&self, sql: &str, values: &[Value], rows_max: usize) -> Result<Vec<Vec<Value>>> {
        let failed = StoreError::database;
        let what = "cannot query the database";
        let connection = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut statement = connection.prepare(sql).map_err(failed(what))?;
        let columns = statement.column_count();
        let rows = statement.query_map(params_from_iter(values), |row| {
            (0..columns).map(|column| row.get(column)).collect()
        });
        let rows = rows.map_err(failed(what))?;
        rows.take(rows_max)
            .collect::<rusqlite::Result<_>>()
            .map_err(failed(what))
    }

    /// The connection, for the reading thread.
    pub(super) fn into_inner(self) -> Connection {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
