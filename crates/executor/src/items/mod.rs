//! What generators yield: one file of items for each request.
//!
//! Its worker writes it, as it does a large result, so that no item passes through the dispatcher on its way to the
//! disk. A run makes a file of its own, with the next epoch, and renames it onto that of the run before: a reader sees
//! one or the other. The head says how many items there are and where they end, and is written after them: what lies
//! behind that end is no item yet. A worker runs foreign code, so nothing in the file is trusted: every length is
//! checked before it is used, and a link is not followed.
//!
//! The head is `"FBITEMS1", epoch, count, end`, then zeros up to [`HEAD_BYTES`]; an item is its length in 4 bytes and
//! its bytes. All numbers are little-endian. `python/forebay/executor/wire/items.py` is the other place that knows this.

mod reader;

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub use reader::{ItemsPiece, ItemsReader, NextItems};

use crate::error::{Error, Result};
use crate::id::RequestId;
use crate::private_file::{PrivateFileError, open_private};

/// The folder in the state directory.
pub const ITEMS: &str = "items";
/// Where the first item begins.
pub const HEAD_BYTES: u64 = 64;

const MAGIC: &[u8; 8] = b"FBITEMS1";
/// What of the head says something.
const SAID_BYTES: usize = 32;

/// The items of one server's requests.
#[derive(Debug)]
pub struct Items {
    directory: PathBuf,
}

impl Items {
    /// Those in a state directory.
    pub fn new(state: &Path) -> Self {
        Self {
            directory: state.join(ITEMS),
        }
    }

    /// The path of a request's items, whether it has some or not.
    pub fn path(&self, id: RequestId) -> PathBuf {
        self.directory.join(id.to_string())
    }

    /// The file of a request with its head; `None` if no run has begun. Cost: four system calls.
    fn open(&self, id: RequestId) -> Result<Option<(File, Head)>> {
        let path = self.path(id);
        let failed = |error| Error::system(format!("items {}", path.display()))(error);
        match open_private(&path, OpenOptions::new().read(true)) {
            Ok((file, _)) => {
                let head = Head::read(&file).map_err(failed)??;
                Ok(Some((file, head)))
            }
            Err(PrivateFileError::System(error)) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(PrivateFileError::System(error)) => Err(failed(error)),
            Err(error) => Err(Error::Config(format!("{}: {error}", path.display()))),
        }
    }
}

/// What a file says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    epoch: u64,
    /// Where the last item ends.
    end: u64,
}

impl Head {
    fn read(file: &File) -> io::Result<Result<Self>> {
        let mut bytes = [0; SAID_BYTES];
        if read_at(file, &mut bytes, 0)? < SAID_BYTES || !bytes.starts_with(MAGIC) {
            return Ok(Err(malformed("no file of items", 0)));
        }
        let head = Self {
            epoch: number(&bytes[8..16]),
            end: number(&bytes[24..]),
        };
        Ok(if head.end < HEAD_BYTES {
            Err(malformed("items that end before they begin", 24))
        } else {
            Ok(head)
        })
    }
}

/// Fill a buffer from an offset on; how much there was.
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut read = 0;
    while read < buffer.len() {
        match file.read_at(&mut buffer[read..], offset + read as u64) {
            Ok(0) => break,
            Ok(count) => read += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

fn malformed(what: &'static str, offset: u64) -> Error {
    Error::Malformed {
        what,
        offset: usize::try_from(offset).unwrap_or(usize::MAX),
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests;
