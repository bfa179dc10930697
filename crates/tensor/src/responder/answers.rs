//! The answers to one peer's requests, and their order.
//!
//! Each slot has its answers in order; slots take turns, one answer each, so that a large answer delays other requests
//! by one piece at most.
//! A waiting answer refers to the tensor's memory and holds no bytes: a peer that reads nothing costs no memory for
//! rows. Rows of files must be read first (`reads`): until then the other answers of their slot are sent.
mod numbers;
mod preserve;
mod reads;

use std::collections::VecDeque;

use forebay_base::slots::Slots;

use crate::error::Error;
use crate::outbox::Outbox;
use crate::sys::span::{Span, Words};
use crate::table::Storages;
use crate::wire::{NO_SLOT, REFUSAL_TEXT_BYTES_MAX, ResponseHeader, Status};
use numbers::RowNumbers;
pub(super) use reads::{Next, Unread};

/// Answers are begun while fewer bytes than this wait to be sent: enough for one large write, while the others can
/// still be canceled.
const BEGUN_BYTES: usize = 256 << 10;
/// Rows up to this are copied behind their header: a further span of a gathered write costs as much.
const COPY_BYTES: usize = 1024;

const NONE: u32 = u32::MAX;

/// The content of an answer.
#[derive(Debug)]
pub(super) enum Body {
    /// Nothing: a push was applied.
    Done,
    /// Consecutive rows.
    Rows { storage: u32, rows: Span },
    /// Rows of `tensor` by number; the slot's list has the numbers.
    Gather {
        storage: u32,
        tensor: Span,
        row_bytes: usize,
        /// The offset of the first number, in bytes.
        from: usize,
        rows: usize,
    },
    /// Rows of a file that are not read yet.
    Unread(Unread),
    /// Rows that were read from a file, each at the start of a stride.
    Staged {
        storage: u32,
        memory: Span,
        row_bytes: usize,
        stride_bytes: usize,
    },
    /// Owned bytes: copied rows, or the result of a look-up.
    Owned(Vec<u8>),
    /// A refusal.
    Refusal(Box<Error>),
    /// The peer canceled it.
    Canceled,
}

impl Body {
    /// The storage that it reads.
    fn storage(&self) -> Option<u32> {
        match self {
            Self::Rows { storage, .. }
            | Self::Gather { storage, .. }
            | Self::Staged { storage, .. } => Some(*storage),
            Self::Unread(unread) => Some(unread.storage),
            Self::Done | Self::Owned(_) | Self::Refusal(_) | Self::Canceled => None,
        }
    }

    /// The offset of its row numbers, in bytes, and their count.
    fn numbers(&mut self) -> Option<(&mut usize, usize)> {
        match self {
            Self::Gather { from, rows, .. } => Some((from, *rows)),
            Self::Unread(unread) => unread.numbers(),
            _ => None,
        }
    }
}

#[derive(Debug)]
struct Answer {
    tag: u32,
    version: u64,
    /// Bytes of the grant that it takes.
    cost: u64,
    body: Body,
    next: u32,
}

#[derive(Debug)]
struct Slot {
    /// Answers that have not begun, unread ones included; 0 for a free slot.
    left: u32,
    first: u32,
    last: u32,
    /// The first unread answer, in order.
    unread: u32,
    /// It is in the queue of slots with reads.
    reads: bool,
    /// Its request is still being received, and needs all of the row numbers.
    is_coming: bool,
}

/// All answers of one peer that have not begun.
#[derive(Debug)]
pub(super) struct Answers {
    /// The peer's number, under which storages are held.
    pub(super) reader: u32,
    waiting: Slots<Answer>,
    slots: Vec<Slot>,
    /// Slots with an answer that can be sent.
    turns: VecDeque<u32>,
    grant_used: u64,
    numbers: RowNumbers,
    /// Slots with rows to read.
    readers: VecDeque<u32>,
    /// Unread answers.
    unread: usize,
    /// Bytes of staging memory of each read, until the driver has them back; and their sum.
    parts: Slots<usize>,
    staged: usize,
    /// The tag of a liveness probe.
    probe: Option<u32>,
}

impl Answers {
    pub(super) fn new(slots: u32) -> Self {
        let slot = || Slot {
            left: 0,
            first: NONE,
            last: NONE,
            unread: NONE,
            reads: false,
            is_coming: false,
        };
        Self {
            reader: 0,
            waiting: Slots::new(),
            slots: (0..slots).map(|_| slot()).collect(),
            turns: VecDeque::with_capacity(slots as usize),
            grant_used: 0,
            numbers: RowNumbers::new(slots),
            readers: VecDeque::new(),
            unread: 0,
            parts: Slots::new(),
            staged: 0,
            probe: None,
        }
    }

