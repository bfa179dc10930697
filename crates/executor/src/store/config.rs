//! What a store is opened with.

use std::path::PathBuf;

use crate::clock::Clock;

/// What a commit survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Synchronous {
    /// The loss of power: each commit waits for the disk.
    #[default]
    Full,
    /// The death of the server, not the loss of power: the disk is waited for now and then.
    Normal,
}

impl Synchronous {
    /// The word of `SQLite` for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Full => "FULL",
            Self::Normal => "NORMAL",
        }
    }
}

/// Where the store is, and its limits.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// The state directory: `requests.db`, `journal`, `results/`, `logs/`.
    pub directory: PathBuf,
    pub synchronous: Synchronous,
    /// A larger result becomes a file.
    pub result_bytes_max: u64,
    /// Of the arguments of unfinished requests, read at the open; those of further ones stay on disk.
    pub queue_bytes_max: u64,
    /// Ended requests go after this time.
    pub retention_age_ms: u64,
    /// The oldest ended requests go while database, results and logs take more.
    pub retention_bytes: u64,
    /// Time between two looks at the retention.
    pub retention_every_ms: u64,
    /// Runs that may be noted in the journal at once.
    pub journal_entries: usize,
    /// For how long a commit waits while another process has the database locked.
    pub locked_ms_max: u64,
    /// By which all its times are; the one that who drives the store goes by.
    pub clock: Clock,
}

impl StoreConfig {
    /// The defaults, in `directory`.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            synchronous: Synchronous::Full,
            result_bytes_max: 1_000_000,
            queue_bytes_max: 64 << 20,
            retention_age_ms: 7 * 86_400_000,
            retention_bytes: 1_000_000_000,
            retention_every_ms: 60_000,
            // Half as many again as an asynchronous worker runs at once (`async_at_once`); 256 KiB.
            journal_entries: 16_384,
            // Another process that writes is nobody's right; a reader's recovery may hold the lock for a moment.
            locked_ms_max: 5_000,
            clock: Clock::new(),
        }
    }
}
