//! Chooses the ended requests to remove.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};

use super::config::StoreConfig;
use super::directory::{LOGS, RESULTS};
use super::results::{self, folder_bytes};
use crate::id::RequestId;
use crate::items::ITEMS;
use crate::limit::STEP_MS;
use crate::request::{Millis, Status};

/// Requests removed by one commit: about a millisecond of the writer (`prune_step_max`).
const STEP_MAX: usize = 256;
/// What a row takes besides its blobs, approximately: the row, its arguments' row and its index entries.
const ROW_BYTES: u64 = 256;

/// How long ended requests of some names are kept, in milliseconds.
pub type RetentionAges = HashMap<Arc<str>, u64>;

/// Which ended requests to remove. An unset field does not restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PruneRule {
    /// Those that ended before this time.
    pub ended_before: Option<Millis>,
    /// Those with one of these statuses; empty: any.
    pub statuses: Vec<Status>,
    /// These requests and no others.
    pub ids: Option<Vec<RequestId>>,
    /// Count them without removing them.
    pub dry_run: bool,
}

/// What a prune removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    pub count: u64,
    /// Arguments, results, items and logs, and approximately what their rows took.
    pub bytes: u64,
}

/// A request that may be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub id: RequestId,
    pub bytes: u64,
    pub has_key: bool,
}

/// A rule that is being carried out, step by step.
#[derive(Debug)]
pub(super) struct Plan {
    rule: PruneRule,
    ids: VecDeque<RequestId>,
    /// Every id up to here was looked at.
    cursor: u64,
    /// One name after the other, if their ages differ.
    names: Option<Names>,
    /// Stop when database, results, items and logs take no more than this.
    kept_bytes_max: Option<u64>,
    /// Stop when this much is freed: `kept_bytes_max` relative to what was measured.
    goal_bytes: Option<u64>,
    /// Keep what a client has not read.
    pub spares_unread: bool,
    /// The ticket to answer, if a caller waits for it.
    pub ticket: Option<u64>,
    pub pruned: Pruned,
    finished: bool,
}

impl Plan {
    pub fn new(mut rule: PruneRule, ticket: u64) -> Self {
        let ids = rule.ids.take();
        let by_id = ids.is_some();
        let mut plan = Self::of(rule, Some(ticket));
        plan.ids = ids.unwrap_or_default().into();
        plan.finished = by_id && plan.ids.is_empty();
        plan
    }

    fn of(rule: PruneRule, ticket: Option<u64>) -> Self {
        Self {
            rule,
            ids: VecDeque::new(),
            cursor: 0,
            names: None,
            kept_bytes_max: None,
            goal_bytes: None,
            spares_unread: ticket.is_none(), // a person may want them removed
            ticket,
            pruned: Pruned::default(),
            finished: false,
        }
    }

    /// Requests that ended before `before`.
    pub fn by_age(before: Millis) -> Self {
        let rule = PruneRule {
            ended_before: Some(before),
            ..PruneRule::default()
        };
        Self::of(rule, None)
    }

    /// Requests that ended longer ago than requests of their name are kept.
    ///
    /// By name, of each the oldest first: what is kept for longer is not looked at.
    pub fn by_ages(now: Millis, usual_ms: u64, own: Arc<RetentionAges>) -> Self {
        let names = Names {
            now,
            usual_ms,
            own,
            last: String::new(),
            is_begun: false,
        };
        Self {
            names: Some(names),
            ..Self::of(PruneRule::default(), None)
        }
    }

    /// The oldest ended, until database, results, items and logs take no more than `bytes`.
    pub fn by_bytes(bytes: u64) -> Self {
        Self {
            kept_bytes_max: Some(bytes),
            ..Self::of(PruneRule::default(), None)
        }
    }

    /// The same, with unread results removed like any other.
    pub fn by_bytes_of_all(bytes: u64) -> Self {
        Self {
            spares_unread: false,
            ..Self::by_bytes(bytes)
        }
    }

    pub fn is_dry(&self) -> bool {
        self.rule.dry_run
    }

    /// The next requests to remove, except those that are spared; empty when the plan is done.
    pub fn step(
        &mut self,
        connection: &Connection,
        config: &StoreConfig,
        spared: impl Fn(RequestId) -> bool,
    ) -> rusqlite::Result<Vec<Candidate>> {
        let directory = &*config.directory;
        // Measured once: two walks over folders for each step would cost more than the removal.
        if let Some(limit) = self.kept_bytes_max.take() {
            self.goal_bytes = Some(kept_bytes(connection, directory)?.saturating_sub(limit));
        }
        let mut found = Vec::new();
        let goal = self.goal_bytes.unwrap_or(u64::MAX);
        while found.is_empty() && !self.finished && self.pruned.bytes < goal {
            found = if self.ids.is_empty() {
                self.walk(connection, config.clock.now())?
            } else {
                self.named(connection)?
            };
            let mut room = goal - self.pruned.bytes;
            found.retain_mut(|candidate| {
                if spared(candidate.id) {
                    return false;
                }
                candidate.bytes += ROW_BYTES + bytes_beside(directory, candidate.id);
                let wanted = room > 0;
                room = room.saturating_sub(candidate.bytes);
                wanted
            });
        }
        Ok(found)
    }

