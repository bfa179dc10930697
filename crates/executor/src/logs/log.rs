//! Writing one request's log.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::marker::{Form, MARKER_SPACE, Marker};
use crate::error::Error;
use crate::limit::{LOG_FILES_OPEN_MAX, LOG_HEAD_BYTES};

/// Bytes that are copied at once when a file is rewritten.
const COPY_BYTES: usize = 64 << 10;
/// How far the tail's beginning is moved to begin with a line.
const LINE_BYTES_MAX: usize = 4 << 10;

/// A request's log, to write. For one thread at a time.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    bytes_max: u64,
    file: Option<Kept>,
    open: Arc<AtomicUsize>,
    /// Bytes that could not be written since the last one that could.
    lost: u64,
    trouble_told: bool,
    /// Whether the file system is assumed to punch holes.
    holes: bool,
}

impl Log {
    pub(super) fn new(path: PathBuf, bytes_max: u64, open: Arc<AtomicUsize>) -> Self {
        Self {
            path,
            bytes_max,
            file: None,
            open,
            lost: 0,
            trouble_told: false,
            holes: true,
        }
    }

    /// Write at the end. Blocks no longer than a write to a file does.
    ///
    /// # Errors
    /// `System`, once, for example for a full disk. Later failures are silent; lost bytes are counted, and a line in
    /// the log reports them as soon as there is room again. The request continues either way.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if bytes.is_empty() {
            return Ok(());
        }
        let written = self.write(bytes);
        let Err((rest, error)) = written else {
            return Ok(());
        };
        self.lost += rest as u64;
        if std::mem::replace(&mut self.trouble_told, true) {
            return Ok(());
        }
        let what = format!("log {}: output is lost", self.path.display());
        Err(Error::system(what)(error))
    }

    /// Bytes that are missing because they could not be written.
    pub fn lost_bytes(&self) -> u64 {
        self.lost
    }

    /// Write all of it; on failure, how much was not written and why.
    fn write(&mut self, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
        let all = |error| (bytes.len(), error);
        let mut file = self.opened().map_err(all)?;
        let told = self.tell_lost(&mut file.file);
        let done = told.map_err(all).and_then(|()| {
            let mut rest = bytes;
            while !rest.is_empty() {
                match file.file.write(rest) {
                    Ok(0) => return Err((rest.len(), ErrorKind::WriteZero.into())),
                    Ok(count) => rest = &rest[count..],
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err((rest.len(), error)),
                }
            }
            Ok(())
        });
        // The limit applies even after a failed write; a failure here loses nothing.
        let limited = self.limit(&mut file.file);
        if file.counted {
            self.file = Some(file);
        }
        done.and(limited.map_err(|error| (0, error)))
    }

    /// Once there is room again, report how much is missing.
    fn tell_lost(&mut self, file: &mut File) -> io::Result<()> {
        if self.lost > 0 {
            let line = format!(
                "\n[forebay: {} bytes of output could not be written]\n",
                self.lost
            );
            file.write_all(line.as_bytes())?;
            self.lost = 0;
        }
        Ok(())
    }

    fn opened(&mut self) -> io::Result<Kept> {
        if let Some(file) = self.file.take() {
            return Ok(file);
        }
        let mut options = OpenOptions::new();
        options.create(true).append(true).read(true).mode(0o600);
        let file = options.open(&self.path)?;
        let before = self.open.fetch_add(1, Ordering::Relaxed);
        Ok(Kept {
            file,
            counted: before < LOG_FILES_OPEN_MAX,
            open: Arc::clone(&self.open),
        })
    }

    /// Discard the middle once the log is an eighth above its limit, so that one discard serves many writes.
    fn limit(&mut self, file: &mut File) -> io::Result<()> {
        let file_bytes = file.metadata()?.len();
        if file_bytes <= self.bytes_max {
            return Ok(());
        }
        let marker = Marker::find(file, file_bytes)?;
        let end = marker.map_or(file_bytes, |marker| marker.end(file_bytes));
        let tail = marker.map_or(LOG_HEAD_BYTES, |marker| marker.tail());
        if end - tail + LOG_HEAD_BYTES <= self.bytes_max + self.bytes_max / 8 {
            return Ok(());
        }
        let wanted = end - (self.bytes_max - LOG_HEAD_BYTES);
        let tail = line_start(file, marker, wanted)?;
        let form = marker.map_or(Form::Hole, |marker| marker.form);
        if form == Form::Hole && self.holes {
            match punch(&self.path, file, tail) {
                Err(error) if cannot(&error) => self.holes = false,
                done => return done,
            }
        }
        *file = cut(&self.path, file, marker, tail)?;
        Ok(())
    }
}

