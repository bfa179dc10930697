//! The outbox of hooks: calls of others that are on disk until they are answered.
//!
//! # Design note
//!
//! The writer adds the row of a call in the transaction that commits the end which the call is about, so a killed server
//! leaves both or neither. Whoever makes the calls reports here what became of each, and the writer changes the rows
//! with its next commit. A report stays until its commit succeeded: on a full disk it waits, as ends do. At most
//! [`OUTBOX_REPORTS_MAX`] wait. Further ones are not taken, so whoever reports begins no call that would have no room
//! for its report: what a receiver has answered is never forgotten.
//!
//! Rules and reports have their own lock, which nobody holds while the disk is used.

mod expiry;
mod report;
mod rows;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use forebay_base::wakeup::Wakeup;

pub(super) use expiry::Expiry;
pub use report::OutboxReport;
pub(super) use rows::{OutboxRows, OutboxWritten};

use super::error::{Result, StoreError};
use crate::limit::OUTBOX_REPORTS_MAX;
use crate::request::Status;

/// Which ends a hook is called for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookRule {
    /// The name of the hook.
    pub hook: String,
    /// Call it for requests that were set aside.
    pub dead: bool,
    /// Call it for requests that failed.
    pub failed: bool,
    /// Only for requests of these names; empty: of all.
    pub names: Vec<String>,
}

/// Wakes the writer. Not its inbox: the settings of the store, which the writer's jobs know, hold the outbox.
struct WakeWriter(Box<dyn Fn() + Send + Sync>);

impl fmt::Debug for WakeWriter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("WakeWriter")
    }
}

impl HookRule {
    fn wants(&self, status: Status) -> bool {
        match status {
            Status::Dead => self.dead,
            Status::Failed => self.failed,
            _ => false,
        }
    }

    fn covers(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|one| one == name)
    }
}

/// The rules of the hooks, and the way of reports to the store's writer. Any thread may use it.
#[derive(Debug)]
pub struct HookOutbox {
    rules: Vec<HookRule>,
    changed: Wakeup,
    reports: Mutex<VecDeque<OutboxReport>>,
    writer: OnceLock<WakeWriter>,
    dropped: AtomicU64,
}

impl HookOutbox {
    /// An outbox for the store that is opened with it.
    ///
    /// # Errors
    /// [`StoreError::Start`]: no descriptor is left.
    pub fn new(rules: Vec<HookRule>) -> Result<Self> {
        let failed = |source| StoreError::Start(format!("an eventfd for hooks: {source}"));
        Ok(Self {
            rules,
            changed: Wakeup::new().map_err(failed)?,
            reports: Mutex::default(),
            writer: OnceLock::new(),
            dropped: AtomicU64::new(0),
        })
    }

    /// Have a report written. Never blocks on the disk.
    ///
    /// `false`: [`OUTBOX_REPORTS_MAX`] wait already, and it was not taken.
    #[must_use]
    pub fn report(&self, report: OutboxReport) -> bool {
        let mut reports = self.lock();
        if reports.len() >= OUTBOX_REPORTS_MAX {
            return false;
        }
        reports.push_back(report);
        drop(reports);
        self.write();
        true
    }

    /// Have the writer try what is not written.
    pub fn write(&self) {
        if let Some(writer) = self.writer.get() {
            (writer.0)();
        }
    }

    /// Readable after rows have changed, until [`Self::clear`].
    pub fn fileno(&self) -> RawFd {
        self.changed.fileno()
    }

    /// Sleep until rows have changed, or a deadline has passed; whether they have.
    ///
    /// # Errors
    /// `Interrupted` by a signal, and what poll(2) has besides.
    pub fn wait(&self, deadline: Option<Instant>) -> io::Result<bool> {
        self.changed.wait(deadline)
    }

    /// Make the descriptor unreadable: to be called before the rows are read.
    pub fn clear(&self) {
        self.changed.clear();
    }

    /// Make the descriptor readable, so that who waits for it looks.
    pub fn wake(&self) {
        self.changed.raise();
    }

    /// Rows that were dropped because there were too many (`outbox_rows_max`).
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Reports that are not on disk.
    pub fn reports(&self) -> usize {
        self.lock().len()
    }

    /// Reports that it takes before it is full. Each commit makes room, and wakes.
    pub fn room(&self) -> usize {
        OUTBOX_REPORTS_MAX - self.reports()
    }

    /// Bind it to the writer of its store, which `wake` has look for reports.
    pub(super) fn bind(&self, wake: impl Fn() + Send + Sync + 'static) {
        // A second store with the same outbox would get nothing; each server makes its own.
        drop(self.writer.set(WakeWriter(Box::new(wake))));
    }

    /// Whether the end of a request with this status calls anybody.
    pub(super) fn is_wanted(&self, status: Status) -> bool {
        self.rules.iter().any(|rule| rule.wants(status))
    }

    /// The hooks that the end of a request calls.
    pub(super) fn hooks(&self, status: Status, name: &str) -> impl Iterator<Item = &str> {
        let rules = self.rules.iter();
        let wanting = rules.filter(move |rule| rule.wants(status));
        wanting
            .filter(move |rule| rule.covers(name))
            .map(|rule| rule.hook.as_str())
    }

    /// The reports that wait, the oldest first.
    pub(super) fn waiting(&self) -> Vec<OutboxReport> {
        self.lock().iter().cloned().collect()
    }

    /// The oldest reports are on disk, and rows have changed.
    pub(super) fn committed(&self, written: OutboxWritten) {
        if !written.is_any() {
            return;
        }
        self.lock().drain(..written.reports);
        self.dropped.fetch_add(written.dropped, Ordering::Relaxed);
        self.changed.raise();
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<OutboxReport>> {
        // No code of a caller runs under the lock, so a panic cannot leave it inconsistent.
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
