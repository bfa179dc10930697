//! Reads one request.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension};

use super::ending::{Payload, StoredEnding};
use super::interned::{COLUMNS, Interned, status};
use super::results;
use super::row::Row;
use crate::id::RequestId;
use crate::request::{Blob, Status};

/// What to read of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// How it ended, with its result if that is in the database.
    Ending,
    /// The same, with a result in a file read too.
    Whole,
    /// Its arguments alone.
    Arguments,
    /// All of it; the request is not pruned in the next minute, so that it can be retried.
    Row,
}

/// What a question found.
#[derive(Clone, Debug)]
pub enum Fetched {
    /// There is no such request, or it has not ended (for an ending).
    Missing,
    Ending(StoredEnding),
    Arguments(Blob),
    Row(Box<Row>),
    /// It could not be read; the reason is for a person.
    Failed(String),
}

/// Answer a question.
pub(super) fn fetch(
    connection: &Connection,
    directory: &Path,
    id: RequestId,
    question: Question,
) -> Fetched {
    let found = match question {
        Question::Ending => ending(connection, id).map(|found| found.map(Fetched::Ending)),
        Question::Whole => whole(connection, directory, id).map(|found| found.map(Fetched::Ending)),
        Question::Arguments => arguments(connection, id).map(|found| found.map(Fetched::Arguments)),
        Question::Row => {
            row(connection, id).map(|found| found.map(|row| Fetched::Row(Box::new(row))))
        }
    };
    match found {
        Ok(found) => found.unwrap_or(Fetched::Missing),
        Err(why) => Fetched::Failed(format!("request {id} cannot be read: {why}")),
    }
}

type Found<T> = std::result::Result<Option<T>, String>;

fn arguments(connection: &Connection, id: RequestId) -> Found<Blob> {
    connection
        .query_row(
            "SELECT blob FROM arguments WHERE id = ?1",
            [id.0.cast_signed()],
            |row| Ok(Blob::from(row.get_ref(0)?.as_blob()?)),
        )
        .optional()
        .map_err(|error| error.to_string())
}

fn row(connection: &Connection, id: RequestId) -> Found<Row> {
    let sql = format!("SELECT {COLUMNS} FROM requests r WHERE r.id = ?1");
    let mut interned = Interned::default();
    let arguments = arguments(connection, id)?.unwrap_or_else(|| Vec::new().into());
    let found = connection
        .query_row(&sql, [id.0.cast_signed()], |row| {
            interned.row(row, arguments)
        })
        .optional()
        .map_err(|error| error.to_string())?;
    let Some(mut row) = found else {
        return Ok(None);
    };
    row.ending = ending(connection, id)?;
    Ok(Some(row))
}

fn whole(connection: &Connection, directory: &Path, id: RequestId) -> Found<StoredEnding> {
    let mut found = ending(connection, id)?;
    if let Some(ending) = &mut found
        && let Payload::File(_) = ending.payload
    {
        ending.payload = Payload::Result(file(directory, id)?);
    }
    Ok(found)
}

fn ending(connection: &Connection, id: RequestId) -> Found<StoredEnding> {
    let found = connection
        .query_row(
            "SELECT status, attempts, claimed_at, ended_at, peak_bytes, failure, result, \
             result_bytes FROM requests \
             WHERE id = ?1 AND ended_at IS NOT NULL",
            [id.0.cast_signed()],
            |row| {
                let failure = row.get_ref(5)?.as_str_or_null()?.map(String::from);
                let result = row.get_ref(6)?.as_blob_or_null()?.map(Blob::from);
                let bytes = row.get::<_, Option<i64>>(7)?.unwrap_or_default();
                let ending = StoredEnding {
                    status: status(row.get(0)?)?,
                    attempts: row.get(1)?,
                    claimed_at: row.get::<_, Option<i64>>(2)?.map(i64::cast_unsigned),
                    at: row.get::<_, i64>(3)?.cast_unsigned(),
                    peak_bytes: row.get::<_, Option<i64>>(4)?.map(i64::cast_unsigned),
                    payload: Payload::Failure(failure.unwrap_or_default()),
                };
                Ok((ending, result, bytes.cast_unsigned()))
            },
        )
        .optional()
        .map_err(|error| error.to_string())?;
    let Some((mut ending, result, bytes)) = found else {
        return Ok(None);
    };
    // A result that is not in the row is in a file.
    if ending.status == Status::Succeeded {
        ending.payload = result.map_or(Payload::File(bytes), Payload::Result);
    }
    Ok(Some(ending))
}

fn file(directory: &Path, id: RequestId) -> std::result::Result<Blob, String> {
    let path = results::path(directory, id);
    let read = std::fs::read(&path);
    read.map(Blob::from)
        .map_err(|error| format!("its result {}: {error}", path.display()))
}
