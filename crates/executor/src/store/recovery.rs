//! Reads what the last server left.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

use super::boot::boot_id;
use super::config::StoreConfig;
use super::error::{Result, StoreError};
use super::interned::{COLUMNS, Interned};
use super::statements::PEAKS_MAX;
use super::timeline;
use crate::clock::Clock;
use crate::id::RequestId;
use crate::journal::Journal;
use crate::limit::FEED_STEP_MS;
use crate::op::{KnownChild, Restored};
use crate::request::{Blob, Millis};

/// A name, the code, and the peaks of its runs in bytes.
pub type Learnt = (Arc<str>, Arc<str>, Vec<u64>);

/// An idempotency key, the request that has it, and its name.
pub type Keyed = (Arc<str>, RequestId, Arc<str>);

/// What a new server needs to continue.
#[derive(Debug)]
pub struct Recovery {
    /// Every unfinished request, oldest first.
    pub restored: Vec<Restored>,
    /// Those whose arguments stayed on disk (`queue_bytes_max`): they are empty here and must be fetched for a run.
    pub on_disk: Vec<RequestId>,
    /// The newest peaks of each name and code, in bytes, oldest first.
    pub learnt: Vec<Learnt>,
    /// The last time of each schedule for which a request was submitted.
    pub fired: Vec<(Arc<str>, Millis)>,
    /// Schedules that are paused.
    pub paused: Vec<Arc<str>>,
    /// When each schedule was last resumed.
    pub resumed: Vec<(Arc<str>, Millis)>,
    /// Idempotency keys of ended requests that are kept, with their names; those of unfinished ones are in their
    /// options.
    pub known: Vec<Keyed>,
    /// The children of unfinished requests, ended ones included.
    pub children: Vec<KnownChild>,
    /// The largest id that was ever given.
    pub last: RequestId,
    /// The time behind which the numbers of this server's events begin. It is on disk.
    pub feed_begins: Millis,
    /// The machine was booted since the last server.
    pub rebooted: bool,
}

/// Read it, after committing what the journal knows.
pub(super) fn recover(
    connection: &mut Connection,
    journal: &Journal,
    config: &StoreConfig,
) -> Result<Recovery> {
    // First, so that everything below sees the runs that had begun.
    commit_journal(connection, journal)
        .map_err(StoreError::database("cannot commit what the journal knows"))?;
    let mut interned = Interned::default();
    let failed = StoreError::database;
    // Before any time is read.
    timeline::take_over(connection, &config.clock).map_err(failed("cannot set the times"))?;
    forget_old_peaks(connection, &config.clock).map_err(failed("cannot remove old peaks"))?;
    let last = last(connection).map_err(failed("cannot read the last id"))?;
    let mut recovery = Recovery {
        learnt: learnt(connection, &mut interned).map_err(failed("cannot read the peaks"))?,
        fired: times(connection, "fired_at").map_err(failed("cannot read the schedules"))?,
        paused: paused(connection).map_err(failed("cannot read the schedules"))?,
        resumed: times(connection, "resumed_at").map_err(failed("cannot read the schedules"))?,
        known: known(connection, &mut interned)
            .map_err(failed("cannot read the idempotency keys"))?,
        children: children(connection, &mut interned)
            .map_err(failed("cannot read the children of requests"))?,
        last,
        feed_begins: begin_feed(connection, config.clock.now(), last)
            .map_err(failed("cannot read where the last events began"))?,
        restored: Vec::new(),
        on_disk: Vec::new(),
        rebooted: is_rebooted(connection).map_err(failed("cannot read the boot"))?,
    };
    unfinished(
        connection,
        &mut interned,
        config.queue_bytes_max,
        &mut recovery,
    )
    .map_err(failed("cannot read the unfinished requests"))?;
    Ok(recovery)
}

/// Peaks of code that has not run for this long say nothing about what runs now (`peaks_age_max`): 90 days.
const PEAKS_AGE_MS: Millis = 90 * 86_400_000;

fn forget_old_peaks(connection: &Connection, clock: &Clock) -> rusqlite::Result<()> {
    let before = clock.now().saturating_sub(PEAKS_AGE_MS).cast_signed();
    let sql = "DELETE FROM peaks WHERE at < ?1";
    connection.execute(sql, [before]).map(drop)
}

/// Commit that the journal's runs have begun, then empty the journal.
///
/// A note without a row is of a request that was never acknowledged.
fn commit_journal(connection: &mut Connection, journal: &Journal) -> rusqlite::Result<()> {
    let notes = journal.notes();
    if !notes.is_empty() {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for note in &notes {
            transaction.execute(
                "UPDATE requests SET status = 1, attempts = ?2, wake_at = NULL \
                 WHERE id = ?1 AND ended_at IS NULL AND attempts < ?2",
                params![note.id.0.cast_signed(), note.attempt],
            )?;
        }
        transaction.commit()?;
    }
    // Incomplete notes too.
    journal.clear_all();
    Ok(())
}

fn is_rebooted(connection: &Connection) -> rusqlite::Result<bool> {
    let noted = "SELECT value FROM facts WHERE name = 'boot'";
    let boot: Option<Option<String>> = connection
        .query_row(noted, [], |row| row.get(0))
        .optional()?;
    Ok(boot.is_some_and(|boot| boot != boot_id()))
}

