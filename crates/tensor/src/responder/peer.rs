//! One peer: decodes its requests as they are received, and checks them against the table.
mod names;
mod push;

use std::time::{Duration, Instant};

use super::answers::{Answers, Body, Unread};
use crate::error::Error;
use crate::inbox::Inbox;
use crate::names::frame::{LIST_BYTES_MAX, TAG_BYTES, answers_cost};
use crate::outbox::Outbox;
use crate::requester::Rows;
use crate::sys::span::Span;
use crate::table::{Changed, Found, Key, Table, Tensor, check_indices};
use crate::wire::{ENTRY_BYTES, Entry, Kind, NO_SLOT, Operation, REQUEST_BYTES, RequestHeader};

/// Size of the receive buffer: entries and indices of several requests, or a few small pushes.
const INBOX_BYTES: usize = 32 << 10;
/// Larger staging buffers are freed while the peer is quiet.
const KEPT_BYTES: usize = 64 << 10;

/// An entry of the request that is being received.
#[derive(Clone, Copy, Debug)]
struct Asked {
    entry: Entry,
    /// The offset of its indices among those of the request, in bytes.
    indices_from: usize,
    /// Bytes of its rows.
    bytes: u64,
}

/// What is received next.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Header,
    Entries(RequestHeader),
    /// Row numbers, into the slot's list.
    Indices(RequestHeader),
    /// The values of an entry of a push; `staged` if they go to the staging buffer.
    Values {
        slot: u32,
        operation: Operation,
        at: usize,
        staged: bool,
    },
    /// Names, into the staging buffer.
    Names(RequestHeader),
    Cancel(RequestHeader),
}

/// What to do after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Wait for more bytes.
    Wait,
    /// Take another step.
    Again,
    /// Queue reads of a file; then take another step.
    Read,
    /// All values of a push are received: [`Peer::apply`] it.
    Apply,
}

/// A peer of a shard.
#[derive(Debug)]
pub(super) struct Peer {
    inbox: Inbox,
    pub(super) outbox: Outbox,
    pub(super) answers: Answers,
    phase: Phase,
    asked: Vec<Asked>,
    staging: Vec<u8>,
    grant_bytes: u64,
    /// When it last sent bytes.
    heard: Instant,
    /// When it last accepted bytes, or output began to wait.
    taken: Instant,
    /// It is in the shard's queue of peers with reads.
    pub(super) reads: bool,
}

impl Peer {
    pub(super) fn new(slots: u32, grant_bytes: u64, now: Instant) -> Self {
        Self {
            inbox: Inbox::new(INBOX_BYTES),
            outbox: Outbox::default(),
            answers: Answers::new(slots),
            phase: Phase::Header,
            asked: Vec::new(),
            staging: Vec::new(),
            grant_bytes,
            heard: now,
            taken: now,
            reads: false,
        }
    }

    pub(super) fn incoming(&mut self) -> [Span; 2] {
        self.inbox.spans(INBOX_BYTES)
    }

    pub(super) fn received(&mut self, count: usize, now: Instant) {
        if count > 0 {
            self.heard = now;
        }
        self.note_output(now);
        self.inbox.received(count);
    }

    pub(super) fn sent<K>(&mut self, count: usize, now: Instant, table: &mut Table<K>) {
        if count > 0 {
            self.taken = now;
        }
        let reader = self.answers.reader;
        self.outbox
            .sent(count, |storage| table.storages.release(storage, reader, 1));
    }

    /// Output may be added now: if none was waiting, the time to accept it begins.
    pub(super) fn note_output(&mut self, now: Instant) {
        if !self.wants_write() {
            self.taken = now;
        }
    }

    pub(super) fn wants_write(&self) -> bool {
        !self.outbox.is_empty() || self.answers.is_ready()
    }

    /// Whether there is or will be output without further input.
    pub(super) fn has_pending_output(&self) -> bool {
        self.wants_write() || self.answers.is_reading()
    }

