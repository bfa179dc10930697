//! Rows of files: which read is next, and what becomes of it.
//!
//! Peers take turns, one answer each. A peer has a quarter of the staging memory at most, or one answer that is larger:
//! so one that takes nothing from its socket does not keep the others waiting.
//! Its part is taken until the driver has the memory back: neither an answer that has begun nor a read that was canceled
//! has let go of it.
use std::time::Instant;

use super::answers::{Body, Next};
use super::{PeerId, Shard};
use crate::error::Error;
use crate::slab::Id;
use crate::sys::span::Span;
use crate::table::{Description, FileRows, Filed, Keeper, Key, Released, Run, StagingShare};

/// Of the staging memory, one peer has this part at most.
const SHARES: u64 = 4;

/// One read, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadId {
    pub(crate) peer: PeerId,
    slot: u32,
    answer: Id,
    part: Id,
}

impl ReadId {
    /// Who waits for it.
    pub fn peer(&self) -> PeerId {
        self.peer
    }
}

/// What a read takes.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// What the driver calls the file.
    pub file: u32,
    /// Of the rows, with their strides.
    pub rows_bytes: usize,
    /// Of these, and what describes the reads.
    pub bytes: usize,
    /// Reads of the file that it takes.
    pub runs: usize,
    pub(crate) filed: Filed,
}

impl<K> Shard<K> {
    /// Make a name mean rows of a file, which the driver calls `number`; one that had the name is replaced.
    ///
    /// Pulls of its rows come by [`Shard::next_read`]; the number comes back by [`Shard::take_released`] once the tensor is
    /// gone and nothing is to be read any more. Nobody writes such a tensor.
    ///
    /// # Errors
    ///
    /// As [`Shard::publish`], and [`Error::Config`] for rows that do not fit into their stride, or into any file.
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

    /// Begin the next read, of the peer whose turn it is; none where nothing is to be read, or whoever waits has its
    /// share of the staging memory. Its end is told by [`Shard::read`].
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

    /// Whether anybody waits for rows that are to be read.
    pub(crate) fn has_reads(&self) -> bool {
        !self.readers.is_empty()
    }

    /// Have `each` see what a read takes; nothing where nobody waits for it any more.
    pub(crate) fn each_run(&self, read: ReadId, each: impl FnMut(&Filed, Run)) {
        if let Some((number, peer)) = self.peers.at(read.peer.0.index)
            && number == read.peer.0
        {
            peer.answers.each_run(read.slot, read.answer, each);
        }
    }

    /// Whether anybody waits for a read; otherwise [`Shard::give_up`] it, if it has not begun.
    pub fn is_wanted(&self, read: ReadId) -> bool {
        let peer = self.peers.at(read.peer.0.index);
        peer.is_some_and(|(number, peer)| {
            number == read.peer.0 && peer.answers.unread(read.answer).is_some()
        })
    }

    /// The driver will not read what nobody waits for. Idempotent.
    pub fn give_up(&mut self, read: ReadId) {
        if let Some((peer, _)) = self.peer(read.peer) {
            peer.answers.give_part(read.part);
        }
    }

    /// A read has ended: its rows are in memory, which the driver calls `number` and gets back by
    /// [`Shard::take_released`] once they have gone out; or why there are none.
    ///
    /// Returns whether anybody waited for it: otherwise the memory is the driver's still.
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
            table.storages.retire(storage); // the answer alone needs it
        }
        known
    }

    /// A file or memory of the driver's that nothing needs any more.
    pub fn take_released(&mut self) -> Option<Released> {
        let (gone, share) = self.table.storages.take_released()?;
        if let Some(StagingShare { peer, part }) = share
            && let Some((peer, _)) = self.peer(PeerId(peer))
        {
            peer.answers.give_part(part);
        }
        Some(gone)
    }

    /// Whether there will be something to send to a peer without anything being received.
    pub fn has_pending_output(&self, peer: PeerId) -> bool {
        let found = self.peers.at(peer.0.index);
        found.is_some_and(|(number, found)| number == peer.0 && found.has_pending_output())
    }

    /// A peer has something to read.
    pub(super) fn reads(&mut self, id: PeerId) {
        if let Some((peer, _)) = self.peer(id)
            && !std::mem::replace(&mut peer.reads, true)
        {
            self.readers.push_back(id);
        }
    }
}
