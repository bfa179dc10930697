//! Reads the database beside its writer.

mod outbox;
mod reads;

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rusqlite::{Connection, OpenFlags};

use super::directory::DATABASE;
use super::error::{Result, StoreError};

pub use outbox::{Delivery, OutboxCount};
pub use reads::{Filter, Listed, Page, PastRun};

/// A read-only connection. Any thread may use it, one at a time; what it reads is in [`reads`] and [`outbox`].
///
/// A read sees what was committed when it began, and blocks on the disk. Within the server's process this is the only way to read: see the
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

    /// Read from it.
    fn read<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        let connection = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        read(&connection).map_err(StoreError::database("cannot read the database"))
    }

    /// The connection, for the reading thread.
    pub(super) fn into_inner(self) -> Connection {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