    /// Used bytes of the grant.
    pub(super) fn grant_used(&self) -> u64 {
        self.grant_used
    }

    /// Whether an answer can begin.
    pub(super) fn is_ready(&self) -> bool {
        !self.turns.is_empty() || self.probe.is_some()
    }

    /// Whether the slot is free; `None` if it does not exist.
    pub(super) fn is_free(&self, slot: u32) -> Option<bool> {
        self.slots.get(slot as usize).map(|slot| slot.left == 0)
    }

    /// A request with `entries` takes the slot.
    pub(super) fn open(&mut self, slot: u32, entries: u32) {
        let slot = &mut self.slots[slot as usize];
        slot.left = entries;
        slot.is_coming = true;
    }

    /// The slot's request is received completely, and `add` was called for each entry.
    pub(super) fn opened(&mut self, slot: u32) {
        self.slots[slot as usize].is_coming = false;
        self.settle_indices(slot);
    }

    /// Add an answer, to be sent in the slot's turn.
    pub(super) fn add<K>(
        &mut self,
        slot: u32,
        tag: u32,
        version: u64,
        cost: u64,
        body: Body,
        storages: &mut Storages<K>,
    ) {
        if let Some(storage) = body.storage() {
            storages.hold(storage, self.reader, 1);
        }
        self.grant_used += cost;
        let answer = Answer {
            tag,
            version,
            cost,
            body,
            next: NONE,
        };
        let is_unread = matches!(answer.body, Body::Unread(_));
        let index = self.waiting.insert(answer).index;
        if is_unread {
            self.await_read(slot, index);
        } else {
            self.link(slot, index);
        }
    }

    /// Append an answer to those that can be sent.
    fn link(&mut self, slot: u32, index: u32) {
        let at = &mut self.slots[slot as usize];
        if at.first == NONE {
            at.first = index;
            self.turns.push_back(slot);
        } else if let Some((_, before)) = self.waiting.at_mut(at.last) {
            before.next = index;
        }
        at.last = index;
    }

    /// Memory for `bytes` of row numbers of the slot's request; it does not move until an answer of the request is
    /// added.
    pub(super) fn indices(&mut self, slot: u32, bytes: usize) -> Span {
        self.numbers.room(slot, bytes)
    }

    /// Row numbers that came with the slot's request.
    pub(super) fn words(&self, slot: u32, from: usize, rows: usize) -> Words {
        self.numbers.words(slot, from, rows)
    }

    /// After fewer of the slot's row numbers are needed: free what the peer must not keep.
    fn settle_indices(&mut self, slot: u32) {
        if !self.numbers.exceeds_kept() || self.slots[slot as usize].is_coming {
            return;
        }
        let mut needed = 0;
        self.each_numbered(slot, |_, bytes| needed += bytes);
        let Some(list) = self.numbers.take_large(slot, needed) else {
            return;
        };
        let mut fitting = Vec::with_capacity(needed);
        self.each_numbered(slot, |from, bytes| {
            fitting.extend_from_slice(&list[*from..*from + bytes]);
            *from = fitting.len() - bytes;
        });
        self.numbers.put(slot, fitting);
    }

    /// Call `each` for each answer of a slot with row numbers: their offset and their bytes.
    fn each_numbered(&mut self, slot: u32, mut each: impl FnMut(&mut usize, usize)) {
        let Slot { first, unread, .. } = self.slots[slot as usize];
        for mut index in [first, unread] {
            while let Some((_, answer)) = self.waiting.at_mut(index) {
                if let Some((from, rows)) = answer.body.numbers() {
                    each(from, 8 * rows);
                }
                index = answer.next;
            }
        }
    }

    /// Accept a liveness probe. Returns whether it is valid: one at a time.
    pub(super) fn probe(&mut self, tag: u32) -> bool {
        self.probe.replace(tag).is_none()
    }

    /// Begin answers until enough waits to be sent.
    pub(super) fn begin<K>(&mut self, outbox: &mut Outbox, storages: &mut Storages<K>) {
        // Bounded too: a peer that probes and reads nothing would make the outbox grow without limit.
        if outbox.bytes() < BEGUN_BYTES
            && let Some(tag) = self.probe.take()
        {
            let header = ResponseHeader {
                status: Status::Ok,
                last: false,
                tag,
                bytes: 0,
                version: u64::from(NO_SLOT),
            };
            outbox.push(&header.encode());
        }
        while outbox.bytes() < BEGUN_BYTES
            && let Some(slot) = self.turns.pop_front()
        {
            let at = &mut self.slots[slot as usize];
            let first = self.waiting.at(at.first).map(|(key, _)| key);
            let answer = first.and_then(|key| self.waiting.remove(key));
            let answer = answer.expect("a slot in turn has an answer");
            at.first = answer.next;
            at.left -= 1;
            if at.first != NONE {
                self.turns.push_back(slot);
            }
            self.grant_used -= answer.cost;
            let of_slot = (self.numbers.list(slot), at.left == 0);
            send(answer, of_slot, outbox, (storages, self.reader));
            self.settle_indices(slot);
        }
    }

