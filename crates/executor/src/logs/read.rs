//! Reading a log by offset.

use std::fs::File;
use std::io::Result;
use std::os::unix::fs::FileExt;

use super::marker::Marker;
use crate::limit::LOG_HEAD_BYTES;

/// A part of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it begins; later than asked for if that was discarded.
    pub offset: u64,
    pub bytes: Vec<u8>,
    /// Where to continue.
    pub next: u64,
}

impl Piece {
    pub(super) fn nothing(offset: u64) -> Self {
        Self {
            offset,
            bytes: Vec::new(),
            next: offset,
        }
    }
}

/// At most `most` bytes from `offset` on.
pub fn read(file: &File, offset: u64, most: usize) -> Result<Piece> {
    let Some(marker) = Marker::find(file, file.metadata()?.len())? else {
        return piece(file, offset, offset, most);
    };
    if offset < LOG_HEAD_BYTES {
        let head = LOG_HEAD_BYTES - offset;
        let most = usize::try_from(head).unwrap_or(most).min(most);
        return piece(file, offset, offset, most);
    }
    if offset == LOG_HEAD_BYTES {
        return Ok(Piece {
            offset,
            bytes: marker.text().into_bytes(),
            next: marker.tail(),
        });
    }
    let offset = offset.max(marker.tail());
    piece(file, offset, marker.file_offset(offset), most)
}

/// The bytes at `file_offset` of the file, which is `offset` of the stream.
fn piece(file: &File, offset: u64, file_offset: u64, most: usize) -> Result<Piece> {
    let there = file.metadata()?.len().saturating_sub(file_offset);
    let length = usize::try_from(there).unwrap_or(most).min(most);
    let mut bytes = vec![0; length];
    let mut read = 0;
    while read < length {
        match file.read_at(&mut bytes[read..], file_offset + read as u64)? {
            0 => break,
            count => read += count,
        }
    }
    bytes.truncate(read);
    Ok(Piece {
        offset,
        next: offset + read as u64,
        bytes,
    })
}