fn unfinished(
    connection: &Connection,
    interned: &mut Interned,
    queue_bytes_max: u64,
    recovery: &mut Recovery,
) -> rusqlite::Result<()> {
    let sql = format!(
        "SELECT {COLUMNS}, length(a.blob), a.blob, w.id IS NOT NULL FROM requests r \
         LEFT JOIN arguments a ON a.id = r.id LEFT JOIN waits w ON w.id = r.id AND w.wake_at = r.wake_at \
         WHERE r.ended_at IS NULL ORDER BY r.id"
    );
    let mut statement = connection.prepare(&sql)?;
    let mut rows = statement.query([])?;
    let mut room = queue_bytes_max;
    while let Some(row) = rows.next()? {
        let bytes: Option<i64> = row.get(15)?;
        let bytes = bytes.map_or(0, i64::cast_unsigned);
        // Oldest first, as they will run; a large one that does not fit leaves room for smaller ones.
        let arguments = if bytes <= room {
            room -= bytes;
            Blob::from(row.get_ref(16)?.as_blob_or_null()?.unwrap_or_default())
        } else {
            Vec::new().into()
        };
        let left = bytes > 0 && arguments.is_empty();
        let found = interned.row(row, arguments)?;
        if left {
            recovery.on_disk.push(found.request.id);
        }
        let mut restored = found.restored();
        // Also a request that an earlier server of this boot found waiting.
        restored.rebooted = recovery.rebooted || row.get(17)?;
        recovery.restored.push(restored);
    }
    Ok(())
}

fn learnt(connection: &Connection, interned: &mut Interned) -> rusqlite::Result<Vec<Learnt>> {
    let mut statement =
        connection.prepare("SELECT name, code, bytes FROM peaks ORDER BY name, code, rowid")?;
    let mut rows = statement.query([])?;
    let mut learnt: Vec<Learnt> = Vec::new();
    while let Some(row) = rows.next()? {
        let name = interned.text(row.get_ref(0)?.as_str()?);
        let code = interned.text(row.get_ref(1)?.as_str()?);
        let bytes = row.get::<_, i64>(2)?.cast_unsigned();
        match learnt.last_mut() {
            Some(of) if of.0 == name && of.1 == code => of.2.push(bytes),
            _ => learnt.push((name, code, vec![bytes])),
        }
    }
    for (_, _, peaks) in &mut learnt {
        // Between two trimmings there are more.
        peaks.drain(..peaks.len().saturating_sub(PEAKS_MAX as usize));
    }
    Ok(learnt)
}

/// A time of each schedule that has one.
fn times(connection: &Connection, column: &str) -> rusqlite::Result<Vec<(Arc<str>, Millis)>> {
    let sql = format!("SELECT name, {column} FROM schedules WHERE {column} > 0");
    let mut statement = connection.prepare(&sql)?;
    let rows = statement.query_map([], |row| {
        Ok((
            Arc::from(row.get_ref(0)?.as_str()?),
            row.get::<_, i64>(1)?.cast_unsigned(),
        ))
    })?;
    rows.collect()
}

fn paused(connection: &Connection) -> rusqlite::Result<Vec<Arc<str>>> {
    let mut statement = connection.prepare("SELECT name FROM schedules WHERE paused")?;
    let rows = statement.query_map([], |row| Ok(Arc::from(row.get_ref(0)?.as_str()?)))?;
    rows.collect()
}

fn known(connection: &Connection, interned: &mut Interned) -> rusqlite::Result<Vec<Keyed>> {
    let mut statement = connection.prepare(
        "SELECT idempotency, id, name FROM requests WHERE idempotency IS NOT NULL AND ended_at IS NOT NULL",
    )?;
    let rows = statement.query_map([], |row| {
        let id = RequestId(row.get::<_, i64>(1)?.cast_unsigned());
        let name = interned.text(row.get_ref(2)?.as_str()?);
        Ok((Arc::from(row.get_ref(0)?.as_str()?), id, name))
    })?;
    rows.collect()
}

/// The children of unfinished requests; those of others, which the last server has left, are forgotten.
fn children(connection: &Connection, interned: &mut Interned) -> rusqlite::Result<Vec<KnownChild>> {
    let left =
        "DELETE FROM children WHERE parent NOT IN (SELECT id FROM requests WHERE ended_at IS NULL)";
    connection.execute(left, [])?;
    let mut statement =
        connection.prepare("SELECT parent, call, id, name, digest FROM children")?;
    let rows = statement.query_map([], |row| {
        Ok(KnownChild {
            parent: RequestId(row.get::<_, i64>(0)?.cast_unsigned()),
            call: row.get(1)?,
            id: RequestId(row.get::<_, i64>(2)?.cast_unsigned()),
            name: interned.text(row.get_ref(3)?.as_str()?),
            digest: row.get::<_, i64>(4)?.cast_unsigned(),
        })
    })?;
    rows.collect()
}

/// Where the events of this server begin: behind those of every earlier one, also if the clock was set back since.
///
/// Noted before one is told. A disk that takes nothing does not keep a server from starting: without the note numbers
/// are given twice only if the clock is set back as well.
fn begin_feed(connection: &Connection, now: Millis, last: RequestId) -> rusqlite::Result<Millis> {
    let noted = "SELECT value FROM facts WHERE name = 'feed'";
    let noted: Option<i64> = connection
        .query_row(noted, [], |row| row.get(0))
        .optional()?;
    let behind = noted.map_or(0, |begun| begun.cast_unsigned() + FEED_STEP_MS);
    let begins = now.max(last.millis() + 1).max(behind);
    let note = "INSERT OR REPLACE INTO facts(name, value) VALUES('feed', ?1)";
    drop(connection.execute(note, [begins.cast_signed()]));
    Ok(begins)
}

fn last(connection: &Connection) -> rusqlite::Result<RequestId> {
    let largest: Option<i64> = connection.query_row(
        "SELECT max(id) FROM (SELECT max(id) AS id FROM requests UNION ALL \
         SELECT value FROM facts WHERE name = 'last')",
        [],
        |row| row.get(0),
    )?;
    Ok(RequestId(largest.map_or(0, i64::cast_unsigned)))
}
