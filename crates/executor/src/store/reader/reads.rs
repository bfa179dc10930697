//! Typed reads for an observer: one request, its runs, a page of a listing.
//!
//! # Design note
//!
//! **Each read is bounded.** What belongs to one request is found by its id; of its runs the caller says how many it
//! takes. A page is assembled from *sources*, each a walk down an index, the newest first: the unfinished requests, those
//! that run, those of one unsuccessful status, those of one name, or all of them. What no source restricts (submitter, lane, parent,
//! times) is compared row by row, and a page ends after [`LOOKED_MAX`] rows with a cursor, however few of them fitted: a filter
//! that fits one row in a million costs its caller many pages and nobody else a long read.
//!
//! **Times are found by bisection.** Requests are in the order of their acceptance, and their times are too, but for
//! corrections of the clock between two servers. So the walk begins and ends at the ids that bisection over the times
//! gives, [`CORRECTED_MS`] farther out, and each row's time is compared as well. A clock that was wrong by more than
//! that, as one without a battery after a loss of power, may hide requests of before from a listing by time.
//!
//! **Children are younger than their parent**, so a walk for those of one ends at it. No column has the parent, which few
//! requests have: it is read out of the options of the rows that all else lets through.
//!
//! A page compares small columns, which lie before the failure and the result of a row, and reads whole rows only of
//! what fits. `INDEXED BY` makes a source that lost its index an error instead of a walk over everything.

use std::ops::RangeInclusive;

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, Rows, Statement, params, params_from_iter};

use super::DatabaseReader;
use crate::id::RequestId;
use crate::request::{Lane, Millis, Status};
use crate::store::error::Result;
use crate::store::interned::{lane, status};
use crate::store::options;

/// Rows that are compared for one page: some 10 ms. A constant of the reads, which no other module needs
/// (`rows_looked_max`).
const LOOKED_MAX: usize = 10_000;
/// How far times of acceptance may be out of order: a day, more than zones and drift explain.
const CORRECTED_MS: Millis = 86_400_000;

const COLUMNS: &str = "id, name, code, submitter, lane, priority, status, attempts, deaths, retried, accepted_at, \
    claimed_at, ended_at, wake_at, peak_bytes, result_bytes, failure";
/// What a page compares.
const COMPARED: &str = "id, status, lane, accepted_at, name, submitter, options";

/// A request as listings show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub id: RequestId,
    pub name: String,
    pub code: String,
    pub submitter: String,
    pub lane: Lane,
    pub priority: i32,
    pub status: Status,
    pub attempts: u32,
    pub deaths: u32,
    /// Times that an operator wanted it again.
    pub retried: u32,
    pub accepted_at: Millis,
    pub claimed_at: Option<Millis>,
    pub ended_at: Option<Millis>,
    pub wake_at: Option<Millis>,
    pub peak_bytes: Option<u64>,
    pub result_bytes: Option<u64>,
    /// JSON.
    pub failure: Option<String>,
}

/// A run that did not end its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastRun {
    pub attempt: u32,
    pub began_at: Option<Millis>,
    pub ended_at: Millis,
    /// JSON.
    pub failure: String,
}

/// Which requests a page shows; what is unset restricts nothing.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Any of these; empty: all.
    pub statuses: Vec<Status>,
    pub name: Option<String>,
    pub submitter: Option<String>,
    pub lane: Option<Lane>,
    /// Accepted at this time or later.
    pub since: Option<Millis>,
    /// Accepted before this time.
    pub until: Option<Millis>,
    /// Submitted by this request.
    pub parent: Option<RequestId>,
}

/// A part of a listing, the newest first.
#[derive(Clone, Debug, Default)]
pub struct Page {
    pub requests: Vec<Listed>,
    /// The cursor of the next page; `None`: this is the last one. With it a page may have fewer requests than were asked
    /// for, even none.
    pub next: Option<RequestId>,
}

impl DatabaseReader {
    /// One request.
    ///
    /// # Errors
    ///
    /// [`crate::store::StoreError::Database`], as of every read.
    pub fn request(&self, id: RequestId) -> Result<Option<Listed>> {
        self.read(|connection| whole(&mut prepare_whole(connection)?, id))
    }

