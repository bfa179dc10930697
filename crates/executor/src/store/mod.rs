//! The store of requests on disk.
//!
//! # Design note
//!
//! One thread writes, and it is the only writer of the database. It takes everything that was given to it during its
//! last commit and commits that as one transaction: no timer, one sync for hundreds of requests under load, and no
//! delay for a single one. A batch is on disk as a whole or not at all; its answer says how many changes that were, in
//! the order in which they were given.
//!
//! A second thread reads, on its own connection. Results of a gigabyte, the planning of removals and the removal of
//! files never delay a commit; what it deletes it hands to the writer in small portions.
//!
//! **One copy of `SQLite` in a process.** The locks of `SQLite` are POSIX locks, which belong to the process: a second
//! copy of the library that closes the same database drops the first one's locks, and its readers are invisible to the
//! first one's checkpoints. The extension may carry a copy of its own, so the server's Python reads through
//! [`DatabaseReader`], never through its `sqlite3`. Other processes may use any copy, read-only. Source: "How To
//! Corrupt An `SQLite` Database File", sections 2.2 and 2.2.1.
//!
//! **Arguments have their own table.** They are written once, so that the changes of a request rewrite rows of a
//! hundred bytes, and a listing does not walk over them.
//!
//! **A failed commit may still be on disk.** If the sync failed, the contents of the disk are unknown. The batch counts
//! as not committed, the connection is opened anew, and the next transaction first deletes what the batch had accepted.
//!
//! Why not a log of our own: the listing, pruning and recovery of requests need an index over them, and a power failure
//! in the middle of any of it is what `SQLite` is tested for.

mod backup;
mod boot;
mod config;
mod directory;
mod ending;
mod error;
mod fetch;
mod fold;
mod inbox;
mod interned;
mod job;
mod options;
mod outbox;
mod prune;
mod read_thread;
mod reader;
mod recovery;
mod reserve;
mod results;
mod row;
mod schema;
mod shrink;
mod statements;
mod timeline;
mod unread;
mod write_thread;

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use forebay_base::Queue;

pub use backup::{Contents, CopyLimits, DatabaseCopy, copy_database, sync_file_system};
pub use config::{StoreConfig, Synchronous};
pub use ending::{Payload, StoredEnding};
pub use error::{Result, StoreError};
pub use fetch::{Fetched, Question};
pub use outbox::{HookOutbox, HookRule, OutboxReport};
pub use prune::{PruneRule, Pruned, RetentionAges};
pub use reader::{DatabaseReader, Delivery, Filter, Listed, OutboxCount, Page, PastRun};
pub use recovery::{Keyed, Learnt, Recovery};
pub use row::Row;
pub use schema::VERSION;
pub use unread::Unread;

use crate::id::RequestId;
use crate::journal::Journal;
use crate::op::Op;
use crate::request::Ending;
use inbox::Inbox;
use job::{ReadJob, WriteJob};
use reserve::Reserve;

/// An answer of the store to its driver. Commits are answered in their order, fetches in theirs.
#[derive(Debug)]
pub enum Answer {
    /// The oldest unanswered changes, this many, are on disk.
    Committed(usize),
    /// The oldest unanswered changes, this many, are not on disk, none of them.
    NotCommitted {
        count: usize,
        /// For a person, with the next step.
        why: String,
        /// Another attempt does not help before a person has acted; what is written next is attempted all the same.
        permanent: bool,
    },
    /// The answer to a [`Store::file`]: its file is on disk, or is tried again with its end.
    Filed {
        id: RequestId,
        /// Why the file that its worker left is not what the worker announced: there will be no file.
        unfit: Option<String>,
    },
    /// The answer to a [`Store::fetch`].
    Fetched {
        ticket: u64,
        id: RequestId,
        found: Fetched,
    },
    /// The answer to a [`Store::prune`]; the error is for a person.
    Pruned {
        ticket: u64,
        done: std::result::Result<Pruned, String>,
    },
    /// These requests, which had an idempotency key, were removed: their keys are free.
    Forgotten(Vec<RequestId>),
}

/// A state directory that is open for writing, with its two threads.
///
/// Any thread may call; one drains [`Store::answers`]. Dropping it commits what was given, as [`Store::close`] does.
#[derive(Debug)]
pub struct Store {
    writes: Arc<Inbox<WriteJob>>,
    reads: Arc<Inbox<ReadJob>>,
    answers: Arc<Queue<Answer>>,
    journal: Arc<Journal>,
    unread: Arc<Unread>,
    config: Arc<StoreConfig>,
    threads: Vec<JoinHandle<()>>,
}

impl Store {
    /// Open the state directory, creating it if it is missing, and read what the last server left.
    ///
    /// Blocks on the disk. What the journal knows of runs whose claim was not committed is committed first.
    ///
    /// # Errors
    ///
    /// [`StoreError::InUse`] while another store has it, [`StoreError::Newer`] for a database of a later version,
    /// [`StoreError::Network`] on a network file system, [`StoreError::Damaged`] for a file that is broken,
    /// [`StoreError::Database`] and [`StoreError::File`] otherwise.
    pub fn open(config: StoreConfig) -> Result<(Self, Recovery)> {
        let database = config.directory.join(directory::DATABASE);
        Self::open_sound(config).map_err(|error| error.named_if_damaged(database))
    }

