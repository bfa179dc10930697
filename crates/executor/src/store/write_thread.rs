//! The writing thread: batches, their commits, their failures.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use forebay_base::Queue;
use forebay_base::file_id::FileId;
use rusqlite::{Connection, ErrorCode};

use super::Answer;
use super::boot::boot_id;
use super::config::StoreConfig;
use super::directory::DATABASE;
use super::error::StoreError;
use super::fold::{Change, fold};
use super::inbox::{Inbox, Seen};
use super::job::{ReadJob, WriteJob};
use super::outbox::{Expiry, OutboxWritten};
use super::reserve::Reserve;
use super::results::{self, Unfiled};
use super::schema;
use super::shrink;
use super::statements::{self, Statements};
use super::timeline::{self, Timeline};
use crate::id::RequestId;
use crate::journal::Journal;
use crate::op::Op;
use crate::request::{Millis, Outcome};

/// Changes of one commit, at most: a bound on how long the first of them waits for its answer (`batch_ops_max`).
const BATCH_OPS_MAX: usize = 8_192;
/// How long the writer is idle before it writes the WAL back into the database.
const IDLE: Duration = Duration::from_secs(2);

/// What is committed as one transaction.
#[derive(Debug, Default)]
struct Batch {
    ops: Vec<Op>,
    deletes: Vec<RequestId>,
    /// Calls of hooks from before this time go, if nobody will make them.
    calls_before: Option<Millis>,
}

impl Batch {
    fn submits(&self) -> bool {
        self.ops.iter().any(|op| matches!(op, Op::Accept(_)))
    }
}

/// What a transaction has done besides the changes of its batch.
struct Changed {
    /// The requests that it removed.
    deleted: Vec<RequestId>,
    /// The clock that it noted.
    noted: Option<Timeline>,
    outbox: OutboxWritten,
}

/// Why a commit failed.
#[derive(Debug)]
struct Failed {
    why: String,
    until: Until,
    /// The connection is unusable.
    broken: bool,
    /// The disk may have the batch all the same.
    doubtful: bool,
}

/// When another attempt may succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    /// Once there is room on the disk.
    Room,
    /// At the next attempt, or later.
    Later,
    /// After a person has acted.
    Mended,
}

impl Failed {
    /// A failure before anything of the batch was given to the database.
    fn before(why: String, until: Until) -> Self {
        Self {
            why,
            until,
            broken: false,
            doubtful: false,
        }
    }
}

/// The thread's state.
#[derive(Debug)]
pub(super) struct WriteThread {
    config: Arc<StoreConfig>,
    journal: Arc<Journal>,
    /// The identity of the database's file, to notice its removal. Not an open descriptor: closing any descriptor of
    /// the file drops the locks that `SQLite` has on it in this process.
    file: Option<FileId>,
    inbox: Arc<Inbox<WriteJob>>,
    reads: Arc<Inbox<ReadJob>>,
    answers: Arc<Queue<Answer>>,
    filed: Arc<results::Filed>,
    reserve: Reserve,
    /// Jobs from the inbox that do not fit into the current batch.
    taken: VecDeque<WriteJob>,
    batch: Batch,
    /// Requests of failed commits that may be on disk.
    doubtful: Vec<RequestId>,
    /// The clock and the boot as noted in the database.
    noted: Option<Timeline>,
    /// Something was committed since the WAL was last written back.
    logged: bool,
}

impl WriteThread {
    pub fn new(
        config: Arc<StoreConfig>,
        journal: Arc<Journal>,
        inbox: Arc<Inbox<WriteJob>>,
        reads: Arc<Inbox<ReadJob>>,
        answers: Arc<Queue<Answer>>,
        filed: Arc<results::Filed>,
    ) -> Self {
        let found = config.directory.join(DATABASE).metadata();
        let file = found.ok().as_ref().map(FileId::of);
        let reserve = Reserve::of(&config.directory);
        Self {
            config,
            journal,
            file,
            inbox,
            reads,
            answers,
            filed,
            reserve,
            taken: VecDeque::new(),
            batch: Batch::default(),
            doubtful: Vec::new(),
            noted: None,
            logged: false,
        }
    }

    /// Write until the inbox is closed and empty.
    pub fn run(mut self, connection: Connection) {
        let mut connection = Some(connection);
        while self.gather(None) != Seen::Closed {
            let open = match connection.take() {
                Some(open) => Ok(open),
                None => schema::open(&self.config),
            };
            match open {
                Ok(open) => {
                    if self.serve(&open) {
                        connection = Some(open);
                        break;
                    }
                }
                Err(error) => self.refuse(&Failed::from(error)),
            }
        }
        self.reserve.spend();
        if let Some(connection) = connection {
            checkpoint(&connection, "TRUNCATE");
        }
    }

