//! Rows of files: which read is next, and how it ends.
//!
//! Peers take turns, one answer each. A peer has at most a quarter of the staging memory, or one larger answer: so a
//! peer that accepts no bytes does not starve the others. Its part counts until the driver has the memory back: an
//! answer that has begun and a canceled read still use it.
use std::time::Instant;

use forebay_base::slots;

use super::answers::{Body, Next};
use super::{PeerId, Shard};
use crate::error::Error;
use crate::sys::span::Span;
use crate::table::{Description, FileRows, Filed, Keeper, Key, Released, Run, StagingShare};

/// One peer has at most the staging memory divided by this.
const SHARES: u64 = 4;

/// Identifies a read until it has ended; a stale one finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadId {
    pub(crate) peer: PeerId,
    slot: u32,
    answer: slots::Key,
    part: slots::Key,
}

impl ReadId {
    /// The peer that waits for it.
    pub fn peer(&self) -> PeerId {
        self.peer
    }
}

/// The resources of a read.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// The driver's number of the file.
    pub file: u32,
    /// Bytes of the rows, with their strides.
    pub rows_bytes: usize,
    /// Bytes of the rows and of the read descriptions.
    pub bytes: usize,
    /// Reads of the file.
    pub runs: usize,
    pub(crate) filed: Filed,
}

impl<K> Shard<K> {
    /// Publish the rows of a file, which the driver calls `number`, under a name; it replaces a tensor of that name.
    ///
    /// [`Shard::next_read`] returns reads of its rows; [`Shard::take_released`] returns the number once the tensor is
    /// dropped and its reads have ended. Such a tensor is read-only.
    ///
    /// # Errors
    ///
    /// As [`Shard::publish`], and [`Error::Config`] for rows that do not fit their stride or any file.
    pub fn publish_file(
        &mut self,
        name: &str,
        description: Description,
        rows: FileRows,
        number: u32,
    ) -> Result<Key, Error> {
        let row_bytes = self.table.check_file(name, &description, rows)?;
        Ok(self
            .table
            .publish_file(name, description, row_bytes, (rows, number)))
    }

    /// Begin the next read; `None` if nothing has to be read, or all waiting peers have used their share of the staging
    /// memory. The driver reports its end by [`Shard::read`].
    pub fn next_read(&mut self) -> Option<(ReadId, Room)> {
        let share = usize::try_from(self.limits.staging_bytes / SHARES).unwrap_or(usize::MAX);
        for _ in 0..self.readers.len() {
            let id = self.readers.pop_front()?;
            let Some((peer, _)) = self.peer(id) else {
                continue;
            };
            match peer.answers.next_read(share) {
                Next::Nothing => peer.reads = false,
                Next::Later => self.readers.push_back(id),
                Next::Read {
                    slot,
                    answer,
                    part,
                    unread,
                } => {
                    self.readers.push_back(id);
                    let room = Room {
                        file: unread.filed.number,
                        rows_bytes: unread.rows_bytes,
                        bytes: unread.staging_bytes(),
                        runs: unread.runs,
                        filed: unread.filed,
                    };
                    let read = ReadId {
                        peer: id,
                        slot,
                        answer,
                        part,
                    };
                    return Some((read, room));
                }
            }
        }
        None
    }

    /// Memory for rows that are read from files.
    pub(crate) fn staging_bytes(&self) -> u64 {
        self.limits.staging_bytes
    }

    /// Whether peers wait for reads that have not begun.
    pub(crate) fn has_reads(&self) -> bool {
        !self.readers.is_empty()
    }

    /// Call `each` for each run of a read; not at all if its peer or answer is gone.
    pub(crate) fn each_run(&self, read: ReadId, each: impl FnMut(&Filed, Run)) {
        if let Some(peer) = self.peers.get(read.peer.0) {
            peer.answers.each_run(read.slot, read.answer, each);
        }
    }

    /// Whether a peer still waits for a read; otherwise [`Shard::give_up`] it, if it has not begun.
    pub fn is_wanted(&self, read: ReadId) -> bool {
        self.peers
            .get(read.peer.0)
            .is_some_and(|peer| peer.answers.unread(read.answer).is_some())
    }

    /// The driver will not make this read, because no peer waits for it. Idempotent.
    pub fn give_up(&mut self, read: ReadId) {
        if let Some((peer, _)) = self.peer(read.peer) {
            peer.answers.give_part(read.part);
        }
    }

    /// A read has ended, with its rows in memory that the driver calls `number`, or an error.
    /// [`Shard::take_released`] returns the number once the rows are sent.
    ///
    /// Returns whether a peer waited for it: otherwise the driver keeps the memory.
    pub fn read(
        &mut self,
        read: ReadId,
        outcome: Result<(Span, u32), Error>,
        now: Instant,
    ) -> bool {
        let Some((peer, table)) = self.peer(read.peer) else {
            return false;
        };
        let Some(unread) = peer.answers.unread(read.answer) else {
            peer.answers.give_part(read.part);
            return false;
        };
        let filed = unread.filed;
        let (body, staged) = match outcome {
            Err(error) => {
                peer.answers.give_part(read.part);
                (Body::Refusal(Box::new(error)), None)
            }
            Ok((memory, number)) => {
                let share = StagingShare {
                    peer: read.peer.0,
                    part: read.part,
                };
                let storage = table.storages.insert(Keeper::Staged(number, share));
                let (row_bytes, stride_bytes) = filed.sizes();
                let body = Body::Staged {
                    storage,
                    memory,
                    row_bytes,
                    stride_bytes,
                };
                (body, Some(storage))
            }
        };
        peer.note_output(now);
        let known = peer
            .answers
            .read(read.slot, read.answer, body, &mut table.storages);
        if let Some(storage) = staged {
            table.storages.retire(storage); // released with the answer, which alone uses it
        }
        known
    }

    /// A file or memory of the driver that nothing uses any more.
    pub fn take_released(&mut self) -> Option<Released> {
        let (gone, share) = self.table.storages.take_released()?;
        if let Some(StagingShare { peer, part }) = share
            && let Some((peer, _)) = self.peer(PeerId(peer))
        {
            peer.answers.give_part(part);
        }
        Some(gone)
    }

    /// Whether there is or will be output for a peer without further input.
    pub fn has_pending_output(&self, peer: PeerId) -> bool {
        self.peers
            .get(peer.0)
            .is_some_and(|found| found.has_pending_output())
    }

    /// A peer has rows to read.
    pub(super) fn reads(&mut self, id: PeerId) {
        if let Some((peer, _)) = self.peer(id)
            && !std::mem::replace(&mut peer.reads, true)
        {
            self.readers.push_back(id);
        }
    }
}
