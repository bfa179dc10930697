//! The writer's statements, prepared once per connection.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::types::Null;
use rusqlite::{Connection, OptionalExtension, Result, Statement, params};

use super::fold::{Change, Claim, End};
use super::options;
use super::outbox::OutboxRows;
use crate::id::RequestId;
use crate::message::cause_json;
use crate::op::{Act, Op};
use crate::request::{Ending, Failure, Millis, Outcome, Request, Status};

/// Peaks kept of a name and code: enough for a 95th percentile (`peaks_max`).
pub(super) const PEAKS_MAX: u32 = 64;

const ACCEPT: &str = "INSERT INTO requests(id, name, code, submitter, lane, priority, status, attempts, deaths, \
    retried, accepted_at, claimed_at, wake_at, idempotency, options, result_kind) \
    VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 0, 0, ?9, ?10, ?11, ?12, ?13, 0)";
// A claim that failed may be written again after a later commit: what has ended stays ended.
const CLAIM: &str = "UPDATE requests SET status = 1, attempts = ?2, claimed_at = ?3, wake_at = NULL \
    WHERE id = ?1 AND ended_at IS NULL";
// Only the end of the run that the row is at counts, or of a request that waits after it.
const END: &str = "UPDATE requests SET attempts = ?3, status = ?5, deaths = ?6, \
    claimed_at = coalesce(?7, claimed_at), ended_at = ?8, wake_at = NULL, peak_bytes = ?9, result_kind = ?10, \
    result_bytes = ?11, failure = ?12, result = ?13 WHERE id = ?1 AND ";
/// Whether an end counts: of a request that has not ended (`?2` is the last run that its server claimed), and not that
/// of a run before an operator's retry (`?3`), unless no run has ended with it (`?4`).
const END_COUNTS: &str = "(ended_at IS NULL AND attempts <= ?2 AND (forgiven < ?3 OR ?4))";
// `claimed_at` stays that of the previous run, if there was one; the end of the next run sets it.
const UNCLAIM: &str = "UPDATE requests SET status = 0, attempts = ?2 - 1 WHERE id = ?1 AND attempts = ?2 AND ended_at IS NULL";
const PARK: &str = "UPDATE requests SET status = 0, attempts = ?2, deaths = ?3, wake_at = ?4 \
    WHERE id = ?1 AND ended_at IS NULL AND attempts <= ?2";
const RUN: &str = "INSERT OR REPLACE INTO runs(id, attempt, began_at, ended_at, failure) \
    SELECT id, ?2, claimed_at, ?3, ?4 FROM requests WHERE id = ?1";
const LAST_RUN: &str = "INSERT OR REPLACE INTO runs(id, attempt, began_at, ended_at, failure) \
    SELECT id, attempts, claimed_at, ended_at, failure FROM requests WHERE id = ?1 AND failure IS NOT NULL";
const RETRY: &str = "UPDATE requests SET status = 0, retried = retried + 1, deaths = 0, forgiven = attempts, \
    ended_at = NULL, wake_at = NULL, peak_bytes = NULL, result_kind = 0, result_bytes = NULL, failure = NULL, \
    result = NULL WHERE id = ?1";
const FREE_KEY: &str = "UPDATE requests SET idempotency = NULL WHERE idempotency = ?1";
const TRIM_PEAKS: &str = "DELETE FROM peaks WHERE name = ?1 AND code = ?2 AND rowid NOT IN \
    (SELECT rowid FROM peaks WHERE name = ?1 AND code = ?2 ORDER BY rowid DESC LIMIT ?3)";
/// The largest id outlives its request, so that no id is given twice.
pub(super) const KEEP_LAST: &str = "INSERT INTO facts(name, value) SELECT 'last', max(id) FROM requests WHERE true \
    ON CONFLICT(name) DO UPDATE SET value = max(value, excluded.value)";
