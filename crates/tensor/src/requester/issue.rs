//! Makes requests of jobs: what is ready when a slot is free shares a request.
use forebay_base::slots;

use super::job::Task;
use super::request::Rows;
use super::transfer::Transfer;
use super::{Flying, NONE, PROBE_TAG, Requester, tag_of};
use crate::names::frame::{TAG_BYTES, answers_cost};
use crate::sys::span::{Span, Words};
use crate::wire::{ENTRY_BYTES, Entry, Kind, NO_SLOT, RequestHeader};

/// Requests are made while fewer bytes than this wait to be sent: while the socket is busy, jobs gather and share
/// requests.
const ISSUED_BYTES: usize = 256 << 10;
/// Row numbers and values up to this are copied behind the entries: a further span of a gathered write costs as much.
const COPY_BYTES: usize = 1024;

/// The request that is being made.
pub(super) struct RequestDraft {
    kind: Kind,
    slot: u32,
    /// Bytes of row numbers and values.
    body: u64,
    /// Bytes of the grant that its responses take.
    cost: u64,
}

/// How much of the job at the front was taken.
enum Took {
    /// All of it is requested.
    All,
    /// One piece of it; there are more.
    Piece,
    /// It has to wait for the next request.
    Nothing,
}

impl<K> Requester<K> {
    /// Make requests while jobs wait, a slot is free, and little waits to be sent.
    pub(super) fn issue(&mut self) {
        while self.outbox.bytes() < ISSUED_BYTES {
            let (Some(&front), Some(&slot)) = (self.queue.front(), self.free_slots.last()) else {
                break;
            };
            let kind = match self.job(front).work() {
                Task::Move(transfer) => transfer.kind,
                Task::LookUp { count, .. } => {
                    if !self.issue_names(front, slot, self.cost_of_names(*count)) {
                        break;
                    }
                    continue;
                }
            };
            if !self.issue_moves(kind, slot) {
                break;
            }
        }
    }

    /// Whether `issue` would make a request, without going through the queue.
    pub(super) fn can_issue(&self) -> bool {
        let Some(&front) = self.queue.front() else {
            return false;
        };
        if self.free_slots.is_empty() {
            return false;
        }
        let job = self.job(front);
        match job.work() {
            Task::Move(transfer) if transfer.kind == Kind::Pull => {
                self.piece(transfer, job.rows_left()).1 <= self.grant_left
                    && !self.waits_whole(front)
            }
            Task::LookUp { count, .. } => self.cost_of_names(*count) <= self.grant_left,
            Task::Move(_) => true,
        }
    }

    fn cost_of_names(&self, count: u16) -> u64 {
        answers_cost(count, self.limits.grant_bytes)
    }

    /// Returns whether the grant had room for the response.
    fn issue_names(&mut self, key: slots::Key, slot: u32, cost: u64) -> bool {
        if cost > self.grant_left {
            return false;
        }
        self.queue.pop_front();
        self.free_slots.pop();
        self.slots[slot as usize] = 1;
        self.grant_left -= cost;
        let flying = Flying {
            job: key,
            slot,
            from: 0,
            bytes: 0,
            cost,
            lent: 0,
            is_large: false,
            before: NONE,
            next: NONE,
        };
        let tag = tag_of(self.link(flying));
        let job = self.jobs.get_mut(key).expect("a job in the queue is there");
        job.stop_waiting();
        let Task::LookUp { list, count } = job.work() else {
            unreachable!("checked by the caller");
        };
        let header = RequestHeader {
            kind: Kind::Names,
            entries: *count,
            slot,
            bytes: (TAG_BYTES + list.len()) as u64,
        };
        self.outbox.push(&header.encode());
        self.outbox.push(&tag.to_le_bytes());
        self.outbox.push(list);
        true
    }

