//! Copies the database of a state directory, whether a server writes to it or none runs.
//!
//! # Design note
//!
//! **One moment.** `SQLite`'s online backup begins anew whenever another connection has written, so that beside a server
//! under load it would never end. Here the source is within a read transaction, so that every step reads the same
//! moment. Alternatives: `VACUUM INTO` reads one moment too, for as long (docs/concepts/executor/backup.md), but cannot
//! say how far it is nor let its moment go; a backup by the writer's own connection would follow the writes, and let
//! each commit wait for the disk of the copy.
//!
//! **The moment is let go.** While it is read, the writer cannot write its log back beyond it. So nothing is synced
//! meanwhile, and after each step the length of the log is looked at: above [`BACKUP_LOG_GROWTH_MAX`] the moment is let
//! go and the copy begins again, [`BACKUP_MOMENTS_MAX`] times at most.
//!
//! **What is gone is forgotten.** The files of results are copied behind the moment, so that retention may remove one
//! before. Its row then goes from the copy too, as it went from the store.
//!
//! The copy is in `SQLite`'s older journal mode: it is one file, which a reader may open where it cannot write. A server
//! that starts from it turns on the log.

mod copied;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, ErrorCode};

pub use copied::{Contents, DatabaseCopy};

use super::directory::{DATABASE, FILE_MODE};
use super::error::{Result, StoreError};
use super::reader::DatabaseReader;
use super::schema::{VERSION, version};
use crate::limit::{BACKUP_LOG_GROWTH_MAX, BACKUP_MOMENTS_MAX, BACKUP_STEP_PAGES};

/// How a copy goes about it.
#[derive(Clone, Copy, Debug)]
pub struct CopyLimits {
    /// Pages that are copied between two looks at the log.
    pub step_pages: u16,
    /// Bytes that the log may grow by while one moment is read.
    pub log_growth_max: u64,
    /// Moments that are begun with, at most.
    pub moments_max: u32,
}

impl Default for CopyLimits {
    fn default() -> Self {
        Self {
            step_pages: BACKUP_STEP_PAGES,
            log_growth_max: BACKUP_LOG_GROWTH_MAX,
            moments_max: BACKUP_MOMENTS_MAX,
        }
    }
}

/// Copy the database of a state directory into a new file, which only this user can read.
///
/// `told` gets the bytes that are copied and those of the whole after each step; once it is false, the copy ends with
/// `None`. What was written of it by then is the caller's to remove. Nothing is synced.
///
/// # Errors
///
/// [`StoreError::Newer`] for a database of a later version, [`StoreError::Outrun`] if the store is written to faster
/// than it is copied, [`StoreError::File`] with `ENOSPC` for a full disk, [`StoreError::Database`] otherwise.
pub fn copy_database(
    directory: &Path,
    target: &Path,
    limits: &CopyLimits,
    mut told: impl FnMut(u64, u64) -> bool,
) -> Result<Option<DatabaseCopy>> {
    let source = Source::open(directory)?;
    let mut copy = create(target)?;
    for _ in 0..limits.moments_max {
        match source.copy_moment(&mut copy, limits, &mut told) {
            Ok(Moment::Copied) => return DatabaseCopy::finish(copy, target).map(Some),
            Ok(Moment::Stopped) => return Ok(None),
            Ok(Moment::LetGo) => {}
            Err(error) => return Err(failed(target)(error)),
        }
    }
    Err(StoreError::Outrun {
        directory: directory.into(),
        moments: limits.moments_max,
        growth: limits.log_growth_max,
    })
}

/// Have all that was written to a file system on the disk, so that a folder of it may get its name.
///
/// # Errors
///
/// [`StoreError::File`]; of a full disk too, which may be noticed only now.
pub fn sync_file_system(folder: &Path) -> Result<()> {
    let opened = File::open(folder).map_err(StoreError::file("cannot open", folder))?;
    rustix::fs::syncfs(opened).map_err(StoreError::file("cannot sync", folder))
}

/// What became of the copy of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Copied,
    /// The caller wants no more.
    Stopped,
    /// The log has grown too much.
    LetGo,
}

/// The database that is copied.
struct Source {
    connection: Connection,
    log: PathBuf,
}

impl Source {
    fn open(directory: &Path) -> Result<Self> {
        let connection = DatabaseReader::open(directory)?.into_inner();
        let found = version(&connection);
        let found = found.map_err(StoreError::database("cannot read the version"))?;
        let database = directory.join(DATABASE);
        if found > VERSION {
            return Err(StoreError::Newer {
                database,
                found,
                ours: VERSION,
            });
        }
        let log = directory.join(format!("{DATABASE}-wal"));
        Ok(Self { connection, log })
    }

    fn copy_moment(
        &self,
        copy: &mut Connection,
        limits: &CopyLimits,
        told: &mut impl FnMut(u64, u64) -> bool,
    ) -> rusqlite::Result<Moment> {
        let moment = self.connection.unchecked_transaction()?;
        // The moment begins with the first read.
        let page_bytes: u32 = moment.pragma_query_value(None, "page_size", |row| row.get(0))?;
        moment.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        let log_bytes_max = self.log_bytes().saturating_add(limits.log_growth_max);
        let backup = Backup::new(&moment, copy)?;
        loop {
            let step = backup.step(i32::from(limits.step_pages))?;
            let progress = backup.progress();
            let bytes = |pages: i32| u64::from(pages.unsigned_abs()) * u64::from(page_bytes);
            let all = bytes(progress.pagecount);
            if !told(all - bytes(progress.remaining), all) {
                return Ok(Moment::Stopped);
            }
            if step == StepResult::Done {
                return Ok(Moment::Copied);
            }
            if self.log_bytes() > log_bytes_max {
                return Ok(Moment::LetGo);
            }
        }
    }

    /// The length of the log's file. Not by opening it: closing any descriptor drops the locks of this process.
    fn log_bytes(&self) -> u64 {
        self.log.metadata().map_or(0, |found| found.len())
    }
}

/// A new database, for this user alone, which is neither synced nor has a journal until it is complete.
fn create(target: &Path) -> Result<Connection> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(FILE_MODE);
    options
        .open(target)
        .map_err(StoreError::file("cannot make", target))?;
    let connection = Connection::open(target).map_err(failed(target))?;
    unsynced(&connection).map_err(failed(target))?;
    Ok(connection)
}

fn unsynced(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "synchronous", "OFF")?;
    connection.pragma_update_and_check(None, "journal_mode", "OFF", |_| Ok(()))
}

/// Names the copy's file where the disk is full, and what was done otherwise.
fn failed(target: &Path) -> impl FnOnce(rusqlite::Error) -> StoreError {
    move |error| match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => {
            let full = io::Error::from(rustix::io::Errno::NOSPC);
            StoreError::file("cannot write", target)(full)
        }
        _ => StoreError::database("cannot copy the database")(error),
    }
}