    /// Commit the batch and those that follow. `false`: the connection is unusable.
    fn serve(&mut self, connection: &Connection) -> bool {
        let mut statements = match Statements::prepare(connection) {
            Ok(statements) => statements,
            Err(error) => {
                self.refuse(&Failed::from(error));
                return false;
            }
        };
        loop {
            if !self.commit_or_refuse(connection, &mut statements) {
                return false;
            }
            loop {
                // Without a WAL to write back the thread sleeps until there is work.
                match self.gather(self.logged.then_some(IDLE)) {
                    Seen::Messages => break,
                    Seen::Closed => return true,
                    Seen::Nothing => {
                        self.logged = shrink::step(connection).unwrap_or(false);
                        checkpoint(connection, "PASSIVE");
                    }
                }
            }
        }
    }

    /// Fill the batch with the waiting jobs; block until there is one.
    fn gather(&mut self, timeout: Option<Duration>) -> Seen {
        debug_assert!(self.batch.ops.is_empty() && self.batch.deletes.is_empty());
        if self.taken.is_empty() {
            let seen = self.inbox.take(&mut self.taken, timeout);
            if seen != Seen::Messages {
                return seen;
            }
        }
        while self.batch.ops.len() < BATCH_OPS_MAX {
            match self.taken.pop_front() {
                Some(WriteJob::Ops(mut ops)) if self.batch.ops.is_empty() => {
                    // Most batches are one message, whose vector is used as it is.
                    std::mem::swap(&mut self.batch.ops, &mut ops);
                }
                Some(WriteJob::Ops(ops)) => self.batch.ops.extend(ops),
                Some(WriteJob::Delete(ids)) => self.batch.deletes.extend(ids),
                // Its reports go with every batch.
                Some(WriteJob::Outbox) => {}
                Some(WriteJob::ExpireCalls(before)) => self.batch.calls_before = Some(before),
                None => break,
            }
        }
        Seen::Messages
    }

    /// Commit the batch, or answer that it is not on disk. `false`: the connection is unusable.
    fn commit_or_refuse(
        &mut self,
        connection: &Connection,
        statements: &mut Statements<'_>,
    ) -> bool {
        let submits = self.batch.submits();
        let Err(failed) = self.commit(connection, statements) else {
            return true;
        };
        self.refuse(&failed);
        if failed.broken {
            return false;
        }
        // The driver gives its ends once more, without submissions. The reports are here already: they may use the
        // reserve now, or what a hook was called for before a kill would be called again.
        let reported = self.config.outbox.as_ref();
        if submits && reported.is_some_and(|outbox| outbox.reports() > 0) {
            return self.commit_or_refuse(connection, statements);
        }
        true
    }

    fn commit(
        &mut self,
        connection: &Connection,
        statements: &mut Statements<'_>,
    ) -> Result<(), Failed> {
        self.look_at_file()?;
        // Only submissions need the reserve to exist: ends and prunes are what it is kept for.
        let submits = self.batch.submits();
        if submits {
            let held = self.reserve.hold();
            held.map_err(|error| without_reserve(&error))?;
        }
        // Before the rows, so that no committed row names a file that is not on disk.
        self.write_files(connection)?;
        let mut changed = self.transact(connection, statements);
        // What the reserve is kept for: on a full disk, accepted requests still end.
        if let Err(failed) = &changed
            && failed.until == Until::Room
            && !failed.broken
            && !submits
            && self.reserve.spend()
        {
            changed = self.transact(connection, statements);
        }
        let Changed {
            deleted,
            noted,
            outbox,
        } = changed?;
        // Only now: the note was part of the transaction.
        self.noted = noted.or(self.noted.take());
        self.batch.calls_before = None;
        if let Some(hooks) = &self.config.outbox {
            hooks.committed(outbox);
        }
        self.logged = true;
        // The transaction has deleted them.
        self.doubtful.clear();
        // The claims and ends are on disk, so their notes in the journal are redundant now.
        for op in &self.batch.ops {
            match op {
                Op::Claim { id, attempt, .. } | Op::Unclaim { id, attempt } => {
                    self.journal.clear(*id, *attempt);
                }
                Op::End { id, ending, .. } => {
                    self.journal.clear(*id, ending.attempts);
                    if self.is_in_file(&ending.outcome) {
                        self.filed.remove(*id);
                    }
                }
                _ => {}
            }
        }
        let count = self.batch.ops.len();
        self.batch.ops.clear();
        if count > 0 {
            self.answer(Answer::Committed(count));
        }
        if !self.batch.deletes.is_empty() {
            self.batch.deletes.clear();
            self.reads.push(ReadJob::Deleted(Ok(deleted)));
        }
        Ok(())
    }