/// A file that is counted among the open ones.
#[derive(Debug)]
struct Kept {
    file: File,
    /// It may stay open.
    counted: bool,
    open: Arc<AtomicUsize>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The first line that begins at `wanted` or a little later; `wanted` if none does.
fn line_start(file: &File, marker: Option<Marker>, wanted: u64) -> io::Result<u64> {
    let mut bytes = [0; LINE_BYTES_MAX];
    let file_offset = marker.map_or(wanted, |marker| marker.file_offset(wanted));
    let count = file.read_at(&mut bytes, file_offset)?;
    let end = bytes[..count].iter().position(|&byte| byte == b'\n');
    Ok(end.map_or(wanted, |end| wanted + end as u64 + 1))
}

/// Punch a hole between the head's marker and `tail`. The marker first, so that a concurrent reader skips what is about
/// to go.
fn punch(path: &Path, file: &File, tail: u64) -> io::Result<()> {
    let marker = Marker {
        given_up: tail - LOG_HEAD_BYTES,
        form: Form::Hole,
    };
    // Not by `file`: it was opened to append, and then pwrite(2) appends too.
    let writer = OpenOptions::new().write(true).open(path)?;
    writer.write_all_at(marker.text().as_bytes(), LOG_HEAD_BYTES)?;
    let start = LOG_HEAD_BYTES + MARKER_SPACE;
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(fallocate(file, flags, start, tail - start)?)
}

/// Whether a file system without holes answers this way.
fn cannot(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    [Errno::OPNOTSUPP, Errno::NOSYS, Errno::INVAL, Errno::NODEV]
        .into_iter()
        .any(|cannot| errno == Some(cannot))
}

/// Rewrite the file without the discarded part, and replace the old one atomically.
fn cut(path: &Path, old: &File, marker: Option<Marker>, tail: u64) -> io::Result<File> {
    let beside = path.with_extension("log.new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut new = options.open(&beside)?;
    let made = Marker {
        given_up: tail - LOG_HEAD_BYTES,
        form: Form::Cut,
    };
    let file_offset = marker.map_or(tail, |marker| marker.file_offset(tail));
    let copied = copy(old, 0..LOG_HEAD_BYTES, &mut new)
        .and_then(|()| new.write_all(made.text().as_bytes()))
        .and_then(|()| copy(old, file_offset..u64::MAX, &mut new))
        .and_then(|()| std::fs::rename(&beside, path));
    if let Err(error) = copied {
        let _ = std::fs::remove_file(&beside);
        return Err(error);
    }
    OpenOptions::new().append(true).read(true).open(path)
}

/// Copy a part of a file to where another one is.
pub(super) fn copy(from: &File, part: std::ops::Range<u64>, to: &mut File) -> io::Result<()> {
    let mut bytes = vec![0; COPY_BYTES];
    let mut at = part.start;
    while at < part.end {
        let most = usize::try_from(part.end - at)
            .unwrap_or(COPY_BYTES)
            .min(COPY_BYTES);
        let count = from.read_at(&mut bytes[..most], at)?;
        if count == 0 {
            break;
        }
        to.write_all(&bytes[..count])?;
        at += count as u64;
    }
    Ok(())
}

#[cfg(test)]
impl Log {
    /// As if the file system had no holes.
    pub(super) fn without_holes(mut self) -> Self {
        self.holes = false;
        self
    }
}
