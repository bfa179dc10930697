//! The settings that a store is opened with.

use std::path::PathBuf;
use std::sync::Arc;

use super::outbox::HookOutbox;
use crate::clock::Clock;
use crate::id::RequestId;

/// What a commit survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Synchronous {
    /// The loss of power: each commit waits for the disk.
    #[default]
    Full,
    /// The death of the server, not the loss of power: the disk is synced now and then.
    Normal,
}

impl Synchronous {
    /// Its name in `SQLite`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Full => "FULL",
            Self::Normal => "NORMAL",
        }
    }
}

/// The settings of a store.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// The state directory: `requests.db`, `journal`, `results/`, `logs/`.
    pub directory: PathBuf,
    pub synchronous: Synchronous,
    /// Larger results become files.
    pub result_bytes_max: u64,
    /// Bytes of arguments of unfinished requests that are read at the open; further ones stay on disk.
    pub queue_bytes_max: u64,
    /// Ended requests are removed after this, where their name has no age of its own.
    pub retention_age_ms: u64,
    /// Nothing is removed for its age before [`super::Store::retain`] has said which names have one.
    pub awaits_ages: bool,
    /// The oldest ended requests are removed while database, results and logs take more.
    pub retention_bytes: u64,
    /// Time between two checks of the retention.
    pub retention_every_ms: u64,
    /// Runs that the journal can hold at once.
    pub journal_entries: usize,
    /// How long a commit waits while another process has the database locked.
    pub locked_ms_max: u64,
    /// The clock of all stored times, the same as the driver's.
    pub clock: Clock,
    /// Runs that began under the last server and go on: what their workers write stays.
    pub running: Vec<(RequestId, u32)>,
    /// Where calls of hooks wait; `None`: there are no hooks.
    pub outbox: Option<Arc<HookOutbox>>,
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
            awaits_ages: false,
            retention_bytes: 1_000_000_000,
            retention_every_ms: 60_000,
            // Half as many again as an asynchronous worker runs at once (`async_at_once`); 256 KiB.
            journal_entries: 16_384,
            // No other process should write; a reader's recovery may hold the lock for a moment.
            locked_ms_max: 5_000,
            clock: Clock::new(),
            running: Vec::new(),
            outbox: None,
        }
    }
}