    /// Check that the database's file still exists: `SQLite` would keep writing into a removed file, and all of it
    /// would be lost with this process.
    fn look_at_file(&self) -> Result<(), Failed> {
        let database = self.config.directory.join(DATABASE);
        let found = database.metadata().map(|found| FileId::of(&found));
        let (what, until) = match found {
            Ok(found) if Some(found) == self.file => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                (format!("cannot be looked at: {error}"), Until::Later)
            }
            _ => ("was removed while the server runs".into(), Until::Mended),
        };
        let database = database.display();
        let why =
            format!("the state directory's {database} {what}; stop the server and start it again");
        Err(Failed::before(why, until))
    }

    /// Commit the batch as one transaction.
    fn transact(
        &self,
        connection: &Connection,
        statements: &mut Statements<'_>,
    ) -> Result<Changed, Failed> {
        self.try_transact(connection, statements)
            .map_err(|mut failed| {
                // Some errors end the transaction; then there is nothing to roll back.
                if !connection.is_autocommit() && connection.execute_batch("ROLLBACK").is_err() {
                    failed.broken = true;
                }
                failed
            })
    }

    fn try_transact(
        &self,
        connection: &Connection,
        statements: &mut Statements<'_>,
    ) -> Result<Changed, Failed> {
        statements.begin.execute([])?;
        let noted = self.note_clock(connection, statements)?;
        let mut outbox = self.apply_ops(statements)?;
        if let Some(before) = self.batch.calls_before {
            let hooks = self.config.outbox.as_deref();
            outbox.expired = Expiry::new(hooks, before).remove(connection)?;
        }
        let deleted = self.apply_deletes(statements)?;
        let committed = statements.commit.execute([]);
        // Only a failed commit is doubtful: without a commit the disk has nothing of the batch.
        committed.map_err(|error| Failed {
            doubtful: true,
            ..Failed::from(error)
        })?;
        Ok(Changed {
            deleted,
            noted,
            outbox,
        })
    }

    /// Note this boot and this server's clock, unless the database has them.
    fn note_clock(
        &self,
        connection: &Connection,
        statements: &mut Statements<'_>,
    ) -> rusqlite::Result<Option<Timeline>> {
        let clock = &self.config.clock;
        let noted = self.noted.as_ref();
        if noted.is_some_and(|noted| noted.is_like(clock)) {
            return Ok(None);
        }
        statements.note_boot(boot_id().as_deref())?;
        timeline::note(connection, clock, noted.is_some()).map(Some)
    }

    /// Apply the changes, with the calls of hooks that their ends cause.
    fn apply_ops(&self, statements: &mut Statements<'_>) -> rusqlite::Result<OutboxWritten> {
        // First, since the batch may accept the same request again.
        for &id in &self.doubtful {
            statements.withdraw(id)?;
        }
        let now = self.config.clock.now();
        let mut changes = Vec::with_capacity(self.batch.ops.len());
        fold(&self.batch.ops, &mut changes);
        let hooks = self.config.outbox.as_deref();
        let mut calls = 0;
        for change in &changes {
            let in_file = match change {
                Change::End(end, _) => self.is_in_file(&end.ending.outcome),
                _ => false,
            };
            if statements.apply(change, in_file, now)?
                && let (Some(hooks), Change::End(end, _)) = (hooks, change)
            {
                calls += statements.outbox.ended(hooks, end)?;
            }
        }
        let written = hooks.map(|hooks| statements.outbox.report(hooks, calls));
        written.unwrap_or_else(|| Ok(OutboxWritten::default()))
    }

    fn apply_deletes(&self, statements: &mut Statements<'_>) -> rusqlite::Result<Vec<RequestId>> {
        if self.batch.deletes.is_empty() {
            return Ok(Vec::new());
        }
        // Before the deletes, one of which may remove the row with the largest id.
        statements.keep_last()?;
        let mut deleted = Vec::with_capacity(self.batch.deletes.len());
        for &id in &self.batch.deletes {
            if statements.delete(id)? {
                deleted.push(id);
            }
        }
        Ok(deleted)
    }

    /// Whether a result is stored as a file.
    fn is_in_file(&self, outcome: &Outcome) -> bool {
        match outcome {
            Outcome::Succeeded(result) => result.len() as u64 > self.config.result_bytes_max,
            Outcome::InFile(_) => true,
            Outcome::Failed(_) | Outcome::Cancelled => false,
        }
    }

    /// Write the large results of the batch to their files before its rows, unless that is done, or their ends are late:
    /// the file is that of a later run then.
    fn write_files(&self, connection: &Connection) -> Result<(), Failed> {
        let mut any = false;
        for op in &self.batch.ops {
            let Op::End { id, ending, .. } = op else {
                continue;
            };
            if !self.is_in_file(&ending.outcome) || self.filed.has(*id) {
                continue;
            }
            if statements::is_late(connection, *id, ending)? {
                continue;
            }
            match results::file(&self.config.directory, *id, ending) {
                Ok(()) => any = true,
                Err(Unfiled::Disk(error)) => return Err(error.into()),
                // It was fit when its worker left it, and the disk refused it then. No further attempt brings it back:
                // the end is kept, and a client that asks for the result learns that it is gone.
                Err(Unfiled::Unfit(_)) => {}
            }
        }
        if any {
            results::sync(&self.config.directory)?;
        }
        Ok(())
    }

    /// Answer that the batch is not on disk.
    fn refuse(&mut self, failed: &Failed) {
        // The machine refuses these submissions, so they must not be there after a restart.
        if failed.doubtful {
            let accepted = self.batch.ops.iter().filter_map(|op| match op {
                Op::Accept(request) => Some(request.id),
                _ => None,
            });
            self.doubtful.extend(accepted);
        }
        self.batch.calls_before = None; // the next check of the retention finds them again
        let count = self.batch.ops.len();
        self.batch.ops.clear();
        if count > 0 {
            self.answer(Answer::NotCommitted {
                count,
                why: failed.why.clone(),
                permanent: failed.until == Until::Mended,
            });
        }
        if !self.batch.deletes.is_empty() {
            self.batch.deletes.clear();
            let told = ReadJob::Deleted(Err(failed.why.clone()));
            self.reads.push(told);
        }
    }

    fn answer(&self, answer: Answer) {
        // The queue is unbounded, and closed only after this thread has ended.
        let pushed = self.answers.push(answer);
        debug_assert!(pushed.is_ok(), "an answer was lost");
    }
}

