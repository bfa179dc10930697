//! The output of requests: one file each, of limited size.
//!
//! A reader sees a stream with stable offsets, so a follower is a file and an offset. Above `log_bytes_max` the middle
//! is discarded: a hole is punched if the file system can, and otherwise the file is rewritten without it. A marker
//! behind the head says how much is missing; a reader at a discarded offset gets what follows it. Logging is best
//! effort: on a full disk the request continues, and a line says later how much is missing.

mod copy;
mod log;
mod marker;
mod read;

use std::fs::{DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

pub use copy::copy_log;
pub use log::Log;
pub use read::Piece;

use crate::error::{Error, Result};
use crate::id::RequestId;
use crate::limit::LOG_BYTES_LEAST;

/// The logs of one server: a directory.
#[derive(Debug)]
pub struct Logs {
    directory: PathBuf,
    bytes_max: u64,
    /// Files that logs keep open.
    open: Arc<AtomicUsize>,
}

impl Logs {
    /// The logs in `directory`, which is created (0700) if it is missing; `bytes_max` of one request are kept.
    ///
    /// # Errors
    /// `Limit` for a `bytes_max` without room for head and tail; `System`.
    pub fn open(directory: &Path, bytes_max: u64) -> Result<Self> {
        if bytes_max < LOG_BYTES_LEAST {
            return Err(Error::Limit {
                limit: "max_log_bytes",
                maximum: LOG_BYTES_LEAST,
                value: bytes_max,
                next: "this is its least: keep more",
            });
        }
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        let made = builder.create(directory);
        made.map_err(Error::system(format!("create {}", directory.display())))?;
        Ok(Self {
            directory: directory.to_owned(),
            bytes_max,
            open: Arc::default(),
        })
    }

    /// The log of a request, to write; the first byte creates its file. One writer per request at a time.
    pub fn log(&self, id: RequestId) -> Log {
        Log::new(self.path(id), self.bytes_max, Arc::clone(&self.open))
    }

    /// The path of a request's log, whether it exists or not.
    pub fn path(&self, id: RequestId) -> PathBuf {
        self.directory.join(format!("{id}.log"))
    }

    /// At most `most` bytes from `offset` on, or from the next one that was kept. Empty at the end, and without a log.
    ///
    /// Cost: three system calls; nothing stays open between two reads.
    ///
    /// # Errors
    /// `System`.
    pub fn read(&self, id: RequestId, offset: u64, most: usize) -> Result<Piece> {
        let path = self.path(id);
        let piece = match File::open(&path) {
            Ok(file) => read::read(&file, offset, most),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Piece::nothing(offset)),
            Err(error) => Err(error),
        };
        piece.map_err(Error::system(format!("log {}", path.display())))
    }
}

#[cfg(test)]
mod tests;
