//! What a copy of the database holds, and which files belong to it.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rusqlite::{Connection, OpenFlags, OptionalExtension, params};

use super::{failed, unsynced};
use crate::id::RequestId;
use crate::store::directory::DATABASE;
use crate::store::error::{Result, StoreError};
use crate::store::schema::version;
use crate::store::statements::KEEP_LAST;

/// Faults that a check names, at most: the first ones say what is wrong.
const FAULTS_MAX: u32 = 20;

/// What is in a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Of the schema.
    pub version: i64,
    pub requests: u64,
    /// Of these, those that have not ended.
    pub unfinished: u64,
    pub newest: Option<RequestId>,
}

/// A copy of a database: whole, and written to by this process alone. Any thread may use it, one at a time.
#[derive(Debug)]
pub struct DatabaseCopy {
    connection: Mutex<Connection>,
    path: PathBuf,
}

impl DatabaseCopy {
    /// Take over what [`super::copy_database`] has written.
    pub(super) fn finish(connection: Connection, path: &Path) -> Result<Self> {
        // The copied head says that there is a log.
        let mode = connection.pragma_update_and_check(None, "journal_mode", "MEMORY", |_| Ok(()));
        mode.and_then(|()| unsynced(&connection))
            .map_err(failed(path))?;
        Ok(Self::of(connection, path))
    }

    /// Open one that is complete, to look at it.
    ///
    /// # Errors
    ///
    /// [`StoreError::Database`] if there is none.
    pub fn open(directory: &Path) -> Result<Self> {
        let path = directory.join(DATABASE);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&path, flags).map_err(
            StoreError::database("cannot open the database of the backup"),
        )?;
        Ok(Self::of(connection, &path))
    }

    fn of(connection: Connection, path: &Path) -> Self {
        Self {
            connection: Mutex::new(connection),
            path: path.into(),
        }
    }

    /// How much is in it.
    ///
    /// # Errors
    ///
    /// [`StoreError::Database`], as of every read.
    pub fn contents(&self) -> Result<Contents> {
        self.read(|connection| {
            let count = |sql| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
            let newest = "SELECT max(id) FROM requests";
            let newest: Option<i64> = connection.query_row(newest, [], |row| row.get(0))?;
            Ok(Contents {
                version: version(connection)?,
                requests: count("SELECT count(*) FROM requests")?.cast_unsigned(),
                unfinished: count("SELECT count(*) FROM requests WHERE ended_at IS NULL")?
                    .cast_unsigned(),
                newest: newest.map(number),
            })
        })
    }

    /// The next requests behind one whose results are files, with their lengths, the oldest first.
    ///
    /// # Errors
    ///
    /// As of [`Self::contents`].
    pub fn results(&self, behind: RequestId, most: usize) -> Result<Vec<(RequestId, u64)>> {
        self.read(|connection| {
            let mut found = connection.prepare(
                "SELECT id, result_bytes FROM requests \
                 WHERE id > ?1 AND result_kind = 1 AND result IS NULL ORDER BY id LIMIT ?2",
            )?;
            let found = found.query_map(params![key(behind), most.cast_signed()], |row| {
                let bytes = row.get::<_, Option<i64>>(1)?.unwrap_or_default();
                Ok((row.get(0).map(number)?, bytes.cast_unsigned()))
            })?;
            found.collect()
        })
    }

    /// Whether there is a row of this request.
    ///
    /// # Errors
    ///
    /// As of [`Self::contents`].
    pub fn has(&self, id: RequestId) -> Result<bool> {
        self.read(|connection| {
            let mut found = connection.prepare("SELECT 1 FROM requests WHERE id = ?1")?;
            Ok(found.query_row([key(id)], |_| Ok(())).optional()?.is_some())
        })
    }

    /// Remove these requests, whose files were removed before they could be copied.
    ///
    /// # Errors
    ///
    /// [`StoreError::File`] with `ENOSPC` for a full disk, [`StoreError::Database`].
    pub fn forget(&self, ids: &[RequestId]) -> Result<()> {
        let connection = self.connection.lock();
        let connection = connection.unwrap_or_else(PoisonError::into_inner);
        remove(&connection, ids).map_err(failed(&self.path))
    }

    /// What `SQLite` finds wrong with it; nothing: it is sound.
    ///
    /// # Errors
    ///
    /// As of [`Self::contents`]; a file that is no database is an error too.
    pub fn faults(&self) -> Result<Vec<String>> {
        self.read(|connection| {
            let mut check = connection.prepare(&format!("PRAGMA integrity_check({FAULTS_MAX})"))?;
            let told = check.query_map([], |row| row.get(0))?;
            let told: Vec<String> = told.collect::<rusqlite::Result<_>>()?;
            Ok(told.into_iter().filter(|line| line != "ok").collect())
        })
    }

    fn read<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        let connection = self.connection.lock();
        let connection = connection.unwrap_or_else(PoisonError::into_inner);
        read(&connection).map_err(StoreError::database("cannot read the backup's database"))
    }
}

/// Remove rows, and keep the largest id.
fn remove(connection: &Connection, ids: &[RequestId]) -> rusqlite::Result<()> {
    let removal = connection.unchecked_transaction()?;
    removal.execute(KEEP_LAST, [])?;
    for table in ["requests", "arguments", "runs"] {
        let mut gone = removal.prepare(&format!("DELETE FROM {table} WHERE id = ?1"))?;
        for id in ids {
            gone.execute([key(*id)])?;
        }
    }
    removal.commit()
}

fn key(id: RequestId) -> i64 {
    id.0.cast_signed()
}

fn number(key: i64) -> RequestId {
    RequestId(key.cast_unsigned())
}