    /// Nothing half received, and nothing to send.
    pub(super) fn is_quiet(&self) -> bool {
        self.is_between() && !self.has_pending_output()
    }

    fn is_between(&self) -> bool {
        matches!(self.phase, Phase::Header) && self.inbox.bytes().is_empty()
    }

    /// When to check again, or why the peer must be disconnected.
    pub(super) fn expire(
        &mut self,
        now: Instant,
        liveness: Duration,
    ) -> Result<Option<Instant>, Error> {
        if self.is_quiet() {
            if self.staging.capacity() > KEPT_BYTES {
                self.staging = Vec::new();
            }
            return Ok(None);
        }
        let sends = (!self.is_between()).then_some(self.heard);
        // Input does not count here: a peer that sends but never reads would hold answers and staging memory for ever.
        let takes = self.wants_write().then_some(self.taken);
        let Some(since) = sends.into_iter().chain(takes).min() else {
            return Ok(Some(now + liveness)); // it waits for a disk, and owes nothing
        };
        let silent = now.saturating_duration_since(since);
        if silent >= liveness {
            return Err(Error::Silent {
                silent,
                limit: liveness,
            });
        }
        Ok(Some(since + liveness))
    }

    /// Copy unsent rows that are about to change; `readers` pieces of its answers read that storage.
    pub(super) fn preserve<K>(&mut self, changed: &Changed, readers: u32, table: &mut Table<K>) {
        let storage = changed.storage;
        let (marked, copied) = self.outbox.preserve(storage, |lent| changed.touches(lent));
        if copied > 0 {
            let reader = self.answers.reader;
            table.storages.release(storage, reader, copied);
        }
        self.answers
            .preserve(changed, readers - marked, &mut table.storages);
    }

    /// Release all storages. The peer is fenced.
    pub(super) fn clear<K>(&mut self, table: &mut Table<K>) {
        self.inbox.clear();
        let reader = self.answers.reader;
        self.outbox
            .clear(|storage| table.storages.release(storage, reader, 1));
        self.answers.clear(&mut table.storages);
    }

    /// Process what was received by one step.
    ///
    /// # Errors
    ///
    /// [`Error::Protocol`].
    pub(super) fn step<K>(&mut self, table: &mut Table<K>) -> Result<Step, Error> {
        if self.inbox.is_diverted() {
            return Ok(Step::Wait);
        }
        match self.phase {
            Phase::Header => self.header(),
            Phase::Entries(header) => self.entries(header, table),
            Phase::Indices(header) => Ok(self.body_begins(header, table)),
            Phase::Values {
                slot, at, staged, ..
            } => Ok(self.values(slot, at, staged)),
            Phase::Names(header) => self.names(header, table),
            Phase::Cancel(header) => Ok(self.cancel(header, table)),
        }
    }

    fn violation(&self, what: impl Into<String>) -> Error {
        Error::Protocol {
            what: what.into(),
            offset: self.inbox.offset(),
        }
    }

    fn header(&mut self) -> Result<Step, Error> {
        let bytes = self.inbox.bytes();
        if bytes.len() < REQUEST_BYTES {
            return Ok(Step::Wait);
        }
        let header = RequestHeader::decode(bytes).map_err(|what| self.violation(what))?;
        self.check_header(header)?;
        self.inbox.consume(REQUEST_BYTES);
        self.phase = match header.kind {
            Kind::Pull | Kind::Push(_) => Phase::Entries(header),
            Kind::Cancel => Phase::Cancel(header),
            Kind::Names => {
                self.stage(header.bytes);
                Phase::Names(header)
            }
        };
        Ok(Step::Again)
    }

