//! Reading a log: by offset, and from its end.

use std::fs::File;
use std::io::Result;
use std::os::unix::fs::FileExt;

use super::marker::Marker;
use crate::limit::LOG_HEAD_BYTES;

/// A part of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it begins; later than asked for where that was given up.
    pub offset: u64,
    pub bytes: Vec<u8>,
    /// Where to go on.
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

/// How much of the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Last {
    Bytes(u64),
    Lines(usize),
}

/// From `offset` on, at most `most` bytes.
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
    piece(file, offset, marker.place(offset), most)
}

/// The end: whole lines, or bytes; what lies before the part that was given up does not count.
pub fn last(file: &File, last: Last, most: usize) -> Result<Piece> {
    let marker = Marker::find(file, file.metadata()?.len())?;
    let end = end(file)?;
    let first = marker.map_or(0, |marker| marker.tail());
    let most = match last {
        Last::Bytes(bytes) => bytes.min(most as u64),
        Last::Lines(_) => most as u64,
    };
    let from = end.saturating_sub(most).max(first);
    let length = usize::try_from(end - from).unwrap_or(usize::MAX);
    let mut piece = read(file, from, length)?;
    if let Last::Lines(lines) = last {
        let cut = lines_start(&piece.bytes, lines);
        piece.bytes.drain(..cut);
        piece.offset += cut as u64;
    }
    Ok(piece)
}

/// Where the stream ends.
pub fn end(file: &File) -> Result<u64> {
    let bytes = file.metadata()?.len();
    Ok(Marker::find(file, bytes)?.map_or(bytes, |marker| marker.end(bytes)))
}

/// Where the last so many lines begin; a last one without its end is one.
fn lines_start(bytes: &[u8], lines: usize) -> usize {
    if lines == 0 {
        return bytes.len();
    }
    let whole = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let ends = whole.iter().enumerate().rev();
    let mut ends = ends.filter(|&(_, &byte)| byte == b'\n');
    ends.nth(lines - 1).map_or(0, |(at, _)| at + 1)
}

/// What stands at `place` of the file, which is `offset` of the stream.
fn piece(file: &File, offset: u64, place: u64, most: usize) -> Result<Piece> {
    let there = file.metadata()?.len().saturating_sub(place);
    let length = usize::try_from(there).unwrap_or(most).min(most);
    let mut bytes = vec![0; length];
    let mut read = 0;
    while read < length {
        match file.read_at(&mut bytes[read..], place + read as u64)? {
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