/// Write the WAL back into the database. The next commit notices a failure.
fn checkpoint(connection: &Connection, mode: &str) {
    let sql = format!("PRAGMA wal_checkpoint({mode})");
    let _ = connection.query_row(&sql, [], |_| Ok(()));
}

/// The failure of a submission that would take the last of the disk.
fn without_reserve(error: &io::Error) -> Failed {
    let why = format!(
        "the store cannot keep room for the ends of what was accepted: {error}; \
        free some of the disk of the state directory"
    );
    Failed::before(why, Until::Room)
}

impl From<rusqlite::Error> for Failed {
    fn from(error: rusqlite::Error) -> Self {
        let code = error.sqlite_error_code();
        let next = match code {
            Some(ErrorCode::DiskFull) => "free some of the disk of the state directory",
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => {
                "make the state directory writable for the server's user"
            }
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                "stop the server, and move requests.db away or restore it"
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                "end the program that writes to requests.db"
            }
            _ => "look at the disk and at the kernel's log",
        };
        let until = match code {
            Some(ErrorCode::DiskFull) => Until::Room,
            Some(
                ErrorCode::ReadOnly
                | ErrorCode::PermissionDenied
                | ErrorCode::CannotOpen
                | ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase,
            ) => Until::Mended,
            _ => Until::Later,
        };
        // After any other error the state of the connection is uncertain: it is opened anew.
        let goes_on = matches!(
            code,
            Some(ErrorCode::DiskFull | ErrorCode::ConstraintViolation | ErrorCode::DatabaseBusy)
        );
        Self {
            why: format!("the store cannot write: {error}; {next}"),
            until,
            broken: !goes_on,
            doubtful: false,
        }
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        let until = match error.kind() {
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => Until::Mended,
            _ => Until::Later,
        };
        let why = format!(
            "the store cannot write a result's file: {error}; free some of the disk, or make it writable"
        );
        Self::before(why, until)
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Database { source, .. } => Self::from(source),
            other => Self {
                why: other.to_string(),
                until: Until::Mended,
                broken: true,
                doubtful: false,
            },
        }
    }
}

#[cfg(test)]
mod tests;