    /// Make one request of the jobs of one kind at the front of the queue; returns whether there were any.
    fn issue_moves(&mut self, kind: Kind, slot: u32) -> bool {
        let mut batch = RequestDraft {
            kind,
            slot,
            body: 0,
            cost: 0,
        };
        self.batch.clear();
        while let Some(&front) = self.queue.front() {
            match self.take_pieces(front, &mut batch) {
                Took::All => {
                    self.queue.pop_front();
                }
                // Other jobs must not wait until a long pull is over. Pushes keep their order.
                Took::Piece if kind == Kind::Pull => self.queue.rotate_left(1),
                Took::Piece => {}
                Took::Nothing => break,
            }
        }
        if self.batch.is_empty() {
            return false;
        }
        self.free_slots.pop();
        self.slots[slot as usize] = u32::try_from(self.batch.len()).expect("256 at most");
        self.grant_left -= batch.cost;
        self.send_batch(&batch);
        true
    }

    /// Rows and bytes of the next piece of a job with `rows_left`.
    fn piece(&self, transfer: &Transfer, rows_left: u64) -> (u64, u64) {
        let unit = transfer.unit();
        let rows = self.limits.rows_of_piece(unit).min(rows_left);
        (rows, rows * unit)
    }

    /// Whether all pieces must share a request, and the grant is too small for them now.
    fn waits_whole(&self, key: slots::Key) -> bool {
        let job = self.job(key);
        match job.work() {
            Task::Move(transfer) if job.is_whole() => {
                job.rows_left() * transfer.unit() > self.grant_left
            }
            _ => false,
        }
    }

    fn take_pieces(&mut self, key: slots::Key, batch: &mut RequestDraft) -> Took {
        let whole = self.job(key).is_whole();
        if whole && (!self.batch.is_empty() || self.waits_whole(key)) {
            return Took::Nothing;
        }
        loop {
            let took = self.take_piece(key, batch);
            if !(whole && matches!(took, Took::Piece)) {
                return took;
            }
        }
    }

    fn take_piece(&mut self, key: slots::Key, batch: &mut RequestDraft) -> Took {
        let job = self.job(key);
        let Task::Move(transfer) = job.work() else {
            return Took::Nothing;
        };
        let transfer = *transfer;
        let (rows, cost) = self.piece(&transfer, job.rows_left());
        let value_bytes = rows * transfer.row_bytes;
        let is_pull = transfer.kind == Kind::Pull;
        let index_bytes = if matches!(transfer.rows, Rows::Indices(_)) {
            8 * rows
        } else {
            0
        };
        let body = index_bytes + if is_pull { 0 } else { value_bytes };
        let has_all = self.batch.len() >= self.limits.entries_max as usize
            || (!self.batch.is_empty()
                && !job.is_whole()
                && batch.body + body > self.limits.request_bytes());
        let is_beyond_grant = is_pull && batch.cost + cost > self.grant_left;
        if transfer.kind != batch.kind || has_all || is_beyond_grant {
            return Took::Nothing;
        }
        let flying = Flying {
            job: key,
            slot: batch.slot,
            from: job.rows_asked(),
            bytes: if is_pull { value_bytes } else { 0 },
            cost: if is_pull { cost } else { 0 },
            lent: 0,
            is_large: is_pull && transfer.is_received_directly(value_bytes),
            before: NONE,
            next: NONE,
        };
        self.large += u32::from(flying.is_large);
        let id = self.link(flying);
        self.batch.push((id, rows));
        batch.body += body;
        batch.cost += flying.cost;
        let job = self.jobs.get_mut(key).expect("looked at above");
        job.ask(rows);
        if job.rows_left() > 0 {
            return Took::Piece;
        }
        job.stop_waiting();
        Took::All
    }

