//! The errors of the store.

use std::io;
use std::path::PathBuf;

use rusqlite::ErrorCode;

/// Errors of opening and reading the store. A failed commit is an `Answer`, not an error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process, or another store of this one, has the directory.
    #[error(
        "the state directory {directory} is in use by process {pid}; stop it, or set FOREBAY_STATE_DIR to another"
    )]
    InUse { directory: PathBuf, pid: u32 },
    /// A later version of Forebay has written it.
    #[error(
        "{database} has version {found}, this Forebay knows versions up to {ours}; \
        use the Forebay that wrote it, or set FOREBAY_STATE_DIR to another directory"
    )]
    /// A later version of Forebay has written it.
    Newer {
        database: PathBuf,
        found: i64,
        ours: i64,
    },
    /// Its locks and its shared memory need one kernel.
    #[error(
        "the state directory {directory} is on a network file system ({kind}), where a database loses its locks; \
        set FOREBAY_STATE_DIR to a directory of a local disk"
    )]
    /// The database's locks and shared memory need one kernel.
    Network {
        directory: PathBuf,
        kind: &'static str,
    },
    /// The file belongs to something else, or is broken.
    #[error(
        "{path}: {what}; start from a backup (forebay serve APP --state-dir DIR), or move its directory away to begin anew"
    )]
    Damaged { path: PathBuf, what: String },
    /// While it was copied, it was written to faster.
    #[error(
        "the store in {directory} is written to faster than it is copied: {moments} times its log grew by {growth} bytes \
        before the copy was complete; back up when the server has less to do, or to a faster disk"
    )]
    Outrun {
        directory: PathBuf,
        moments: u32,
        growth: u64,
    },
    /// `SQLite` reported an error.
    #[error("{what}: {source}")]
    Database {
        what: &'static str,
        source: rusqlite::Error,
    },
    /// A system call failed.
    #[error("{what} {path}: {source}")]
    File {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// A thread, or the descriptor of the answers, could not be created.
    #[error("cannot start the store: {0}")]
    Start(String),
}

/// The result of the store's functions.
pub type Result<T> = std::result::Result<T, StoreError>;

impl StoreError {
    /// Names what was done to which file; for `map_err`.
    pub(crate) fn file<E: Into<io::Error>>(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(E) -> Self {
        let path = path.into();
        move |source| Self::File {
            what,
            path,
            source: source.into(),
        }
    }

    /// The same, with the file and what to do, if `SQLite` says that the file itself is broken.
    pub(crate) fn named_if_damaged(self, database: PathBuf) -> Self {
        match self {
            Self::Database { what, source } if is_damage(&source) => Self::Damaged {
                path: database,
                what: format!("{what}: {source}"),
            },
            other => other,
        }
    }

    /// Whether `SQLite` found no room.
    pub(crate) fn is_full_disk(&self) -> bool {
        matches!(self, Self::Database { source, .. }
            if source.sqlite_error_code() == Some(ErrorCode::DiskFull))
    }

    /// Names what was asked of the database; for `map_err`.
    pub(crate) fn database(what: &'static str) -> impl FnOnce(rusqlite::Error) -> Self {
        move |source| Self::Database { what, source }
    }
}

fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
    )
}

impl From<forebay_base::Error> for StoreError {
    fn from(error: forebay_base::Error) -> Self {
        Self::Start(error.to_string())
    }
}
