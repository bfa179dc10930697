//! Results that are too large for the database: files of their own.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::directory::{FILE_MODE, LOGS, RESULTS};
use super::error::{Result, StoreError};
use crate::id::RequestId;

/// A file that is being written has this at its end; it is never read.
const UNFINISHED: &str = ".new";

/// The file of a result.
pub(super) fn path(directory: &Path, id: RequestId) -> PathBuf {
    directory.join(RESULTS).join(id.to_string())
}

/// The file of a request's output.
pub(super) fn log(directory: &Path, id: RequestId) -> PathBuf {
    directory.join(LOGS).join(format!("{id}.log"))
}

/// Write a result so that it is whole on the disk, under its name, before this returns.
///
/// The directory is synced by [`sync`], once for all files of a batch.
pub(super) fn write(directory: &Path, id: RequestId, result: &[u8]) -> io::Result<()> {
    let path = path(directory, id);
    let mut unfinished = path.clone().into_os_string();
    unfinished.push(UNFINISHED);
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(FILE_MODE)
        .open(&unfinished)?;
    let written = file
        .write_all(result)
        .and_then(|()| file.sync_all())
        .and_then(|()| std::fs::rename(&unfinished, &path));
    if written.is_err() {
        // The disk may be full: what was written of it is of no use. That it cannot be removed adds nothing.
        let _ = std::fs::remove_file(&unfinished);
    }
    written
}

/// Make the names of the results last.
pub(super) fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory.join(RESULTS))?.sync_all()
}

/// Remove what no row names: the server died between the file and its commit, or after a row's removal.
///
/// Logs stay while there is a row; results while the row says that its result is a file.
pub(super) fn prune_orphans(connection: &Connection, directory: &Path) -> Result<()> {
    let failed = StoreError::database;
    let what = "cannot look for files without a request";
    let mut statement = connection
        .prepare("SELECT result_kind = 1 AND result IS NULL FROM requests WHERE id = ?1")
        .map_err(failed(what))?;
    for (folder, is_result) in [(RESULTS, true), (LOGS, false)] {
        let folder = directory.join(folder);
        let entries =
            std::fs::read_dir(&folder).map_err(StoreError::file("cannot list", &folder))?;
        for entry in entries {
            let path = entry
                .map_err(StoreError::file("cannot list", &folder))?
                .path();
            let name = path.file_name().and_then(|name| name.to_str());
            let text = name.map(|name| name.strip_suffix(".log").unwrap_or(name));
            let id = text.and_then(|text| text.parse::<RequestId>().ok());
            let row = match id {
                Some(id) => statement
                    .query_row([id.0.cast_signed()], |row| row.get::<_, bool>(0))
                    .map(Some)
                    .or_else(none_where_missing)
                    .map_err(failed(what))?,
                None => None,
            };
            if row.is_none_or(|in_file| is_result && !in_file) {
                std::fs::remove_file(&path).map_err(StoreError::file("cannot remove", &path))?;
            }
        }
    }
    Ok(())
}

/// That there is no row is an answer.
pub(super) fn none_where_missing<T>(error: rusqlite::Error) -> rusqlite::Result<Option<T>> {
    match error {
        rusqlite::Error::QueryReturnedNoRows => Ok(None),
        other => Err(other),
    }
}

/// Bytes of the files in a folder; what goes away meanwhile counts nothing.
pub(super) fn folder_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| Some(entry.metadata().ok()?.len()));
    sizes.sum()
}
