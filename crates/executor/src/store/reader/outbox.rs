//! Reads of the outbox: calls of hooks that wait or were given up.

use rusqlite::{Row, params};

use super::DatabaseReader;
use crate::id::RequestId;
use crate::request::Millis;
use crate::store::error::Result;

/// A call of a hook that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    pub number: i64,
    /// The same for all tries.
    pub token: String,
    pub event: String,
    pub at: Millis,
    pub request: Option<RequestId>,
    pub name: Option<String>,
    pub attempt: Option<u32>,
    /// JSON: the failure, or the limit.
    pub detail: String,
    pub tries: u32,
    /// 0: at once.
    pub due_at: Millis,
}

/// How many calls of a hook there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxCount {
    pub hook: String,
    pub waiting: u64,
    pub given_up: u64,
    /// Of the newest call that has failed.
    pub error: Option<String>,
}

impl DatabaseReader {
    /// The calls of a hook that wait, the one that is due first at the front.
    ///
    /// # Errors
    ///
    /// [`crate::store::StoreError::Database`], as of every read.
    pub fn deliveries(&self, hook: &str, count_max: usize) -> Result<Vec<Delivery>> {
        self.read(|connection| {
            let mut statement = connection.prepare(
                "SELECT number, token, event, at, request, name, attempt, detail, tries, due_at \
                 FROM outbox INDEXED BY outbox_due WHERE hook = ?1 AND due_at IS NOT NULL \
                 ORDER BY due_at, number LIMIT ?2",
            )?;
            let count_max = i64::try_from(count_max).unwrap_or(i64::MAX);
            let rows = statement.query_map(params![hook, count_max], delivery)?;
            rows.collect()
        })
    }

    /// How many calls of these hooks wait: read from the index alone, so that it may be asked for often.
    ///
    /// # Errors
    ///
    /// As of [`Self::deliveries`].
    pub fn waiting<S: AsRef<str>>(&self, hooks: &[S]) -> Result<u64> {
        self.read(|connection| {
            let mut statement = connection.prepare(
                "SELECT count(*) FROM outbox INDEXED BY outbox_due \
                 WHERE hook = ?1 AND due_at IS NOT NULL",
            )?;
            let counts = hooks.iter().map(|hook| {
                let count = statement.query_row([hook.as_ref()], |row| row.get::<_, i64>(0))?;
                Ok(count.cast_unsigned())
            });
            counts.sum()
        })
    }

    /// The calls of each hook that has some, by its name.
    ///
    /// # Errors
    ///
    /// As of [`Self::deliveries`].
    pub fn outbox(&self) -> Result<Vec<OutboxCount>> {
        self.read(|connection| {
            let mut statement = connection.prepare(
                "SELECT hook, count(due_at), count(*) - count(due_at), (SELECT error FROM outbox o \
                 WHERE o.hook = outbox.hook AND error IS NOT NULL ORDER BY number DESC LIMIT 1) \
                 FROM outbox GROUP BY hook ORDER BY hook",
            )?;
            let rows = statement.query_map([], |row| {
                Ok(OutboxCount {
                    hook: row.get(0)?,
                    waiting: row.get::<_, i64>(1)?.cast_unsigned(),
                    given_up: row.get::<_, i64>(2)?.cast_unsigned(),
                    error: row.get(3)?,
                })
            })?;
            rows.collect()
        })
    }
}

fn delivery(row: &Row<'_>) -> rusqlite::Result<Delivery> {
    let request: Option<i64> = row.get(4)?;
    Ok(Delivery {
        number: row.get(0)?,
        token: row.get(1)?,
        event: row.get(2)?,
        at: row.get::<_, i64>(3)?.cast_unsigned(),
        request: request.map(|id| RequestId(id.cast_unsigned())),
        name: row.get(5)?,
        attempt: row.get(6)?,
        detail: row.get(7)?,
        tries: row.get(8)?,
        due_at: row.get::<_, i64>(9)?.cast_unsigned(),
    })
}