const FIRED: &str = "INSERT INTO schedules(name, fired_at) VALUES(?1, ?2) \
    ON CONFLICT(name) DO UPDATE SET fired_at = excluded.fired_at";
const PAUSED: &str = "INSERT INTO schedules(name, fired_at, paused) VALUES(?1, 0, 1) \
    ON CONFLICT(name) DO UPDATE SET paused = 1";
const RESUMED: &str = "INSERT INTO schedules(name, fired_at, resumed_at) VALUES(?1, 0, ?2) \
    ON CONFLICT(name) DO UPDATE SET paused = 0, resumed_at = excluded.resumed_at";
const OPTIONS: &str = "SELECT options FROM requests WHERE id = ?1";
const SET_OPTIONS: &str = "UPDATE requests SET options = ?2 WHERE id = ?1";
const CHILD: &str =
    "INSERT OR REPLACE INTO children(id, parent, call, name, digest) VALUES(?1, ?2, ?3, ?4, ?5)";
const NOTE_BOOT: &str = "INSERT OR REPLACE INTO facts(name, value) VALUES('boot', ?1)";

/// The statements of a writer. They belong to its connection.
pub(super) struct Statements<'c> {
    pub begin: Statement<'c>,
    pub commit: Statement<'c>,
    accept: Statement<'c>,
    arguments: Statement<'c>,
    child: Statement<'c>,
    forget: Statement<'c>,
    claim: Statement<'c>,
    unclaim: Statement<'c>,
    end: Statement<'c>,
    park: Statement<'c>,
    run: Statement<'c>,
    last_run: Statement<'c>,
    retry: Statement<'c>,
    free_key: Statement<'c>,
    peak: Statement<'c>,
    trim_peaks: Statement<'c>,
    fired: Statement<'c>,
    paused: Statement<'c>,
    resumed: Statement<'c>,
    keep_last: Statement<'c>,
    note_boot: Statement<'c>,
    options: Statement<'c>,
    set_options: Statement<'c>,
    delete: [Statement<'c>; 4],
    delete_ended: Statement<'c>,
    pub outbox: OutboxRows<'c>,
    /// Peaks of each name and code since they were trimmed.
    peaks: HashMap<(Arc<str>, Arc<str>), u32>,
}

impl<'c> Statements<'c> {
    pub fn prepare(connection: &'c Connection) -> Result<Self> {
        let prepare = |sql| connection.prepare(sql);
        Ok(Self {
            begin: prepare("BEGIN IMMEDIATE")?,
            commit: prepare("COMMIT")?,
            accept: prepare(ACCEPT)?,
            arguments: prepare("INSERT INTO arguments(id, blob) VALUES(?1, ?2)")?,
            child: prepare(CHILD)?,
            forget: prepare("DELETE FROM children WHERE parent = ?1")?,
            claim: prepare(CLAIM)?,
            unclaim: prepare(UNCLAIM)?,
            end: prepare(&format!("{END}{END_COUNTS}"))?,
            park: prepare(PARK)?,
            run: prepare(RUN)?,
            last_run: prepare(LAST_RUN)?,
            retry: prepare(RETRY)?,
            free_key: prepare(FREE_KEY)?,
            peak: prepare("INSERT INTO peaks(name, code, bytes, at) VALUES(?1, ?2, ?3, ?4)")?,
            trim_peaks: prepare(TRIM_PEAKS)?,
            fired: prepare(FIRED)?,
            paused: prepare(PAUSED)?,
            resumed: prepare(RESUMED)?,
            keep_last: prepare(KEEP_LAST)?,
            note_boot: prepare(NOTE_BOOT)?,
            options: prepare(OPTIONS)?,
            set_options: prepare(SET_OPTIONS)?,
            delete: [
                prepare("DELETE FROM requests WHERE id = ?1")?,
                prepare("DELETE FROM arguments WHERE id = ?1")?,
                prepare("DELETE FROM runs WHERE id = ?1")?,
                prepare("DELETE FROM children WHERE id = ?1")?,
            ],
            delete_ended: prepare("DELETE FROM requests WHERE id = ?1 AND ended_at IS NOT NULL")?,
            outbox: OutboxRows::prepare(connection)?,
            peaks: HashMap::new(),
        })
    }