    fn check_header(&self, header: RequestHeader) -> Result<(), Error> {
        let RequestHeader {
            entries,
            slot,
            bytes,
            ..
        } = header;
        let entry_bytes = u64::from(entries) * ENTRY_BYTES as u64;
        let (least, most) = match header.kind {
            // Values and row numbers of a push are bounded by the grant each, or belong to a single row.
            Kind::Push(_) => (entry_bytes, entry_bytes + 2 * self.grant_bytes + 8),
            // The size of the answers is checked when the entries are decoded.
            Kind::Pull => (entry_bytes, entry_bytes + self.grant_bytes),
            Kind::Cancel => (4 * u64::from(entries), 4 * u64::from(entries)),
            Kind::Names => (TAG_BYTES as u64, LIST_BYTES_MAX as u64),
        };
        if bytes < least || bytes > most {
            return Err(self.violation(format!(
                "a request of {entries} entries declares {bytes} bytes instead of {least} to {most}"
            )));
        }
        if header.kind == Kind::Names && entries == 0 {
            return match slot {
                NO_SLOT => Ok(()),
                _ => Err(self.violation(format!("a liveness probe with slot {slot}"))),
            };
        }
        match self.answers.is_free(slot) {
            None => {
                Err(self.violation(format!("a request with slot {slot}, which was not granted")))
            }
            Some(false) if header.kind != Kind::Cancel => {
                Err(self.violation(format!("a request with slot {slot}, which is in use")))
            }
            Some(_) if header.kind == Kind::Names => {
                self.check_grant(answers_cost(entries, self.grant_bytes))
            }
            Some(_) => Ok(()),
        }
    }

    fn check_grant(&self, cost: u64) -> Result<(), Error> {
        let left = self.grant_bytes - self.answers.grant_used();
        if cost <= left {
            return Ok(());
        }
        Err(self.violation(format!(
            "a request for {cost} bytes, where {left} are left of the {} that were granted",
            self.grant_bytes
        )))
    }

    fn entries<K>(&mut self, header: RequestHeader, table: &Table<K>) -> Result<Step, Error> {
        let entries_bytes = usize::from(header.entries) * ENTRY_BYTES;
        if self.inbox.bytes().len() < entries_bytes {
            return Ok(Step::Wait);
        }
        let is_pull = header.kind == Kind::Pull;
        self.asked.clear();
        let (mut index_bytes, mut value_bytes, mut cost) = (0_u64, 0_u64, 0_u64);
        for bytes in self.inbox.bytes()[..entries_bytes].chunks_exact(ENTRY_BYTES) {
            let entry = Entry::decode(bytes).map_err(|what| self.violation(what))?;
            let row_bytes = match table.find(entry.key()) {
                Found::Live(tensor) => tensor.row_bytes,
                Found::Stale { row_bytes, .. } => match row_bytes {
                    Some(row_bytes) => row_bytes,
                    None if is_pull => 0, // a stale pull has no values and gets no rows, so their size is not needed
                    None => return Err(self.violation(forgotten(&entry))),
                },
                Found::Never => return Err(self.violation(never(&entry))),
            };
            let bytes = row_bytes.saturating_mul(u64::from(entry.rows));
            self.asked.push(Asked {
                entry,
                // Bounded by the checked header, or the request is refused below.
                indices_from: usize::try_from(index_bytes).unwrap_or(usize::MAX),
                bytes,
            });
            index_bytes += entry.index_bytes();
            value_bytes = value_bytes.saturating_add(bytes);
            cost = cost.saturating_add(bytes.max(entry.index_bytes()));
        }
        let body = index_bytes.saturating_add(if is_pull { 0 } else { value_bytes });
        if header.bytes != body.saturating_add(entries_bytes as u64) {
            return Err(self.violation(format!(
                "a request declares {} bytes, but its entries need {}",
                header.bytes,
                body.saturating_add(entries_bytes as u64)
            )));
        }
        if is_pull {
            self.check_grant(cost)?;
        }
        self.inbox.consume(entries_bytes);
        self.answers.open(header.slot, u32::from(header.entries));
        let index_bytes = usize::try_from(index_bytes).expect("bounded by the header");
        if index_bytes > 0 {
            let room = self.answers.indices(header.slot, index_bytes);
            self.inbox.divert(room);
        }
        self.phase = Phase::Indices(header);
        Ok(Step::Again)
    }

