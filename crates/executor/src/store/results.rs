//! Results that are too large for the database: files of their own.

use std::collections::HashSet;
use std::fs::{File, OpenOptions, ReadDir};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use rusqlite::{Connection, OptionalExtension};

use super::directory::{FILE_MODE, LOGS, RESULTS};
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

/// The results that are on disk, and whose ends are not yet.
#[derive(Debug, Default)]
pub(super) struct Filed(Mutex<HashSet<RequestId>>);

impl Filed {
    pub fn add(&self, id: RequestId) {
        self.lock().insert(id);
    }

    pub fn has(&self, id: RequestId) -> bool {
        self.lock().contains(&id)
    }

    pub fn remove(&self, id: RequestId) {
        self.lock().remove(&id);
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<RequestId>> {
        // Nothing of a caller runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Make the names of the results last.
pub(super) fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory.join(RESULTS))?.sync_all()
}

/// Files that are looked at before the reading thread looks for questions again (`orphans_step_max`).
const STEP_MAX: usize = 256;

/// The times of files are those of the kernel's last tick, which may be before the open for a file that was made after
/// it. What is younger waits for the next open.
const MARGIN: Duration = Duration::from_secs(2);

/// The removal of what no row names: the server died between the file and its commit, or after a row's removal.
///
/// Logs stay while there is a row; results while the row says that its result is a file. What was changed since the
/// open is this server's.
#[derive(Debug)]
pub(super) struct Orphans {
    before: SystemTime,
    /// Folders that are left, with whether results are there.
    folders: Vec<(PathBuf, bool)>,
    entries: Option<(ReadDir, bool)>,
}

impl Orphans {
    pub fn new(directory: &Path) -> Self {
        Self {
            before: SystemTime::now() - MARGIN,
            folders: vec![
                (directory.join(RESULTS), true),
                (directory.join(LOGS), false),
            ],
            entries: None,
        }
    }

    /// Look at some files. `false`: that was all. What cannot be looked at now, the next open looks at.
    pub fn step(&mut self, connection: &Connection) -> bool {
        let Some((entries, is_result)) = &mut self.entries else {
            let Some((folder, is_result)) = self.folders.pop() else {
                return false;
            };
            self.entries = std::fs::read_dir(folder)
                .ok()
                .map(|entries| (entries, is_result));
            return true;
        };
        let mut seen = 0;
        for entry in entries.by_ref().flatten().take(STEP_MAX) {
            seen += 1;
            let path = entry.path();
            let of = entry.metadata().and_then(|metadata| metadata.modified());
            if of.is_ok_and(|of| of < self.before) && is_orphan(connection, &path, *is_result) {
                // Where it cannot be removed, the next open tries again.
                let _ = std::fs::remove_file(&path);
            }
        }
        if seen < STEP_MAX {
            self.entries = None;
        }
        true
    }
}

fn is_orphan(connection: &Connection, path: &Path, is_result: bool) -> bool {
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let Ok(id) = name
        .strip_suffix(".log")
        .unwrap_or(name)
        .parse::<RequestId>()
    else {
        return true; // what was being written, or is none of ours
    };
    let in_file = connection
        .query_row(
            "SELECT result_kind = 1 AND result IS NULL FROM requests WHERE id = ?1",
            [id.0.cast_signed()],
            |row| row.get::<_, bool>(0),
        )
        .optional();
    match in_file {
        Ok(in_file) => in_file.is_none_or(|in_file| is_result && !in_file),
        Err(_) => false,
    }
}

/// Bytes of the files in a folder; what goes away meanwhile counts nothing.
pub(super) fn folder_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| Some(entry.metadata().ok()?.len()));
    sizes.sum()
}