    fn open_sound(config: StoreConfig) -> Result<(Self, Recovery)> {
        directory::prepare(&config.directory)?;
        // Its lock keeps every other store out of the directory, so it precedes the database.
        let journal = Journal::open(&config.directory.join("journal"), config.journal_entries)?;
        let mut connection = schema::open(&config)?;
        let mut recovery = recovery::recover(&mut connection, &journal, &config);
        // What a killed server has left may be all that a full disk has room for.
        if recovery.as_ref().is_err_and(StoreError::is_full_disk)
            && Reserve::of(&config.directory).spend()
        {
            recovery = recovery::recover(&mut connection, &journal, &config);
        }
        let recovery = recovery?;

        let config = Arc::new(config);
        let journal = Arc::new(journal);
        let (writes, reads) = (Arc::new(Inbox::new()), Arc::new(Inbox::new()));
        let filed = Arc::new(results::Filed::default());
        // Not bounded: there are at most as many answers as changes and questions that the driver has given, and those
        // have their own limits (`queued_max`).
        let answers = Arc::new(Queue::new(usize::MAX)?);
        if let Some(outbox) = &config.outbox {
            let writes = Arc::clone(&writes);
            outbox.bind(move || writes.push(WriteJob::Outbox));
        }
        let writing = write_thread::WriteThread::new(
            Arc::clone(&config),
            Arc::clone(&journal),
            Arc::clone(&writes),
            Arc::clone(&reads),
            Arc::clone(&answers),
            Arc::clone(&filed),
        );
        let reading = read_thread::ReadThread::new(
            Arc::clone(&config),
            DatabaseReader::open(&config.directory)?,
            Arc::clone(&reads),
            Arc::clone(&writes),
            Arc::clone(&answers),
            filed,
            recovery.rebooted,
        );
        let unread = Arc::clone(reading.unread());
        let threads = vec![
            inbox::thread("forebay-store", move || writing.run(connection))?,
            inbox::thread("forebay-reader", move || reading.run())?,
        ];
        let store = Self {
            writes,
            reads,
            answers,
            journal,
            unread,
            config,
            threads,
        };
        Ok((store, recovery))
    }

    /// Give changes to the writer. Never blocks on the disk; each is answered once, in this order.
    pub fn write(&self, ops: Vec<Op>) {
        if !ops.is_empty() {
            self.writes.push(WriteJob::Ops(ops));
        }
    }

    /// Write a large result to its file before its end is given to [`Store::write`], so that no commit waits for it.
    ///
    /// Never blocks. For an end that is given without it the writer creates the file, before its commit.
    pub fn file(&self, id: RequestId, ending: Arc<Ending>) {
        self.reads.push(ReadJob::File { id, ending });
    }

    /// Remove what a run whose worker has died may have left for [`Store::file`]. Never blocks.
    pub fn discard(&self, id: RequestId, attempt: u32) {
        self.reads.push(ReadJob::Discard { id, attempt });
    }

    /// The path of a result that is a [`Payload::File`].
    pub fn result_path(&self, id: RequestId) -> PathBuf {
        results::path(&self.config.directory, id)
    }

    /// Read a request; the answer carries the ticket. Sees what was answered as committed before this call.
    pub fn fetch(&self, id: RequestId, question: Question, ticket: u64) {
        let fetch = ReadJob::Fetch {
            id,
            question,
            ticket,
        };
        self.reads.push(fetch);
    }

    /// Remove ended requests with their results and logs; the answer carries the ticket.
    pub fn prune(&self, rule: PruneRule, ticket: u64) {
        self.reads.push(ReadJob::Prune { rule, ticket });
    }

    /// Keep ended requests of these names for so many milliseconds, and those of all others as the settings say.
    ///
    /// Never blocks. In force at the next check of the retention, also for requests that have ended before.
    pub fn retain(&self, ages: RetentionAges) {
        self.reads.push(ReadJob::Retain(ages));
    }

    /// The queue of answers; its descriptor is readable while there are some.
    pub fn answers(&self) -> &Arc<Queue<Answer>> {
        &self.answers
    }

    /// The journal: `note` a run before its worker receives it; the writer clears the note after the claim's commit.
    pub fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    /// Results that a client still wants: the retention keeps them, unless they are far too many.
    pub fn unread(&self) -> &Unread {
        &self.unread
    }

    /// The settings that it was opened with.
    pub fn config(&self) -> &StoreConfig {
        &self.config
    }

    /// Commit what was given, write the WAL back into the database and end the threads. Blocks until then.
    pub fn close(self) {
        drop(self);
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.reads.close();
        self.writes.close();
        for thread in self.threads.drain(..) {
            // The panic hook has reported a panic, and the thread returns nothing.
            let _ = thread.join();
        }
        self.answers.close();
    }
}