    fn send_batch(&mut self, batch: &RequestDraft) {
        let entries = self.batch.len();
        let header = RequestHeader {
            kind: batch.kind,
            entries: u16::try_from(entries).expect("256 at most"),
            slot: batch.slot,
            bytes: (entries * ENTRY_BYTES) as u64 + batch.body,
        };
        self.outbox.push(&header.encode());
        for at in 0..entries {
            let (id, rows) = self.batch[at];
            let (transfer, from) = self.transfer(id);
            let (first, indexed) = match transfer.rows {
                Rows::Slice { first, .. } => (first + from, false),
                Rows::Indices(_) => (0, true),
            };
            let entry = Entry {
                tensor: transfer.tensor.id,
                indexed,
                generation: transfer.tensor.generation,
                first,
                rows: u32::try_from(rows).expect("a piece is bounded"),
                tag: tag_of(id),
            };
            self.outbox.push(&entry.encode());
        }
        for at in 0..entries {
            let (id, rows) = self.batch[at];
            let (transfer, from) = self.transfer(id);
            if let Rows::Indices(words) = transfer.rows {
                self.push_memory(id, part(words, from, rows));
            }
        }
        if batch.kind == Kind::Pull {
            return;
        }
        for at in 0..entries {
            let (id, rows) = self.batch[at];
            let (transfer, from) = self.transfer(id);
            let bytes = rows * transfer.row_bytes;
            let mut offset = 0;
            while offset < bytes {
                let span = transfer.place(from, offset, bytes);
                offset += span.bytes() as u64;
                self.push_memory(id, span);
            }
        }
    }

    fn transfer(&self, piece: slots::Key) -> (Transfer, u64) {
        let flying = self.flying.get(piece).expect("inserted with the batch");
        match self.job(flying.job).work() {
            Task::Move(transfer) => (*transfer, flying.from),
            Task::LookUp { .. } => unreachable!("a batch is of pulls or pushes"),
        }
    }

    fn push_memory(&mut self, piece: slots::Key, span: Span) {
        if span.bytes() <= COPY_BYTES {
            self.outbox.push_copy(span);
        } else if self.outbox.push_lent(span, piece.index) {
            let flying = self.flying.get_mut(piece);
            flying.expect("inserted with the batch").lent += 1;
        }
    }

    /// Send a liveness probe.
    pub(super) fn send_probe(&mut self) {
        let header = RequestHeader {
            kind: Kind::Names,
            entries: 0,
            slot: NO_SLOT,
            bytes: TAG_BYTES as u64,
        };
        self.outbox.push(&header.encode());
        self.outbox.push(&PROBE_TAG.to_le_bytes());
    }

    /// Cancel a job's pieces at the peer.
    pub(super) fn send_cancels(&mut self, job: slots::Key) {
        let mut index = self.job(job).first_piece();
        while let Some((id, flying)) = self.flying.at(index) {
            let header = RequestHeader {
                kind: Kind::Cancel,
                entries: 1,
                slot: flying.slot,
                bytes: 4,
            };
            self.outbox.push(&header.encode());
            self.outbox.push(&tag_of(id).to_le_bytes());
            index = flying.next;
        }
    }

    /// Add a piece to its job's list of flying pieces.
    fn link(&mut self, mut flying: Flying) -> slots::Key {
        let job = self.jobs.get_mut(flying.job);
        let job = job.expect("a job in the queue is there");
        flying.next = job.first_piece();
        let id = self.flying.insert(flying);
        job.set_first_piece(id.index);
        job.piece_flies();
        if let Some((_, next)) = self.flying.at_mut(flying.next) {
            next.before = id.index;
        }
        id
    }

    /// Remove a complete piece from its job's list.
    pub(super) fn unlink(&mut self, piece: slots::Key) -> Flying {
        let flying = self.flying.remove(piece);
        let flying = flying.expect("kept until it is complete");
        let job = self.jobs.get_mut(flying.job).expect("kept while it flies");
        job.piece_landed();
        match self.flying.at_mut(flying.before) {
            Some((_, before)) => before.next = flying.next,
            None => job.set_first_piece(flying.next),
        }
        if let Some((_, next)) = self.flying.at_mut(flying.next) {
            next.before = flying.before;
        }
        flying
    }
}

/// The memory of some of the row numbers.
#[allow(clippy::cast_possible_truncation)] // bounded by numbers that are in memory
fn part(words: Words, from: u64, rows: u64) -> Span {
    words.memory().part(from as usize * 8, rows as usize * 8)
}