    /// Entries and row numbers are received: answer a pull, or begin to receive the values of a push.
    fn body_begins<K>(&mut self, header: RequestHeader, table: &mut Table<K>) -> Step {
        if let Kind::Push(operation) = header.kind {
            self.phase = Phase::Values {
                slot: header.slot,
                operation,
                at: 0,
                staged: false,
            };
            return Step::Again;
        }
        let mut step = Step::Again;
        for at in 0..self.asked.len() {
            let asked = self.asked[at];
            let cost = asked.bytes.max(asked.entry.index_bytes());
            let (version, body) = match self.resolve(header.slot, &asked, table) {
                Ok((tensor, rows)) => match answer(tensor, rows, &asked, table.staging_bytes) {
                    Ok(body) => (tensor.version, body),
                    Err(error) => (0, Body::Refusal(Box::new(error))),
                },
                Err(error) => (0, Body::Refusal(Box::new(error))),
            };
            let tag = asked.entry.tag;
            if matches!(body, Body::Unread(_)) {
                step = Step::Read;
            }
            self.answers
                .add(header.slot, tag, version, cost, body, &mut table.storages);
        }
        self.answers.opened(header.slot);
        self.phase = Phase::Header;
        step
    }

    /// The tensor and the rows of an entry, if they exist.
    fn resolve<'a, K>(
        &self,
        slot: u32,
        asked: &Asked,
        table: &'a Table<K>,
    ) -> Result<(&'a Tensor, Rows), Error> {
        let entry = &asked.entry;
        let tensor = match table.find(entry.key()) {
            Found::Live(tensor) => tensor,
            Found::Stale { current, .. } => {
                return Err(Error::Stale {
                    tensor: entry.tensor,
                    held: entry.generation,
                    current,
                });
            }
            Found::Never => unreachable!("an id and its generations stay known"),
        };
        let count = u64::from(entry.rows);
        let (rows, checked) = if entry.indexed {
            let words = self
                .answers
                .words(slot, asked.indices_from, entry.rows as usize);
            (Rows::Indices(words), check_indices(tensor.rows, words))
        } else {
            let first = entry.first;
            (
                Rows::Slice { first, count },
                tensor.check_slice(first, count),
            )
        };
        match checked {
            Ok(()) => Ok((tensor, rows)),
            Err(row) => Err(Error::OutOfRange {
                tensor: Some(entry.tensor),
                row,
                rows: tensor.rows,
            }),
        }
    }

    /// Receive the next `bytes` into the staging buffer.
    fn stage(&mut self, bytes: u64) {
        let bytes = usize::try_from(bytes).expect("bounded by the grant");
        if self.staging.len() < bytes {
            self.staging.resize(bytes, 0);
        }
        self.inbox.divert(Span::of(&mut self.staging[..bytes]));
    }
}

fn answer(tensor: &Tensor, rows: Rows, asked: &Asked, staging_bytes: u64) -> Result<Body, Error> {
    if let Some(filed) = tensor.file {
        let unread = Unread::new(
            tensor.storage,
            filed,
            (rows, asked.indices_from),
            staging_bytes,
        )?;
        return Ok(Body::Unread(unread));
    }
    Ok(match rows {
        Rows::Slice { first, count } => Body::Rows {
            storage: tensor.storage,
            rows: tensor.rows_at(first, count),
        },
        Rows::Indices(words) => Body::Gather {
            storage: tensor.storage,
            tensor: tensor.memory,
            row_bytes: tensor.rows_at(0, 1).bytes(),
            from: asked.indices_from,
            rows: words.count(),
        },
    })
}

fn forgotten(entry: &Entry) -> String {
    format!(
        "a push to generation {} of tensor {}, which was dropped too long ago to know its row size; \
         look its name up again",
        entry.generation, entry.tensor
    )
}

fn never(entry: &Entry) -> String {
    format!(
        "tag {} names generation {} of tensor {}, which never existed",
        entry.tag, entry.generation, entry.tensor
    )
}

impl Entry {
    fn key(&self) -> Key {
        Key {
            id: self.tensor,
            generation: self.generation,
        }
    }
}
