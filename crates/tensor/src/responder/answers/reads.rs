//! Answers whose rows are in a file: the order of their reads, and what is sent afterwards.
use forebay_base::slots;

use super::{Answer, Answers, Body, COPY_BYTES, NONE};
use crate::error::Error;
use crate::outbox::Outbox;
use crate::requester::Rows;
use crate::sys::span::Span;
use crate::sys::staging::RUN_RECORD_BYTES;
use crate::table::{Filed, Run, Storages};

/// The rows, in order.
#[derive(Clone, Copy, Debug)]
enum Numbers {
    Slice {
        first: u64,
        count: u64,
    },
    /// Their numbers are in the slot's list, the first at this byte.
    Indices {
        from: usize,
        rows: usize,
    },
}

/// Rows of a file that are not read yet.
#[derive(Clone, Copy, Debug)]
pub(in crate::responder) struct Unread {
    pub(super) storage: u32,
    pub(in crate::responder) filed: Filed,
    numbers: Numbers,
    /// Bytes of the rows, with their strides.
    pub(in crate::responder) rows_bytes: usize,
    /// Reads that it needs.
    pub(in crate::responder) runs: usize,
    /// The reads have begun.
    begun: bool,
}

impl Unread {
    /// # Errors
    ///
    /// [`Error::Limit`] if they do not fit the staging memory at all.
    pub(in crate::responder) fn new(
        storage: u32,
        filed: Filed,
        (rows, from): (Rows, usize),
        staging_bytes: u64,
    ) -> Result<Self, Error> {
        let mut runs = 0;
        let numbers = match rows {
            Rows::Slice { first, count } => {
                filed.each_run(first..first + count, |_| runs += 1);
                Numbers::Slice { first, count }
            }
            Rows::Indices(words) => {
                let count = words.count();
                filed.each_run((0..count).map(|at| words.get(at)), |_| runs += 1);
                Numbers::Indices { from, rows: count }
            }
        };
        let rows_bytes = rows.count().saturating_mul(filed.rows.stride_bytes);
        let value = rows_bytes.saturating_add((runs * RUN_RECORD_BYTES) as u64 + 8);
        if value > staging_bytes {
            return Err(Error::Limit {
                limit: "staging_bytes",
                value,
                maximum: staging_bytes,
                advice: "pull fewer rows at once, or give the server more",
            });
        }
        Ok(Self {
            storage,
            filed,
            numbers,
            rows_bytes: usize::try_from(rows_bytes).expect("below the staging memory's size"),
            runs,
            begun: false,
        })
    }

    /// The offset of its row numbers in the slot's list, and their count.
    pub(super) fn numbers(&mut self) -> Option<(&mut usize, usize)> {
        match &mut self.numbers {
            Numbers::Slice { .. } => None,
            Numbers::Indices { from, rows } => Some((from, *rows)),
        }
    }

    /// Bytes of staging memory that it needs: the rows, and the descriptions of the reads.
    pub(in crate::responder) fn staging_bytes(&self) -> usize {
        self.rows_bytes.next_multiple_of(8) + self.runs * RUN_RECORD_BYTES
    }
}

/// The next read of a peer.
pub(in crate::responder) enum Next {
    Nothing,
    /// It has used its share of the staging memory.
    Later,
    Read {
        slot: u32,
        answer: slots::Key,
        part: slots::Key,
        unread: Unread,
    },
}

impl Answers {
    /// Whether answers wait for reads.
    pub(in crate::responder) fn is_reading(&self) -> bool {
        self.unread > 0
    }

    /// Append an unread answer.
    pub(super) fn await_read(&mut self, slot: u32, index: u32) {
        self.unread += 1;
        let at = &mut self.slots[slot as usize];
        if !at.reads {
            at.reads = true;
            self.readers.push_back(slot);
        }
        if at.unread == NONE {
            at.unread = index;
            return;
        }
        let mut last = at.unread;
        while let Some((_, answer)) = self.waiting.at_mut(last) {
            if answer.next == NONE {
                answer.next = index;
                break;
            }
            last = answer.next;
        }
    }

    /// Begin the next read; slots take turns. `share` is the peer's part of the staging memory; a single read may
    /// exceed it.
    pub(in crate::responder) fn next_read(&mut self, share: usize) -> Next {
        while let Some(&slot) = self.readers.front() {
            let Some((answer, unread)) = self.first_unbegun(slot) else {
                self.readers.pop_front();
                self.slots[slot as usize].reads = false;
                continue;
            };
            let bytes = unread.staging_bytes();
            if self.staged > 0 && self.staged + bytes > share {
                return Next::Later;
            }
            self.readers.rotate_left(1);
            self.staged += bytes;
            let part = self.parts.insert(bytes);
            if let Some(Answer {
                body: Body::Unread(unread),
                ..
            }) = self.waiting.get_mut(answer)
            {
                unread.begun = true;
            }
            return Next::Read {
                slot,
                answer,
                part,
                unread,
            };
        }
        Next::Nothing
    }