    /// The status of a request.
    ///
    /// # Errors
    ///
    /// As of [`Self::request`].
    pub fn status(&self, id: RequestId) -> Result<Option<Status>> {
        self.read(|connection| {
            let mut found = connection.prepare("SELECT status FROM requests WHERE id = ?1")?;
            let number = found.query_row([key(id)], |row| row.get(0)).optional()?;
            number.map(status).transpose()
        })
    }

    /// The newest request.
    ///
    /// # Errors
    ///
    /// As of [`Self::request`].
    pub fn newest(&self) -> Result<Option<RequestId>> {
        self.read(|connection| {
            let mut newest = connection.prepare("SELECT max(id) FROM requests")?;
            let newest: Option<i64> = newest.query_row([], |row| row.get(0))?;
            Ok(newest.map(number))
        })
    }

    /// The newest requests whose ids are in a range, at most this many.
    ///
    /// # Errors
    ///
    /// As of [`Self::request`].
    pub fn among(&self, ids: &RangeInclusive<RequestId>, most: usize) -> Result<Vec<RequestId>> {
        self.read(|connection| {
            let mut found = connection.prepare(
                "SELECT id FROM requests WHERE id BETWEEN ?1 AND ?2 ORDER BY id DESC LIMIT ?3",
            )?;
            let range = params![key(*ids.start()), key(*ids.end()), most.cast_signed()];
            let found = found.query_map(range, |row| row.get(0).map(number))?;
            found.collect()
        })
    }

    /// The requests behind a cursor that a filter lets through, at most this many.
    ///
    /// # Errors
    ///
    /// As of [`Self::request`].
    pub fn page(&self, filter: &Filter, cursor: Option<RequestId>, most: usize) -> Result<Page> {
        self.read(|connection| {
            // One picture for all of it: a row that was compared is there when it is read.
            let picture = connection.unchecked_transaction()?;
            let page = page(&picture, filter, cursor, most)?;
            picture.finish()?;
            Ok(page)
        })
    }

    /// Runs that did not end a request, the oldest first; of more than `most`, the newest.
    ///
    /// # Errors
    ///
    /// As of [`Self::request`].
    pub fn runs(&self, id: RequestId, most: usize) -> Result<Vec<PastRun>> {
        self.read(|connection| {
            let mut found = connection.prepare(
                "SELECT attempt, began_at, ended_at, failure FROM runs WHERE id = ?1 \
                 ORDER BY attempt DESC LIMIT ?2",
            )?;
            let found = found.query_map(params![key(id), most.cast_signed()], past_run)?;
            let mut runs: Vec<_> = found.collect::<rusqlite::Result<_>>()?;
            runs.reverse();
            Ok(runs)
        })
    }

    /// The arguments of a request, as they were submitted.
    ///
    /// # Errors
    ///
    /// As of [`Self::request`].
    pub fn arguments(&self, id: RequestId) -> Result<Option<Vec<u8>>> {
        self.read(|connection| {
            let mut found = connection.prepare("SELECT blob FROM arguments WHERE id = ?1")?;
            found.query_row([key(id)], |row| row.get(0)).optional()
        })
    }

    /// What of a request's options differs from the defaults: a msgpack map, `None` if nothing does.
    ///
    /// # Errors
    ///
    /// As of [`Self::request`].
    pub fn options(&self, id: RequestId) -> Result<Option<Vec<u8>>> {
        self.read(|connection| {
            let mut found = connection.prepare("SELECT options FROM requests WHERE id = ?1")?;
            let found: Option<Option<_>> =
                found.query_row([key(id)], |row| row.get(0)).optional()?;
            Ok(found.flatten())
        })
    }
}

fn prepare_whole(connection: &Connection) -> rusqlite::Result<Statement<'_>> {
    connection.prepare(&format!("SELECT {COLUMNS} FROM requests WHERE id = ?1"))
}

fn whole(statement: &mut Statement<'_>, id: RequestId) -> rusqlite::Result<Option<Listed>> {
    statement.query_row([key(id)], listed).optional()
}