    /// The next of the ids that the rule names.
    fn named(&mut self, connection: &Connection) -> rusqlite::Result<Vec<Candidate>> {
        let mut found = Vec::new();
        let count = self.ids.len().min(STEP_MAX);
        for id in self.ids.drain(..count).collect::<Vec<_>>() {
            let range = (id.0.saturating_sub(1), id.0);
            found.extend(self.select(connection, range)?);
        }
        self.finished = self.ids.is_empty();
        Ok(found)
    }

    /// The next in the order of acceptance, which is about that of their ends, and needs no index.
    fn walk(&mut self, connection: &Connection, now: Millis) -> rusqlite::Result<Vec<Candidate>> {
        if let Some(names) = &mut self.names
            && !names.is_begun
        {
            let Some(before) = names.begin_next(connection)? else {
                self.finished = true;
                return Ok(Vec::new());
            };
            (self.rule.ended_before, self.cursor) = (Some(before), 0);
        }
        // A request that was accepted later has not ended earlier, unless the clock was once ahead of what it is now.
        let newest = connection.query_row("SELECT max(id) FROM requests", [], |row| {
            row.get::<_, Option<i64>>(0)
        })?;
        let in_order =
            newest.is_none_or(|id| id.cast_unsigned() <= RequestId::first_at(now + STEP_MS).0);
        let before = self.rule.ended_before.filter(|_| in_order);
        let last = before.map_or(i64::MAX.cast_unsigned(), |at| RequestId::first_at(at).0);
        let found = self.select(connection, (self.cursor, last))?;
        if found.len() < STEP_MAX {
            match &mut self.names {
                Some(names) => names.is_begun = false,
                None => self.finished = true,
            }
        }
        if let Some(candidate) = found.last() {
            self.cursor = candidate.id.0;
        }
        Ok(found)
    }

    fn select(
        &self,
        connection: &Connection,
        (behind, last): (u64, u64),
    ) -> rusqlite::Result<Vec<Candidate>> {
        let statuses = self.rule.statuses.iter();
        let mask = statuses.fold(0_u32, |mask, status| mask | 1 << *status as u32);
        let mask = if mask == 0 { u32::MAX } else { mask };
        let name = self.names.as_ref().map(|names| &*names.last);
        let (index, named) = match name {
            Some(_) => ("INDEXED BY names", "r.name = ?6"),
            None => ("", "?6 IS NULL"),
        };
        let mut statement = connection.prepare(&format!(
            "SELECT r.id, r.idempotency IS NOT NULL, coalesce(r.result_bytes, 0) + \
             coalesce(length(r.failure), 0) + coalesce(length(a.blob), 0) \
             FROM requests r {index} LEFT JOIN arguments a ON a.id = r.id \
             WHERE {named} AND r.id > ?1 AND r.id <= ?2 AND r.ended_at < ?3 AND (?4 >> r.status) & 1 \
             AND NOT EXISTS (SELECT 1 FROM children c WHERE c.id = r.id) \
             ORDER BY r.id LIMIT ?5"
        ))?;
        let before = self.rule.ended_before.map_or(i64::MAX, u64::cast_signed);
        let limits = params![
            behind.cast_signed(),
            last.cast_signed(),
            before,
            mask,
            STEP_MAX.cast_signed(),
            name
        ];
        let rows = statement.query_map(limits, |row| {
            Ok(Candidate {
                id: RequestId(row.get::<_, i64>(0)?.cast_unsigned()),
                has_key: row.get(1)?,
                bytes: row.get::<_, i64>(2)?.cast_unsigned(),
            })
        })?;
        rows.collect()
    }
}

/// The names in the database, one after the other, with the time before which their requests are too old.
#[derive(Debug)]
struct Names {
    now: Millis,
    usual_ms: u64,
    own: Arc<RetentionAges>,
    /// The one that was begun last; none has an empty name.
    last: String,
    is_begun: bool,
}

impl Names {
    /// Begin with the next name, and give its time; `None`: that was the last.
    fn begin_next(&mut self, connection: &Connection) -> rusqlite::Result<Option<Millis>> {
        let next = connection
            .query_row(
                "SELECT name FROM requests INDEXED BY names WHERE name > ?1 ORDER BY name LIMIT 1",
                [&self.last],
                |row| row.get(0),
            )
            .optional()?;
        let Some(next) = next else {
            return Ok(None);
        };
        (self.last, self.is_begun) = (next, true);
        let age = self.own.get(&*self.last).copied();
        Ok(Some(self.now.saturating_sub(age.unwrap_or(self.usual_ms))))
    }
}

/// The log and the items of a request.
fn bytes_beside(directory: &Path, id: RequestId) -> u64 {
    let files = [results::log(directory, id), results::items(directory, id)];
    let found = files.iter().filter_map(|path| std::fs::metadata(path).ok());
    found.map(|found| found.len()).sum()
}

/// What database, results, items and logs take. Freed pages that will be used again do not count.
fn kept_bytes(connection: &Connection, directory: &Path) -> rusqlite::Result<u64> {
    let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let pages = pragma("page_count")? - pragma("freelist_count")?;
    let database = (pages * pragma("page_size")?).cast_unsigned();
    let files = [RESULTS, LOGS, ITEMS].map(|folder| folder_bytes(&directory.join(folder)));
    Ok(database + files.iter().sum::<u64>())
}