    /// Cancel answers that have not begun.
    pub(super) fn cancel<K>(&mut self, slot: u32, tag: u32, storages: &mut Storages<K>) {
        self.cancel_reads(slot, tag, storages);
        let mut index = self.slots[slot as usize].first;
        while let Some((_, answer)) = self.waiting.at_mut(index) {
            if answer.tag == tag
                && matches!(
                    answer.body,
                    Body::Rows { .. } | Body::Gather { .. } | Body::Staged { .. } | Body::Owned(_)
                )
            {
                if let Some(storage) = answer.body.storage() {
                    storages.release(storage, self.reader, 1);
                }
                answer.body = Body::Canceled;
            }
            index = answer.next;
        }
        self.settle_indices(slot);
    }

    /// Release all storages.
    pub(super) fn clear<K>(&mut self, storages: &mut Storages<K>) {
        for (_, answer) in self.waiting.iter() {
            if let Some(storage) = answer.body.storage() {
                storages.release(storage, self.reader, 1);
            }
        }
        *self = Self::new(0);
    }
}

/// The rows of a gathering answer; their numbers were checked when they were received.
fn each_row(
    tensor: Span,
    row_bytes: usize,
    indices: &[u8],
    from: usize,
    rows: usize,
) -> impl Iterator<Item = Span> {
    let words = Words::new(Span::sending(&indices[from..from + 8 * rows]));
    (0..rows).map(move |at| {
        let row = usize::try_from(words.get(at)).expect("checked against rows that are in memory");
        tensor.part(row * row_bytes, row_bytes)
    })
}

/// Begin an answer, maybe the `last` of its slot. `reader` is the peer that holds its storage.
fn send<K>(
    answer: Answer,
    (indices, last): (&[u8], bool),
    outbox: &mut Outbox,
    (storages, reader): (&mut Storages<K>, u32),
) {
    let mut header = ResponseHeader {
        status: Status::Ok,
        last,
        tag: answer.tag,
        bytes: 0,
        version: answer.version,
    };
    match answer.body {
        Body::Done => outbox.push(&header.encode()),
        Body::Canceled => {
            header.status = Status::Canceled;
            outbox.push(&header.encode());
        }
        Body::Rows { storage, rows } => {
            header.bytes = rows.bytes() as u64;
            outbox.push(&header.encode());
            if rows.bytes() <= COPY_BYTES {
                outbox.push_copy(rows);
                storages.release(storage, reader, 1);
            } else {
                // The span carries the hold on its storage: `Peer::sent` releases it.
                outbox.push_lent(rows, storage);
            }
        }
        Body::Gather {
            storage,
            tensor,
            row_bytes,
            from,
            rows,
        } => {
            header.bytes = (rows * row_bytes) as u64;
            outbox.push(&header.encode());
            for row in each_row(tensor, row_bytes, indices, from, rows) {
                if row_bytes <= COPY_BYTES {
                    outbox.push_copy(row);
                } else if outbox.push_lent(row, storage) {
                    storages.hold(storage, reader, 1);
                }
            }
            storages.release(storage, reader, 1);
        }
        Body::Owned(bytes) => {
            header.bytes = bytes.len() as u64;
            outbox.push(&header.encode());
            outbox.push_owned(bytes);
        }
        Body::Staged {
            storage,
            memory,
            row_bytes,
            stride_bytes,
        } => {
            let rows = memory.bytes() / stride_bytes;
            header.bytes = (rows * row_bytes) as u64;
            outbox.push(&header.encode());
            let held = (storage, reader);
            reads::send_rows(held, memory, (row_bytes, stride_bytes), outbox, storages);
        }
        Body::Unread(_) => unreachable!("linked only once it was read"),
        Body::Refusal(error) => send_refusal(header, &error, outbox),
    }
}

fn send_refusal(mut header: ResponseHeader, error: &Error, outbox: &mut Outbox) {
    header.status = Status::of(error);
    header.version = match *error {
        Error::Stale { current, .. } => u64::from(current),
        Error::OutOfRange { row, .. } => row,
        _ => 0,
    };
    let text = error.to_string();
    let ends = |end: &usize| text.is_char_boundary(*end);
    let end = (0..=text.len().min(REFUSAL_TEXT_BYTES_MAX))
        .rev()
        .find(ends);
    let text = &text[..end.unwrap_or(0)];
    header.bytes = text.len() as u64;
    outbox.push(&header.encode());
    outbox.push(text.as_bytes());
}