fn listed(row: &Row<'_>) -> rusqlite::Result<Listed> {
    let count = |column| {
        row.get::<_, Option<i64>>(column)
            .map(|found| found.map(i64::cast_unsigned))
    };
    Ok(Listed {
        id: row.get(0).map(number)?,
        name: row.get(1)?,
        code: row.get(2)?,
        submitter: row.get(3)?,
        lane: lane(row.get(4)?)?,
        priority: row.get(5)?,
        status: status(row.get(6)?)?,
        attempts: row.get(7)?,
        deaths: row.get(8)?,
        retried: row.get(9)?,
        accepted_at: row.get::<_, i64>(10)?.cast_unsigned(),
        claimed_at: count(11)?,
        ended_at: count(12)?,
        wake_at: count(13)?,
        peak_bytes: count(14)?,
        result_bytes: count(15)?,
        failure: row.get(16)?,
    })
}

fn past_run(row: &Row<'_>) -> rusqlite::Result<PastRun> {
    Ok(PastRun {
        attempt: row.get(0)?,
        began_at: row.get::<_, Option<i64>>(1)?.map(i64::cast_unsigned),
        ended_at: row.get::<_, i64>(2)?.cast_unsigned(),
        failure: row.get(3)?,
    })
}

fn page(
    connection: &Connection,
    filter: &Filter,
    cursor: Option<RequestId>,
    most: usize,
) -> rusqlite::Result<Page> {
    let (first, end) = bounds(connection, filter, cursor)?;
    let sources = sources(filter);
    let prepare = |source: &Source<'_>| connection.prepare(&source.sql);
    let mut statements: Vec<_> = sources
        .iter()
        .map(prepare)
        .collect::<rusqlite::Result<_>>()?;
    let opened = statements.iter_mut().zip(&sources);
    let opened =
        opened.map(|(statement, source)| Walk::begin(statement, source, first, end, filter));
    let mut walks: Vec<_> = opened.collect::<rusqlite::Result<_>>()?;
    let mut request = prepare_whole(connection)?;
    let mut page = Page::default();
    for looked in 1.. {
        let Some(seen) = newest(&mut walks, filter)? else {
            break;
        };
        if seen.fits && page.requests.len() == most {
            page.next = page.requests.last().map(|last| last.id);
            break;
        }
        if seen.fits {
            page.requests.extend(whole(&mut request, seen.id)?);
        }
        if looked == LOOKED_MAX {
            page.next = Some(seen.id);
            break;
        }
    }
    Ok(page)
}

/// The ids that a page may show: from the first on, before the second.
fn bounds(
    connection: &Connection,
    filter: &Filter,
    cursor: Option<RequestId>,
) -> rusqlite::Result<(i64, i64)> {
    let since = filter.since.map(|since| since.saturating_sub(CORRECTED_MS));
    let until = filter.until.map(|until| until.saturating_add(CORRECTED_MS));
    let first = since.map_or(Ok(0), |since| first_since(connection, since))?;
    let first = filter
        .parent
        .map_or(first, |parent| first.max(key(parent).saturating_add(1)));
    let end = until.map_or(Ok(i64::MAX), |until| first_since(connection, until))?;
    Ok((first, cursor.map_or(end, |cursor| end.min(key(cursor)))))
}

/// The first id from which on requests were accepted at a time or later, by some 60 looks at a row.
fn first_since(connection: &Connection, at: Millis) -> rusqlite::Result<i64> {
    let mut before = connection
        .prepare("SELECT id, accepted_at FROM requests WHERE id <= ?1 ORDER BY id DESC LIMIT 1")?;
    let (mut low, mut high) = (0, i64::MAX);
    while low < high {
        let middle = low + (high - low) / 2;
        let found = before.query_row([middle], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?)));
        match found.optional()? {
            Some((id, accepted_at)) if accepted_at.cast_unsigned() >= at => high = id,
            _ => low = middle + 1,
        }
    }
    Ok(low)
}

/// One walk down an index: `?1` is the first id, `?2` the one behind the last.
#[derive(Debug)]
struct Source<'a> {
    sql: String,
    /// `?3`.
    name: Option<&'a str>,
}

impl<'a> Source<'a> {
    fn new(index: &str, restriction: &str, name: Option<&'a str>) -> Self {
        let sql = format!(
            "SELECT {COMPARED} FROM requests {index} WHERE {restriction}id >= ?1 AND id < ?2 ORDER BY id DESC"
        );
        Self { sql, name }
    }
}

