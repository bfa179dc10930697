//! Gives pages that a prune freed back to the file system, step by step, while the writer is idle.

use rusqlite::Connection;

/// Fewer free pages are used again soon, and are kept (`free_pages_kept`): 4 MiB.
const KEPT_PAGES_MIN: i64 = 1_024;
/// Pages that one step gives back: some ten milliseconds of the writer (`shrink_step_pages`).
const STEP_PAGES: i64 = 4_096;

/// Make a new database keep its freed pages in a list that can be given back. A database with tables stays as it is:
/// the pragma has no effect there, but would write, which a full disk refuses.
pub(super) fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    if count(connection, "page_count")? > 0 {
        return Ok(());
    }
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")
}

/// Give back a step of the free pages if they are the larger part of the file; whether there is more.
pub(super) fn step(connection: &Connection) -> rusqlite::Result<bool> {
    let free = count(connection, "freelist_count")?;
    if free < KEPT_PAGES_MIN || free < count(connection, "page_count")? / 2 {
        return Ok(false);
    }
    let mut statement = connection.prepare(&format!("PRAGMA incremental_vacuum({STEP_PAGES})"))?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Ok(count(connection, "freelist_count")? < free)
}

fn count(connection: &Connection, name: &str) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, name, |row| row.get(0))
}
