//! One pull, push or look-up: what is left of it, and the results so far.
use super::NONE;
use super::request::{Limits, Outcome};
use super::transfer::Transfer;
use crate::error::Error;
use crate::names::frame::decode_answers;
use crate::names::{Meaning, Unknown};
use crate::wire::Kind;

/// Attempts to pull pieces of one version.
const TRIES_MAX: u32 = 5;

/// What a job does.
#[derive(Debug)]
pub(super) enum Task {
    Move(Transfer),
    /// The encoded names.
    LookUp {
        list: Vec<u8>,
        count: u16,
    },
}

/// A job from its submission until its keeper is returned.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // they are independent
pub(super) struct Job<K> {
    keeper: K,
    work: Task,
    /// Rows that were requested.
    asked: u64,
    /// Pieces that are with the peer, and the first of their list.
    flying: u32,
    first: u32,
    /// The version of the pieces that were received.
    version: Option<u64>,
    /// Pieces of several versions were received.
    is_torn: bool,
    tries: u32,
    /// All of its pieces must share a request, which the owner answers with one version.
    whole: bool,
    /// In the queue.
    is_waiting: bool,
    /// It has ended for its caller: only its memory is not back yet.
    is_detached: bool,
    error: Option<Error>,
    /// The result of a look-up: encoded while it is received, then decoded.
    names: Option<Vec<u8>>,
    meanings: Option<Vec<Result<Meaning, Unknown>>>,
}

impl<K> Job<K> {
    pub(super) fn new(work: Task, keeper: K) -> Self {
        Self {
            keeper,
            work,
            asked: 0,
            flying: 0,
            first: NONE,
            version: None,
            is_torn: false,
            tries: 1,
            whole: false,
            is_waiting: true,
            is_detached: false,
            error: None,
            names: None,
            meanings: None,
        }
    }

    /// What it does.
    pub(super) fn work(&self) -> &Task {
        &self.work
    }

    pub(super) fn into_keeper(self) -> K {
        self.keeper
    }

    // --- what is requested of it ---

    /// Rows that were requested.
    pub(super) fn rows_asked(&self) -> u64 {
        self.asked
    }

    /// More rows are requested.
    pub(super) fn ask(&mut self, rows: u64) {
        self.asked += rows;
    }

    /// Rows that were not requested yet.
    pub(super) fn rows_left(&self) -> u64 {
        match &self.work {
            Task::Move(transfer) => transfer.rows.count() - self.asked,
            Task::LookUp { .. } => 0,
        }
    }

    /// Whether all of its pieces must share a request.
    pub(super) fn is_whole(&self) -> bool {
        self.whole
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// It leaves the queue; returns whether it was there.
    pub(super) fn stop_waiting(&mut self) -> bool {
        std::mem::take(&mut self.is_waiting)
    }

    // --- its pieces that are with the peer ---

    pub(super) fn is_flying(&self) -> bool {
        self.flying > 0
    }

    /// The first piece of its list.
    pub(super) fn first_piece(&self) -> u32 {
        self.first
    }

    pub(super) fn set_first_piece(&mut self, piece: u32) {
        self.first = piece;
    }

    pub(super) fn piece_flies(&mut self) {
        self.flying += 1;
    }

    pub(super) fn piece_landed(&mut self) {
        self.flying -= 1;
    }

    // --- how it ends ---

    /// It ends for its caller, and keeps its memory until the peer has answered.
    pub(super) fn detach(&mut self) {
        self.is_detached = true;
    }

    pub(super) fn is_detached(&self) -> bool {
        self.is_detached
    }

    /// Whether more rows are of no use.
    pub(super) fn is_given_up(&self) -> bool {
        self.error.is_some() || self.is_detached
    }

    /// Whether pieces of several versions were received.
    pub(super) fn is_torn(&self) -> bool {
        self.is_torn
    }

    /// A piece was refused; the first error stays.
    pub(super) fn fail(&mut self, error: Error) {
        self.error.get_or_insert(error);
    }

    pub(super) fn take_error(&mut self) -> Option<Error> {
        self.error.take()
    }

    /// How it has ended.
    pub(super) fn take_result(&mut self) -> Result<Outcome, Error> {
        match (self.error.take(), self.meanings.take()) {
            (Some(error), _) => Err(error),
            (None, Some(meanings)) => Ok(Outcome::Names(meanings)),
            (None, None) => Ok(Outcome::Moved {
                version: self.version.unwrap_or(0),
            }),
        }
    }

    /// Begin a torn pull again, in one request if the limits allow it. Returns `false` if it must end instead: it was
    /// torn too often, and has failed now.
    pub(super) fn begin_again(&mut self, limits: &Limits) -> bool {
        let Task::Move(transfer) = &self.work else {
            return false;
        };
        let rows = transfer.rows.count();
        if self.tries == TRIES_MAX {
            self.error = Some(Error::Torn {
                tensor: transfer.tensor.id,
                tries: self.tries,
                bytes: rows * transfer.row_bytes,
            });
            return false;
        }
        let rows_of_piece = limits.rows_of_piece(transfer.unit());
        self.whole = rows * transfer.unit() <= limits.grant_bytes
            && rows.div_ceil(rows_of_piece) <= u64::from(limits.entries_max);
        self.tries += 1;
        self.asked = 0;
        self.version = None;
        self.is_torn = false;
        self.is_waiting = true;
        true
    }

    /// Memory for the result of a look-up.
    pub(super) fn names_buffer(&mut self, bytes: usize) -> &mut Vec<u8> {
        self.names.insert(vec![0; bytes])
    }

    /// The result of a look-up was received completely.
    ///
    /// # Errors
    ///
    /// What is wrong with it, for an error message.
    pub(super) fn decode_names(&mut self) -> Result<(), String> {
        let (Task::LookUp { count, .. }, Some(bytes)) = (&self.work, &self.names) else {
            unreachable!("only a look-up has names");
        };
        self.meanings = Some(decode_answers(bytes, *count)?);
        Ok(())
    }

    /// A piece of this version was received.
    pub(super) fn note_version(&mut self, version: u64) {
        let is_pull = matches!(&self.work, Task::Move(transfer) if transfer.kind == Kind::Pull);
        match self.version {
            Some(before) if is_pull => self.is_torn |= before != version,
            before => self.version = Some(before.unwrap_or(0).max(version)),
        }
    }
}
