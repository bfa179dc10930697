//! Copying a log that may be written to meanwhile.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{self, seek};
use rustix::io::Errno;

use super::log::copy;
use super::marker::Marker;
use crate::error::Error;
use crate::limit::LOG_HEAD_BYTES;

/// Times that a log is read whose middle is discarded faster than it is copied.
const READS_MAX: u32 = 3;

/// Copy a log into a new file of this user's, with its holes; returns the length of the copy.
///
/// It is the log as it was at some moment of the call. What was discarded meanwhile is missing in the copy too, and its
/// marker says so. A log that loses its middle faster than it is copied keeps its head alone.
///
/// # Errors
///
/// `System`, as `NotFound` for a log that is gone.
pub fn copy_log(from: &Path, to: &Path) -> Result<u64, Error> {
    let what = format!("copy {} to {}", from.display(), to.display());
    copy_file(from, to).map_err(Error::system(what))
}

fn copy_file(from: &Path, to: &Path) -> io::Result<u64> {
    let from = File::open(from)?;
    let mut options = OpenOptions::new();
    let mut to = options.write(true).create_new(true).mode(0o600).open(to)?;
    for _ in 0..READS_MAX {
        let bytes = from.metadata()?.len();
        copy_data(&from, &mut to, bytes)?;
        to.set_len(bytes)?;
        // Written before its hole is punched: what was read of the middle is what it says, or has become zeros.
        let Some(marker) = Marker::find(&from, from.metadata()?.len())? else {
            return Ok(bytes);
        };
        if marker.tail() <= marker.end(bytes) {
            to.write_all_at(marker.text().as_bytes(), LOG_HEAD_BYTES)?;
            return Ok(bytes);
        }
    }
    to.set_len(LOG_HEAD_BYTES)?;
    Ok(LOG_HEAD_BYTES)
}

/// Copy what a file has up to an offset, and leave its holes out.
fn copy_data(from: &File, to: &mut File, end: u64) -> io::Result<()> {
    let mut at = 0;
    while let Some(data) = next_data(from, at, end)? {
        to.seek(SeekFrom::Start(data.start))?;
        copy(from, data.clone(), to)?;
        at = data.end;
    }
    Ok(())
}

/// The next part from an offset on that is no hole, up to an end; a file system without holes has one part.
///
/// It is empty where it was discarded between the two questions: more may follow.
fn next_data(file: &File, at: u64, end: u64) -> io::Result<Option<Range<u64>>> {
    if at >= end {
        return Ok(None);
    }
    let start = match seek(file, fs::SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL) => return Ok(Some(at..end)),
        Err(error) => return Err(error.into()),
    };
    if start >= end {
        return Ok(None);
    }
    let hole = seek(file, fs::SeekFrom::Hole(start));
    Ok(Some(start..hole.unwrap_or(end).min(end)))
}
