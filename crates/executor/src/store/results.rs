//! Results that are too large for the database: one file each.
//!
//! A worker leaves its result under a name that follows from the run, so that nothing it sends names a file. It runs
//! foreign code in a directory of this user, so the file under that name is checked before it gets its final one: links
//! and files with another name, owner or length are refused. A process that could change it between the check and the
//! rename could as well change it later.

use std::collections::HashSet;
use std::fs::{File, OpenOptions, ReadDir};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use rusqlite::{Connection, OptionalExtension};

use super::directory::{FILE_MODE, LOGS, RESULTS};
use crate::id::RequestId;
use crate::items::ITEMS;
use crate::request::{Ending, Outcome};

/// The extension of a file that is being written; such a file is never read.
const UNFINISHED: &str = "new";

/// The file of a result.
pub(super) fn path(directory: &Path, id: RequestId) -> PathBuf {
    directory.join(RESULTS).join(id.to_string())
}

/// The file that a run leaves, until it is checked; `python/forebay/executor/worker/results.py` uses the same name.
fn left(directory: &Path, id: RequestId, attempt: u32) -> PathBuf {
    directory.join(RESULTS).join(unfinished(id, attempt))
}

/// The name of a file that a run makes, in the folders of results and of items.
fn unfinished(id: RequestId, attempt: u32) -> String {
    format!("{id}.{attempt}.{UNFINISHED}")
}

/// The file of a request's output.
pub(super) fn log(directory: &Path, id: RequestId) -> PathBuf {
    directory.join(LOGS).join(format!("{id}.log"))
}

/// The file of what a request has yielded.
pub(super) fn items(directory: &Path, id: RequestId) -> PathBuf {
    directory.join(ITEMS).join(id.to_string())
}

/// Why a result is not in its file.
#[derive(Debug)]
pub(super) enum Unfiled {
    /// The disk refused it, and may accept it later.
    Disk(io::Error),
    /// The file that its worker left is not what the worker announced; the reason is for a person.
    Unfit(String),
}

impl From<io::Error> for Unfiled {
    fn from(error: io::Error) -> Self {
        Self::Disk(error)
    }
}

/// Write the result of an end to its file: complete, synced, under its name. It may be there already.
///
/// The directory is synced by [`sync`], once for all files of a batch.
pub(super) fn file(directory: &Path, id: RequestId, ending: &Ending) -> Result<(), Unfiled> {
    match &ending.outcome {
        Outcome::Succeeded(result) => write(directory, id, result)?,
        Outcome::InFile(bytes) => adopt(directory, id, ending.attempts, *bytes)?,
        Outcome::Failed(_) | Outcome::Cancelled => {}
    }
    Ok(())
}

/// Rename the file that a worker has left and synced.
fn adopt(directory: &Path, id: RequestId, attempt: u32, bytes: u64) -> Result<(), Unfiled> {
    let (left, path) = (left(directory, id, attempt), path(directory, id));
    match look(&left, bytes)? {
        None => Ok(std::fs::rename(&left, &path)?),
        // An earlier attempt renamed it, but its answer was lost.
        Some(_) if left.symlink_metadata().is_err() && look(&path, bytes)?.is_none() => Ok(()),
        Some(what) => {
            discard(directory, id, attempt);
            let told = format!("its worker's file {} {what}", left.display());
            Err(Unfiled::Unfit(told))
        }
    }
}

/// What is wrong with a file that should be ours, with no other name, and of this length.
fn look(path: &Path, bytes: u64) -> io::Result<Option<String>> {
    let found = match path.symlink_metadata() {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Some("is not there".into()));
        }
        Err(error) => return Err(error),
    };
    Ok(if !found.is_file() {
        Some("is not a regular file".into())
    } else if found.uid() != rustix::process::geteuid().as_raw() {
        Some(format!("belongs to user {}", found.uid()))
    } else if found.nlink() != 1 {
        Some(format!("has {} names", found.nlink()))
    } else if found.len() != bytes {
        Some(format!("has {} bytes instead of {bytes}", found.len()))
    } else {
        None
    })
}

/// Remove what a run may have left. What cannot be removed is an orphan.
pub(super) fn discard(directory: &Path, id: RequestId, attempt: u32) {
    let _ = std::fs::remove_file(left(directory, id, attempt));
}

fn write(directory: &Path, id: RequestId, result: &[u8]) -> io::Result<()> {
    let path = path(directory, id);
    // Under another name until it is complete, so that a result's name never stands for half of it.
    let unfinished = path.with_extension(UNFINISHED);
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
        // The disk may be full, and a partial file is of no use. A failure to remove it adds no information.
        let _ = std::fs::remove_file(&unfinished);
    }
    written
}

/// Results that are on disk while their ends are not yet.
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
        // No code of a caller runs under the lock, so a panic cannot leave it inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sync the directory, so that the results' names survive a power failure.
pub(super) fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory.join(RESULTS))?.sync_all()
}

/// Files that are checked before the reading thread looks for questions again (`orphans_step_max`).
const STEP_MAX: usize = 256;

/// File times are those of the kernel's last tick, so a file created after the open may bear an earlier time. Younger
/// files wait for the next open.
const MARGIN: Duration = Duration::from_secs(2);

/// Removes files that no row names: the server died between the file and its commit, or after a row's removal.
///
/// A log stays while there is a row; a result stays while the row says that its result is a file. What was changed
/// since the open belongs to this server.
#[derive(Debug)]
pub(super) struct Orphans {
    before: SystemTime,
    /// What runs that go on under this server may be writing.
    spared: Vec<PathBuf>,
    /// The remaining folders, with whether they hold results.
    folders: Vec<(PathBuf, bool)>,
    entries: Option<(ReadDir, bool)>,
}

impl Orphans {
    /// At the open, before a worker of this server writes: every unfinished file is an orphan, however young.
    pub fn new(directory: &Path, running: &[(RequestId, u32)]) -> Self {
        let makers = [RESULTS, ITEMS].map(|folder| directory.join(folder));
        let spared = running.iter().flat_map(|(id, attempt)| {
            let name = unfinished(*id, *attempt);
            makers.iter().map(move |folder| folder.join(&name))
        });
        let spared: Vec<PathBuf> = spared.collect();
        let entries = makers.iter().map(std::fs::read_dir);
        for entry in entries.flatten().flatten().flatten() {
            let path = entry.path();
            if path.extension() == Some(UNFINISHED.as_ref()) && !spared.contains(&path) {
                // A failure is left to the next open.
                let _ = std::fs::remove_file(path);
            }
        }
        Self {
            before: SystemTime::now() - MARGIN,
            spared,
            folders: vec![
                (directory.join(RESULTS), true),
                (directory.join(LOGS), false),
                (directory.join(ITEMS), false),
            ],
            entries: None,
        }
    }

    /// Check some files. `false`: that was all. A file that cannot be checked now is left to the next open.
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
            let is_old = of.is_ok_and(|of| of < self.before);
            let may_go = is_old && !self.spared.contains(&path);
            if may_go && is_orphan(connection, &path, *is_result) {
                // A failure is left to the next open.
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
        return true; // an unfinished file, or a foreign one
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
        // In doubt the file stays.
        Err(_) => false,
    }
}

/// Bytes of the files in a folder; a file that disappears meanwhile counts nothing.
pub(super) fn folder_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| Some(entry.metadata().ok()?.len()));
    sizes.sum()
}