/// The walks that together pass every request that a filter may let through, each once.
fn sources(filter: &Filter) -> Vec<Source<'_>> {
    let statuses = &filter.statuses;
    if !statuses.is_empty() && !statuses.contains(&Status::Succeeded) {
        let unfinished = match [Status::Queued, Status::Running].map(|one| statuses.contains(&one))
        {
            [true, _] => Some(("INDEXED BY unfinished", "ended_at IS NULL AND ")),
            [false, true] => Some(("INDEXED BY running", "status = 1 AND ")),
            [false, false] => None,
        };
        let unfinished = unfinished.map(|(index, walked)| Source::new(index, walked, None));
        let unsuccessful = [Status::Failed, Status::Cancelled, Status::Dead];
        let unsuccessful = unsuccessful
            .into_iter()
            .filter(|one| statuses.contains(one));
        let unsuccessful = unsuccessful.map(|one| {
            // As numbers: with a parameter it is not seen that the index has them.
            let restriction = format!("status = {} AND status > 2 AND ", one as u8);
            Source::new("INDEXED BY unsuccessful", &restriction, None)
        });
        return unfinished.into_iter().chain(unsuccessful).collect();
    }
    vec![match &filter.name {
        Some(name) => Source::new("INDEXED BY names", "name = ?3 AND ", Some(name)),
        None => Source::new("", "", None),
    }]
}

/// A request that a walk has come to.
#[derive(Clone, Copy, Debug)]
struct Seen {
    id: RequestId,
    fits: bool,
}

/// A source that is being walked, with the request that it has come to.
struct Walk<'s> {
    rows: Rows<'s>,
    head: Option<Seen>,
}

impl<'s> Walk<'s> {
    fn begin(
        statement: &'s mut Statement<'_>,
        source: &Source<'_>,
        first: i64,
        end: i64,
        filter: &Filter,
    ) -> rusqlite::Result<Self> {
        let range = [Value::Integer(first), Value::Integer(end)];
        let name = source.name.map(|name| Value::Text(name.into()));
        let rows = statement.query(params_from_iter(range.into_iter().chain(name)))?;
        let mut walk = Self { rows, head: None };
        walk.step(filter)?;
        Ok(walk)
    }

    /// Give the request that it has come to, and go on to the next.
    fn step(&mut self, filter: &Filter) -> rusqlite::Result<Option<Seen>> {
        let next = self.rows.next()?.map(|row| {
            let id = row.get(0).map(number)?;
            fits(row, filter).map(|fits| Seen { id, fits })
        });
        Ok(std::mem::replace(&mut self.head, next.transpose()?))
    }
}

/// The newest request that the walks have come to, which goes on.
fn newest(walks: &mut [Walk<'_>], filter: &Filter) -> rusqlite::Result<Option<Seen>> {
    let ahead = walks
        .iter_mut()
        .max_by_key(|walk| walk.head.map(|head| head.id));
    ahead.map_or(Ok(None), |walk| walk.step(filter))
}

/// Whether a filter lets a row of [`COMPARED`] through.
fn fits(row: &Row<'_>, filter: &Filter) -> rusqlite::Result<bool> {
    let status = status(row.get(1)?)?;
    let lane = lane(row.get(2)?)?;
    let accepted_at = row.get::<_, i64>(3)?.cast_unsigned();
    let (name, submitter) = (row.get_ref(4)?.as_str()?, row.get_ref(5)?.as_str()?);
    let is =
        |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|one| one == found);
    Ok(
        (filter.statuses.is_empty() || filter.statuses.contains(&status))
            && is(&filter.name, name)
            && is(&filter.submitter, submitter)
            && filter.lane.is_none_or(|wanted| wanted == lane)
            && filter.since.is_none_or(|since| accepted_at >= since)
            && filter.until.is_none_or(|until| accepted_at < until)
            && (filter.parent.is_none()
                || filter.parent == options::parent(row.get_ref(6)?.as_blob_or_null()?)),
    )
}

fn key(id: RequestId) -> i64 {
    id.0.cast_signed()
}

fn number(key: i64) -> RequestId {
    RequestId(key.cast_unsigned())
}
