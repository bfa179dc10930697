//! The operations of a requester, their results, and its limits.
use std::time::Duration;

use forebay_base::slots;

use crate::error::Error;
use crate::names::{Meaning, Unknown};
use crate::sys::span::{Span, Words};
use crate::table::Key;
use crate::wire::{ENTRIES_MAX, Operation};

/// Limits of a requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests in flight, 1 to 1024.
    pub slots: u32,
    /// Bytes of outstanding responses.
    pub grant_bytes: u64,
    /// Larger pulls and pushes are split into pieces of this size, of at least one row.
    pub piece_bytes: u64,
    /// Entries of a request, 1 to 256; with 1 every pull has its own request.
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

/// Largest number of slots.
const SLOTS_MAX: u32 = 1024;
/// Largest grant: sums of several stay far below 2^64.
const GRANT_BYTES_MAX: u64 = 1 << 40;

/// Check the limits that a server grants.
///
/// # Errors
///
/// [`Error::Config`].
pub(crate) fn check_limits(slots: u32, grant_bytes: u64) -> Result<(), Error> {
    check(
        "slots",
        u64::from(slots),
        1..=u64::from(SLOTS_MAX),
        "use 1 to 1024",
    )?;
    let advice = "use 1 to 2^40 bytes";
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
    /// Check each limit.
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
            "use 1 to 256",
        )?;
        let advice = "use 1 to 2^40 bytes";
        check("piece_bytes", self.piece_bytes, 1..=GRANT_BYTES_MAX, advice)
    }

    /// Bytes of row numbers and values of a request, unless a single entry has more.
    pub(super) fn request_bytes(&self) -> u64 {
        self.piece_bytes.min(self.grant_bytes)
    }

    /// Rows of a piece, if a row takes `unit` bytes.
    pub(super) fn rows_of_piece(&self, unit: u64) -> u64 {
        (self.request_bytes() / unit).clamp(1, u64::from(u32::MAX))
    }
}

/// A selection of rows.
#[derive(Clone, Copy, Debug)]
pub enum Rows {
    /// Consecutive rows.
    Slice {
        /// The first one.
        first: u64,
        /// How many.
        count: u64,
    },
    /// Rows by number, in any order, possibly repeated. The keeper keeps the numbers' memory.
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

/// A pull of rows.
#[derive(Clone, Copy, Debug)]
pub struct Pull {
    /// The tensor.
    pub tensor: Key,
    /// Bytes of a row.
    pub row_bytes: u64,
    /// Rows of the tensor, against which `rows` are checked.
    pub rows_total: u64,
    /// The rows.
    pub rows: Rows,
    /// Where they go, in order; borrowed until the keeper is returned.
    pub out: Span,
    /// The place of each row in `out`, counted in rows; `None` if row n goes to place n.
    pub places: Option<Words>,
}

/// A push of rows.
#[derive(Clone, Copy, Debug)]
pub struct Push {
    /// The tensor.
    pub tensor: Key,
    /// Bytes of a row.
    pub row_bytes: u64,
    /// Rows of the tensor, against which `rows` are checked.
    pub rows_total: u64,
    /// The rows.
    pub rows: Rows,
    /// The values, row by row; they must not change until the keeper is returned.
    pub values: Span,
    /// The place of each row in `values`, counted in rows; `None` if row n is at place n.
    pub places: Option<Words>,
    /// Set or add.
    pub operation: Operation,
}

/// Identifies a pull, push or look-up of one requester until it has ended; a stale one finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(slots::Key);

impl Ticket {
    pub(super) fn of(key: slots::Key) -> Self {
        Self(key)
    }

    pub(super) fn key(self) -> slots::Key {
        self.0
    }

    /// The ticket as a number, for a table of the caller.
    pub fn number(self) -> u64 {
        self.0.to_bits()
    }
}

/// A refused operation: nothing has happened.
#[derive(Debug)]
pub struct Refused<K> {
    /// Why.
    pub error: Error,
    /// The keeper of the operation.
    pub keeper: K,
}

/// The result of an operation that succeeded.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The rows were transferred.
    Moved {
        /// The tensor's version: of the rows of a pull, or after a push. 0 for an operation without rows.
        version: u64,
    },
    /// The result for each name, in order.
    Names(Vec<Result<Meaning, Unknown>>),
}

/// The end of a pull, push or look-up.
#[derive(Debug)]
pub enum End<K> {
    /// It has ended, and its memory is free again.
    Over {
        /// The ticket.
        ticket: Ticket,
        /// The keeper of its memory.
        keeper: K,
        /// How it ended.
        result: Result<Outcome, Error>,
    },
    /// The memory of a canceled one is free again: nothing can write it any more.
    Released {
        /// The ticket.
        ticket: Ticket,
        /// The keeper of its memory.
        keeper: K,
    },
}

/// The result of a cancel.
#[derive(Debug, PartialEq, Eq)]
pub enum Canceled<K> {
    /// It was waiting and has ended; its memory is free. Some pieces may have been transferred before.
    TakenBack(K),
    /// It has ended for its caller; its memory is in quarantine until `End::Released`.
    Detached,
    /// It had ended or was canceled before.
    Gone,
}