    /// Apply one change; whether it has ended a request. `in_file`: the result of this end is a file already.
    pub fn apply(&mut self, change: &Change<'_>, in_file: bool, now: Millis) -> Result<bool> {
        match change {
            Change::Accept(request, claim) => self.accept(request, claim.as_ref())?,
            Change::Claim(id, claim) => {
                let row = params![key(*id), claim.attempt, time(claim.at)];
                self.claim.execute(row)?;
            }
            Change::End(end, claim) => return self.end(end, claim.as_ref(), in_file),
            Change::Other(op) => self.other(op, now)?,
        }
        Ok(false)
    }

    fn accept(&mut self, request: &Request, claim: Option<&Claim>) -> Result<()> {
        let submission = &request.submission;
        let options = &submission.options;
        if let Some(idempotency) = &options.idempotency {
            // The machine refuses a second request with a key while it knows the first; one that it has forgotten loses
            // its key.
            self.free_key.execute([idempotency])?;
        }
        let status = claim.map_or(Status::Queued, |_| Status::Running);
        let row = params![
            key(request.id),
            submission.name,
            submission.code,
            submission.submitter,
            options.lane as u8,
            options.priority,
            status as u8,
            claim.map_or(0, |claim| claim.attempt),
            time(request.accepted_at),
            claim.map(|claim| time(claim.at)),
            options.not_before.map(time),
            options.idempotency,
            options::encode(options),
        ];
        self.accept.execute(row)?;
        if let (Some(parent), Some(child)) = (options.parent, options.child) {
            let digest = child.digest.cast_signed();
            let row = params![
                key(request.id),
                key(parent),
                child.call,
                submission.name,
                digest
            ];
            self.child.execute(row)?;
        }
        let arguments = &*submission.arguments;
        self.arguments
            .execute(params![key(request.id), arguments])
            .map(drop)
    }

    /// Whether the end counts.
    fn end(&mut self, end: &End<'_>, claim: Option<&Claim>, in_file: bool) -> Result<bool> {
        let ending = end.ending;
        let (kind, bytes, result) = match &ending.outcome {
            Outcome::Succeeded(result) => {
                let inside = (!in_file).then_some(&**result);
                (1, Some(result.len().cast_signed()), inside)
            }
            Outcome::InFile(bytes) => (1, isize::try_from(*bytes).ok(), None),
            Outcome::Failed(_) | Outcome::Cancelled => (2, None, None),
        };
        let failure = (kind == 2).then(|| cause_json(&ending.outcome));
        let row = params![
            key(end.id),
            end.claimed,
            ending.attempts,
            waited(&ending.outcome),
            ending.status as u8,
            end.deaths,
            claim.map(|claim| time(claim.at)),
            time(ending.at),
            ending.peak_bytes.map(u64::cast_signed),
            kind,
            bytes,
            failure,
            result,
        ];
        self.end.execute(row).map(|changed| changed > 0)
    }

    fn other(&mut self, op: &Op, now: Millis) -> Result<()> {
        match op {
            Op::Park {
                id,
                attempt,
                wake_at,
                failure,
                deaths,
            } => {
                let parked = params![key(*id), attempt, deaths, time(*wake_at)];
                if self.park.execute(parked)? == 0 {
                    return Ok(()); // as late as an end may be
                }
                let told = crate::message::failure_json(failure);
                self.run
                    .execute(params![key(*id), attempt, time(now), told])
                    .map(drop)
            }
            Op::Unclaim { id, attempt } => {
                self.unclaim.execute(params![key(*id), attempt]).map(drop)
            }
            Op::Retry { id, .. } => {
                // The row is about to lose its failure, which the history of its runs keeps.
                self.last_run.execute([key(*id)])?;
                self.retry.execute([key(*id)]).map(drop)
            }
            Op::Forget { parent } => self.forget.execute([key(*parent)]).map(drop),
            Op::Acted { id, act, by } => self.acted(*id, *act, by),
            Op::Peak { name, code, bytes } => self.peak(name, code, *bytes, now),
            Op::Fired { name, at } => self.fired.execute(params![name, time(*at)]).map(drop),
            Op::Paused { name } => self.paused.execute([name]).map(drop),
            Op::Resumed { name, at } => self.resumed.execute(params![name, time(*at)]).map(drop),
            // Those are changes of their own kinds.
            Op::Accept(_) | Op::Claim { .. } | Op::End { .. } => Ok(()),
        }
    }

