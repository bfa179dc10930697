//! The owner's memfd: header, board and directory.
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::{Relaxed, Release};

use forebay_memory::{Backing, Config, Lease, Region};
use rustix::fs::fstat;

use super::chunks::Lying;
use super::directory::{Directory, Entry};
use super::{Announced, layout};
use crate::board::{BOARD_BYTES, Board};
use crate::error::Error;
use crate::sys::board::SharedWords;
use crate::sys::near;
use crate::sys::span::Span;

/// What an owner shows of its tensors. Pages of it are taken when they are first written.
#[derive(Debug)]
pub(crate) struct Stand {
    header: SharedWords,
    directory: Directory,
    board_memory: Span,
    announced: Announced,
    // What follows keeps the memory, and the number of the descriptor.
    _descriptor: OwnedFd,
    _memory: Lease,
    _region: Region,
}

impl Stand {
    /// One for ids below `tensors_max`.
    ///
    /// # Errors
    ///
    /// Why there is none, in words: no memory or no descriptor was to be had.
    pub(crate) fn new(tensors_max: u32, incarnation: u64) -> Result<Self, String> {
        let tensors = tensors_max as usize;
        let bytes = layout::bytes(tensors);
        let limit = bytes.next_multiple_of(layout::HEADER_BYTES) as u64;
        let config = Config::new("board", limit)
            .chunk_bytes(limit)
            .backing(Backing::Pages)
            .shelf_bytes_max(0);
        let made = Region::new(config).and_then(|region| {
            let memory = region.allocate(bytes)?;
            let descriptor = memory.share_chunk()?;
            Ok((region, memory, descriptor))
        });
        let (region, memory, descriptor) = made.map_err(|error| error.to_string())?;
        let status = fstat(&descriptor).map_err(|errno| errno.to_string())?;
        if memory.reference().offset != 0 {
            return Err("the first block of a chunk does not begin it".to_owned());
        }
        // The first block of a fresh chunk: zeroed by the kernel, and not touched here, so that pages cost nothing yet.
        let all = near::of_lease(&memory);
        let board_bytes = tensors * BOARD_BYTES;
        let unaligned = || "a chunk is not aligned".to_owned();
        let header = SharedWords::new(all.part(0, layout::HEADER_BYTES)).ok_or_else(unaligned)?;
        let rest = all.after(layout::HEADER_BYTES);
        let directory = Directory::new(rest.after(board_bytes)).ok_or_else(unaligned)?;
        header
            .at(layout::WORD_INCARNATION)
            .store(incarnation, Relaxed);
        header
            .at(layout::WORD_TENSORS)
            .store(tensors as u64, Relaxed);
        header.at(layout::WORD_MAGIC).store(layout::MAGIC, Release);
        Ok(Self {
            header,
            directory,
            board_memory: rest.part(0, board_bytes),
            announced: Announced {
                process: rustix::process::getpid()
                    .as_raw_nonzero()
                    .get()
                    .unsigned_abs(),
                descriptor: descriptor.as_raw_fd().unsigned_abs(),
                inode: status.st_ino,
            },
            _descriptor: descriptor,
            _memory: memory,
            _region: region,
        })
    }

    /// The board that is on it, to be used for no longer than this lives.
    ///
    /// # Errors
    ///
    /// As [`Board::new`].
    pub(crate) fn board(&self) -> Result<Board, Error> {
        Board::new(self.board_memory)
    }

    /// Where it is.
    pub(crate) fn announced(&self) -> Announced {
        self.announced
    }

    /// Say where the tensor lies that the board is about to tell of.
    pub(crate) fn place(&self, id: u32, lying: Option<&Lying>, bytes: usize) {
        let entry = lying.map(|lying| Entry {
            descriptor: lying.descriptor(),
            file: lying.file(),
            offset: lying.offset,
            bytes: bytes as u64,
        });
        self.directory.set(id, entry);
    }

    /// Say that nothing is served any more.
    pub(crate) fn close(&self) {
        self.header.at(layout::WORD_CLOSED).store(1, Release);
    }
}
