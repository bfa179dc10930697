//! The writer's statements for the outbox, prepared once per connection.

use rusqlite::{Connection, OptionalExtension, Result, Statement, params};

use super::{HookOutbox, OutboxReport};
use crate::message::summary_json;
use crate::request::{Options, Status};
use crate::store::fold::End;
use crate::store::options;

/// Rows that are kept; of more, the oldest go (`outbox_rows_max`). About 5 MB.
const ROWS_MAX: i64 = 10_000;

const ADD: &str = "INSERT INTO outbox(token, hook, event, at, request, name, attempt, detail) \
    VALUES(lower(hex(randomblob(16))), ?1, ?2, ?3, ?4, ?5, ?6, ?7)";
const ANSWERED: &str = "DELETE FROM outbox WHERE number = ?1 AND token = ?2";
const TRIED: &str =
    "UPDATE outbox SET tries = ?3, due_at = ?4, error = ?5 WHERE number = ?1 AND token = ?2";
const DROP: &str = "DELETE FROM outbox WHERE number IN (SELECT number FROM outbox ORDER BY number LIMIT \
    max(0, (SELECT count(*) FROM outbox) - ?1))";

/// What a transaction has done to the outbox.
#[derive(Clone, Copy, Debug, Default)]
pub struct OutboxWritten {
    /// Reports, the oldest first.
    pub reports: usize,
    pub added: u64,
    pub dropped: u64,
    pub expired: u64,
}

impl OutboxWritten {
    pub fn is_any(self) -> bool {
        self.reports > 0 || self.added > 0 || self.expired > 0
    }
}

/// The statements. They belong to the writer's connection.
pub struct OutboxRows<'c> {
    add: Statement<'c>,
    answered: Statement<'c>,
    tried: Statement<'c>,
    drop: Statement<'c>,
    of_request: Statement<'c>,
}

impl<'c> OutboxRows<'c> {
    pub fn prepare(connection: &'c Connection) -> Result<Self> {
        Ok(Self {
            add: connection.prepare(ADD)?,
            answered: connection.prepare(ANSWERED)?,
            tried: connection.prepare(TRIED)?,
            drop: connection.prepare(DROP)?,
            of_request: connection.prepare("SELECT name, options FROM requests WHERE id = ?1")?,
        })
    }

    /// Add a row for each hook that this end calls; how many.
    pub fn ended(&mut self, outbox: &HookOutbox, end: &End<'_>) -> Result<u64> {
        let ending = end.ending;
        if !outbox.is_wanted(ending.status) {
            return Ok(0);
        }
        let id = end.id.0.cast_signed();
        let found = self.of_request.query_row([id], |row| {
            let stored: Option<Vec<u8>> = row.get(1)?;
            Ok((row.get::<_, String>(0)?, is_sealed(stored.as_deref())))
        });
        let Some((name, sealed)) = found.optional()? else {
            return Ok(0);
        };
        let event = event(ending.status);
        let detail = summary_json(&ending.outcome, sealed);
        let mut added = 0;
        for hook in outbox.hooks(ending.status, &name) {
            let at = ending.at.cast_signed();
            let row = params![hook, event, at, id, name, ending.attempts, detail];
            self.add.execute(row)?;
            added += 1;
        }
        Ok(added)
    }

    /// Write the reports that wait, and drop rows above the limit.
    pub fn report(&mut self, outbox: &HookOutbox, added: u64) -> Result<OutboxWritten> {
        let reports = outbox.waiting();
        let mut written = OutboxWritten {
            reports: reports.len(),
            added,
            ..OutboxWritten::default()
        };
        for report in &reports {
            written.added += self.change(report)?;
        }
        if written.added > 0 {
            written.dropped = self.drop.execute([ROWS_MAX])? as u64;
        }
        Ok(written)
    }

    /// Apply one report; the rows that it has added.
    fn change(&mut self, report: &OutboxReport) -> Result<u64> {
        match report {
            OutboxReport::Added {
                hook,
                event,
                at,
                detail,
            } => {
                let none = rusqlite::types::Null;
                let row = params![hook, event, at.cast_signed(), none, none, none, detail];
                self.add.execute(row).map(|added| added as u64)
            }
            OutboxReport::Answered { number, token } => {
                self.answered.execute(params![number, token]).map(|_| 0)
            }
            OutboxReport::Tried {
                number,
                token,
                tries,
                due_at,
                error,
            } => {
                let due_at = due_at.map(u64::cast_signed);
                let row = params![number, token, tries, due_at, error];
                self.tried.execute(row).map(|_| 0)
            }
        }
    }
}

/// What a hook is told of a request that ended so.
fn event(status: Status) -> &'static str {
    if status == Status::Dead {
        "dead"
    } else {
        "failed"
    }
}

/// Whether a request has secret arguments; one whose options cannot be read may have some.
fn is_sealed(stored: Option<&[u8]>) -> bool {
    let mut options = Options::default();
    let read = stored.map_or(Ok(()), |stored| options::decode(stored, &mut options));
    read.is_err() || options.sealed
}
