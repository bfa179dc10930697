//! What callers ask of a requester, and what they are told in the end.
use std::time::Duration;

use crate::error::Error;
use crate::names::{Meaning, Unknown};
use crate::slab::Id;
use crate::sys::span::{Span, Words};
use crate::table::Key;
use crate::wire::{ENTRIES_MAX, Operation};

/// What a requester may have in flight and waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests that may be with the peer, 1 to 1024.
    pub slots: u32,
    /// Bytes of responses that may be with the peer.
    pub grant_bytes: u64,
    /// Rows or indices above this go in pieces; at least one row each.
    pub piece_bytes: u64,
    /// Entries of a request, 1 to 256; 1 sends every pull on its own.
    pub entries_max: u32,
    /// Pulls and pushes that may wait.
    pub waiting_max: u32,
    /// How long the peer may be silent while something is outstanding.
    pub liveness: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            slots: 16,
            grant_bytes: 16 << 20,
            piece_bytes: 1 << 20,
            entries_max: 256,
            waiting_max: 65_536,
            liveness: Duration::from_secs(5),
        }
    }
}

/// Most slots of a peer.
const SLOTS_MAX: u32 = 1024;
/// Most bytes of a grant: sums of several stay far below 2^64.
const GRANT_BYTES_MAX: u64 = 1 << 40;

/// Check what a server grants.
///
/// # Errors
///
/// [`Error::Config`].
pub(crate) fn check_limits(slots: u32, grant_bytes: u64) -> Result<(), Error> {
    check(
        "slots",
        u64::from(slots),
        1..=u64::from(SLOTS_MAX),
        "1 to 1024 are possible",
    )?;
    let advice = "1 byte to 2^40 bytes are possible";
    check("grant_bytes", grant_bytes, 1..=GRANT_BYTES_MAX, advice)
}

fn check(
    setting: &'static str,
    value: u64,
    range: std::ops::RangeInclusive<u64>,
    advice: &'static str,
) -> Result<(), Error> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(Error::Config {
        setting,
        value,
        advice,
    })
}

impl Limits {
    /// Check that each can be a limit.
    ///
    /// # Errors
    ///
    /// [`Error::Config`].
    pub fn check(&self) -> Result<(), Error> {
        check_limits(self.slots, self.grant_bytes)?;
        let entries = u64::from(self.entries_max);
        check(
            "entries_max",
            entries,
            1..=ENTRIES_MAX as u64,
            "1 to 256 are possible",
        )?;
        let advice = "1 byte to 2^40 bytes are possible";
        check("piece_bytes", self.piece_bytes, 1..=GRANT_BYTES_MAX, advice)
    }

    /// Row numbers and values that a request carries, unless a single entry has more.
    pub(super) fn request_bytes(&self) -> u64 {
        self.piece_bytes.min(self.grant_bytes)
    }

    /// Rows of a piece, each of which takes `unit` bytes.
    pub(super) fn rows_of_piece(&self, unit: u64) -> u64 {
        (self.request_bytes() / unit).clamp(1, u64::from(u32::MAX))
    }
}

/// Which rows.
#[derive(Clone, Copy, Debug)]
pub enum Rows {
    /// Rows that follow each other.
    Slice {
        /// The first one.
        first: u64,
        /// How many.
        count: u64,
    },
    /// Rows by their numbers, in any order, some perhaps twice. The keeper keeps them.
    Indices(Words),
}

impl Rows {
    /// How many rows.
    pub fn count(&self) -> u64 {
        match self {
            Self::Slice { count, .. } => *count,
            Self::Indices(words) => words.count() as u64,
        }
    }
}

/// Rows to get.
#[derive(Clone, Copy, Debug)]
pub struct Pull {
    /// The tensor.
    pub tensor: Key,
    /// Bytes of a row.
    pub row_bytes: u64,
    /// Rows that the tensor has, against which `rows` are checked.
    pub rows_total: u64,
    /// The rows.
    pub rows: Rows,
    /// Where they go, one after the other; the machine's until the keeper comes back.
    pub out: Span,
    /// For each row its place in `out`, in rows; `None` where row n goes to place n.
    pub places: Option<Words>,
}

/// Rows to set, or to add to.
#[derive(Clone, Copy, Debug)]
pub struct Push {
    /// The tensor.
    pub tensor: Key,
    /// Bytes of a row.
    pub row_bytes: u64,
    /// Rows that the tensor has, against which `rows` are checked.
    pub rows_total: u64,
    /// The rows.
    pub rows: Rows,
    /// The values, one row after the other; to be left as they are until the keeper comes back.
    pub values: Span,
    /// For each row its place in `values`, in rows; `None` where row n lies at place n.
    pub places: Option<Words>,
    /// Set or add.
    pub operation: Operation,
}

/// Names a pull, push or look-up of one requester, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(u64);

impl Ticket {
    pub(super) fn of(id: Id) -> Self {
        Self(u64::from(id.count) << 32 | u64::from(id.index))
    }

    #[allow(clippy::cast_possible_truncation)] // each half is a number of 32 bits
    pub(super) fn id(self) -> Id {
        Id {
            index: self.0 as u32,
            count: (self.0 >> 32) as u32,
        }
    }

    /// The number, for a table of the caller's.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// Nothing has happened, and this is why.
#[derive(Debug)]
pub struct Refused<K> {
    /// Why.
    pub error: Error,
    /// The keeper that came with it.
    pub keeper: K,
}

/// What was asked for, when all went well.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The rows are where they were to go.
    Moved {
        /// The tensor's version: of the rows of a pull, and after a push. 0 where no row was asked for.
        version: u64,
    },
    /// What the names mean, in their order.
    Names(Vec<Result<Meaning, Unknown>>),
}

/// What became of a pull, push or look-up.
#[derive(Debug)]
pub enum End<K> {
    /// It has ended, and its memory is the caller's again.
    Over {
        /// Which one.
        ticket: Ticket,
        /// What kept its memory.
        keeper: K,
        /// How it ended.
        result: Result<Outcome, Error>,
    },
    /// Nobody writes the memory of one that was canceled any more.
    Released {
        /// Which one.
        ticket: Ticket,
        /// What kept its memory.
        keeper: K,
    },
}

/// What a cancel did.
#[derive(Debug, PartialEq, Eq)]
pub enum Canceled<K> {
    /// It was waiting, and is over; its memory is the caller's. Of one that goes in pieces some may have come.
    TakenBack(K),
    /// It is over for its caller; its memory is in quarantine until `End::Released`.
    Detached,
    /// It had ended, or was canceled, before.
    Gone,
}
