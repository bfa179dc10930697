//! Reading rows of the database.

use std::collections::HashSet;
use std::sync::Arc;

use rusqlite::Row as SqlRow;
use rusqlite::types::Type;

use super::options;
use super::row::Row;
use crate::id::RequestId;
use crate::request::{Blob, Lane, Options, Request, Status, Submission};

/// The columns that [`Interned::row`] reads, in its order.
pub(super) const COLUMNS: &str = "r.id, r.name, r.code, r.submitter, r.lane, r.priority, r.status, r.attempts, \
    r.deaths, r.accepted_at, r.wake_at, r.idempotency, r.options, r.forgiven, \
    r.retried > 0";

/// Reads rows; texts that recur are kept once.
#[derive(Debug, Default)]
pub(super) struct Interned(HashSet<Arc<str>>);

impl Interned {
    pub fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.0.get(text) {
            return Arc::clone(known);
        }
        let fresh: Arc<str> = text.into();
        self.0.insert(Arc::clone(&fresh));
        fresh
    }

    /// The row without its end; the caller reads the arguments.
    pub fn row(&mut self, row: &SqlRow<'_>, arguments: Blob) -> rusqlite::Result<Row> {
        let mut options = Options {
            lane: lane(row.get(4)?)?,
            priority: row.get(5)?,
            idempotency: row.get_ref(11)?.as_str_or_null()?.map(Arc::from),
            ..Options::default()
        };
        if let Some(stored) = row.get_ref(12)?.as_blob_or_null()? {
            let decoded = options::decode(stored, &mut options);
            decoded.map_err(|error| broken(12, Type::Blob, error.to_string()))?;
        }
        let submission = Submission {
            name: self.text(row.get_ref(1)?.as_str()?),
            code: self.text(row.get_ref(2)?.as_str()?),
            submitter: self.text(row.get_ref(3)?.as_str()?),
            arguments,
            options: Arc::new(options),
        };
        Ok(Row {
            request: Request {
                id: RequestId(row.get::<_, i64>(0)?.cast_unsigned()),
                accepted_at: row.get::<_, i64>(9)?.cast_unsigned(),
                submission,
            },
            status: status(row.get(6)?)?,
            attempts: row.get(7)?,
            forgiven: row.get(13)?,
            retried: row.get(14)?,
            deaths: row.get(8)?,
            wake_at: row.get::<_, Option<i64>>(10)?.map(i64::cast_unsigned),
            ending: None,
        })
    }
}

pub(super) fn lane(number: i64) -> rusqlite::Result<Lane> {
    let known = Lane::ALL.into_iter().find(|lane| *lane as i64 == number);
    known.ok_or_else(|| broken(4, Type::Integer, format!("there is no lane {number}")))
}

pub(super) fn status(number: i64) -> rusqlite::Result<Status> {
    let known = Status::ALL
        .into_iter()
        .find(|status| *status as i64 == number);
    known.ok_or_else(|| broken(6, Type::Integer, format!("there is no status {number}")))
}

fn broken(column: usize, kind: Type, what: String) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, kind, what.into())
}