    /// The driver has the memory of a read back, or never used it. Idempotent.
    pub(in crate::responder) fn give_part(&mut self, part: slots::Key) {
        if let Some(bytes) = self.parts.remove(part) {
            self.staged -= bytes;
        }
    }

    fn first_unbegun(&self, slot: u32) -> Option<(slots::Key, Unread)> {
        let mut index = self.slots[slot as usize].unread;
        while let Some((key, answer)) = self.waiting.at(index) {
            match answer.body {
                Body::Unread(unread) if !unread.begun => return Some((key, unread)),
                _ => index = answer.next,
            }
        }
        None
    }

    /// Call `each` for each run of an answer; not at all if the answer is gone.
    pub(in crate::responder) fn each_run(
        &self,
        slot: u32,
        answer: slots::Key,
        each: impl FnMut(&Filed, Run),
    ) {
        let mut each = each;
        let Some(unread) = self.unread(answer) else {
            return;
        };
        let filed = unread.filed;
        match unread.numbers {
            Numbers::Slice { first, count } => {
                filed.each_run(first..first + count, |run| each(&filed, run));
            }
            Numbers::Indices { from, rows } => {
                let words = self.numbers.words(slot, from, rows);
                let numbers = (0..rows).map(|at| words.get(at));
                filed.each_run(numbers, |run| each(&filed, run));
            }
        }
    }

    /// The rows of an answer that is being read.
    pub(in crate::responder) fn unread(&self, answer: slots::Key) -> Option<Unread> {
        match self.waiting.get(answer)?.body {
            Body::Unread(unread) => Some(unread),
            _ => None,
        }
    }

    /// A read has ended, with `body` as the answer. Returns `false` if the answer is gone.
    pub(in crate::responder) fn read<K>(
        &mut self,
        slot: u32,
        key: slots::Key,
        body: Body,
        storages: &mut Storages<K>,
    ) -> bool {
        let Some(unread) = self.unread(key) else {
            return false;
        };
        self.unlink(slot, key.index);
        storages.release(unread.storage, self.reader, 1);
        if let Some(storage) = body.storage() {
            storages.hold(storage, self.reader, 1);
        }
        if let Some(answer) = self.waiting.get_mut(key) {
            answer.body = body;
        }
        self.link(slot, key.index);
        self.settle_indices(slot);
        true
    }

    /// Remove an answer from the list of unread ones.
    fn unlink(&mut self, slot: u32, index: u32) {
        self.unread -= 1;
        let next = self.waiting.at_mut(index).map_or(NONE, |(_, answer)| {
            std::mem::replace(&mut answer.next, NONE)
        });
        let at = &mut self.slots[slot as usize];
        if at.unread == index {
            at.unread = next;
            return;
        }
        let mut before = at.unread;
        while let Some((_, answer)) = self.waiting.at_mut(before) {
            if answer.next == index {
                answer.next = next;
                break;
            }
            before = answer.next;
        }
    }

    /// Cancel unread answers; reads in progress are dropped when they end.
    pub(super) fn cancel_reads<K>(&mut self, slot: u32, tag: u32, storages: &mut Storages<K>) {
        let mut index = self.slots[slot as usize].unread;
        while let Some((_, answer)) = self.waiting.at_mut(index) {
            let next = answer.next;
            if answer.tag == tag
                && let Some(storage) = answer.body.storage()
            {
                storages.release(storage, self.reader, 1);
                answer.body = Body::Canceled;
                self.unlink(slot, index);
                self.link(slot, index);
            }
            index = next;
        }
    }
}

/// Send rows with a stride. The answer has one hold on their storage, which the sent spans take over.
pub(super) fn send_rows<K>(
    (storage, reader): (u32, u32),
    memory: Span,
    (row_bytes, stride_bytes): (usize, usize),
    outbox: &mut Outbox,
    storages: &mut Storages<K>,
) {
    if row_bytes == stride_bytes && memory.bytes() > COPY_BYTES {
        // The span carries the hold.
        outbox.push_lent(memory, storage);
        return;
    }
    for row in 0..memory.bytes() / stride_bytes {
        let row = memory.part(row * stride_bytes, row_bytes);
        if row_bytes <= COPY_BYTES {
            outbox.push_copy(row);
        } else if outbox.push_lent(row, storage) {
            storages.hold(storage, reader, 1);
        }
    }
    storages.release(storage, reader, 1);
}