    /// A request that is gone, and options that cannot be read, stay as they are.
    fn acted(&mut self, id: RequestId, act: Act, by: &str) -> Result<()> {
        let stored: Option<Option<Vec<u8>>> = self
            .options
            .query_row([key(id)], |row| row.get(0))
            .optional()?;
        let Some(stored) = stored else {
            return Ok(());
        };
        match options::with_text(stored.as_deref(), act.option(), by) {
            Ok(options) => self
                .set_options
                .execute(params![key(id), options])
                .map(drop),
            Err(_) => Ok(()),
        }
    }

    fn peak(&mut self, name: &Arc<str>, code: &Arc<str>, bytes: u64, now: Millis) -> Result<()> {
        self.peak
            .execute(params![name, code, bytes.cast_signed(), time(now)])?;
        let of = (Arc::clone(name), Arc::clone(code));
        let since = self.peaks.entry(of).or_default();
        *since += 1;
        // Trimming sorts the peaks, so it is done once for as many as are kept.
        if *since < PEAKS_MAX {
            return Ok(());
        }
        *since = 0;
        self.trim_peaks
            .execute(params![name, code, PEAKS_MAX])
            .map(drop)
    }

    /// Remove a request whose accepting commit failed, but may be on disk.
    pub fn withdraw(&mut self, id: RequestId) -> Result<()> {
        self.delete
            .iter_mut()
            .try_for_each(|table| table.execute([key(id)]).map(drop))
    }

    /// Remove an ended request. `false`: it is gone already, or was retried meanwhile.
    pub fn delete(&mut self, id: RequestId) -> Result<bool> {
        if self.delete_ended.execute([key(id)])? == 0 {
            return Ok(false);
        }
        for table in &mut self.delete[1..] {
            table.execute([key(id)])?;
        }
        Ok(true)
    }

    /// Before requests are removed: keep the largest id, which would disappear with its row.
    pub fn keep_last(&mut self) -> Result<()> {
        self.keep_last.execute([]).map(drop)
    }

    /// Note the boot under which everything is written from now on.
    pub fn note_boot(&mut self, boot: Option<&str>) -> Result<()> {
        match boot {
            Some(boot) => self.note_boot.execute([boot]).map(drop),
            None => self.note_boot.execute([Null]).map(drop),
        }
    }
}

/// Whether the end of a run would come too late: its request has ended, or is at a later run. One that is not on disk
/// yet is at none.
pub(super) fn is_late(connection: &Connection, id: RequestId, ending: &Ending) -> Result<bool> {
    let sql = format!("SELECT NOT {END_COUNTS} FROM requests WHERE id = ?1");
    let attempt = ending.attempts;
    let run = params![key(id), attempt, attempt, waited(&ending.outcome)];
    let late = connection
        .query_row(&sql, run, |row| row.get(0))
        .optional()?;
    Ok(late.unwrap_or(false))
}

/// Whether no run ended with this outcome, as far as it says.
fn waited(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Cancelled | Outcome::Failed(Failure::After(_))
    )
}

fn key(id: RequestId) -> i64 {
    id.0.cast_signed()
}

fn time(at: Millis) -> i64 {
    at.cast_signed()
}
