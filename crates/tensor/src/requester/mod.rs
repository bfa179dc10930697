//! Pulls and pushes of one client at one server: which is sent next, what a response means, when each has ended.
//! Sans-I/O.
//!
//! # States of a job
//!
//! *waiting* (in the queue; not all of it is requested) -> *flying* (its pieces are with the peer) -> *over*.
//! A job that is canceled while flying is *detached*: it has ended for its caller, and its keeper comes back with the
//! response to its last piece, because the peer may write its memory until then.
//!
//! # Invariants
//!
//! 1. Each job ends once, and its keeper is returned once.
//! 2. At most `slots` requests and `grant_bytes` of responses are with the peer.
//! 3. A response is checked against its piece before any byte of it is accepted, and memory is written only for pieces
//!    that are flying.
//! 4. Memory that is being sent stays borrowed: a response to a request that is not sent completely violates the
//!    protocol, since it would end the job whose memory the outbox still reads.
//! 5. A pull returns one version. If its pieces have several it is pulled again, in one request if the grant allows it,
//!    because the owner answers one request with one version.
//!
//! The first attempt sends pieces separately, since that starts sooner than waiting for a grant for all of them, and
//! writes during a pull are rare.
mod issue;
mod job;
mod receive;
mod request;
mod time;
mod transfer;

pub use request::{Canceled, End, Limits, Outcome, Pull, Push, Refused, Rows, Ticket};

use std::collections::VecDeque;
use std::time::Instant;

use forebay_base::slots::{self, Slots};

use crate::error::Error;
use crate::inbox::Inbox;
use crate::names::frame::{NAME_BYTES_MAX, encode_name};
use crate::outbox::Outbox;
use crate::sys::span::Span;
use crate::wire::{ENTRIES_MAX, Kind};
use job::{Job, Task};
use receive::Phase;
pub(crate) use request::check_limits;
use transfer::Transfer;

/// Size of the receive buffer: responses to 16 pulls of 4 KiB and more.
const INBOX_BYTES: usize = 128 << 10;
/// The bits of a tag that are the slot of a piece; the others are its generation. Bit 31 stays clear.
const TAG_INDEX: u32 = (1 << 18) - 1;
const TAG_TURNS: u32 = (1 << 13) - 1;
/// The tag of a liveness probe, which no piece has.
const PROBE_TAG: u32 = u32::MAX;

/// A piece that is with the peer.
#[derive(Clone, Copy, Debug)]
struct Flying {
    job: slots::Key,
    slot: u32,
    /// The first of its rows among those of the job.
    from: u64,
    /// Bytes that its response must have.
    bytes: u64,
    /// Bytes of the grant that it takes.
    cost: u64,
    /// Spans of the caller's memory that are not sent yet.
    lent: u32,
    /// It is received directly into its destination.
    is_large: bool,
    /// Neighbours in the list of its job's pieces.
    before: u32,
    next: u32,
}

/// No piece.
const NONE: u32 = u32::MAX;

/// The jobs of one client at one server. Used by one thread at a time.
///
/// `K` keeps the memory of a job, and is returned once; it may carry other data of the job.
#[derive(Debug)]
pub struct Requester<K> {
    limits: Limits,
    jobs: Slots<Job<K>>,
    queue: VecDeque<slots::Key>,
    flying: Slots<Flying>,
    /// Unanswered pieces of each slot.
    slots: Vec<u32>,
    free_slots: Vec<u32>,
    grant_left: u64,
    /// Pieces of the request that is being made, and their rows.
    batch: Vec<(slots::Key, u64)>,
    outbox: Outbox,
    inbox: Inbox,
    phase: Phase,
    /// Flying pieces that are received directly into their destination.
    large: u32,
    ends: VecDeque<End<K>>,
    broken: Option<Error>,
    silence: time::SilenceTimer,
    is_probing: bool,
}

fn tag_of(piece: slots::Key) -> u32 {
    debug_assert!(piece.index <= TAG_INDEX, "1024 slots of 256 entries");
    piece.index | (piece.generation & TAG_TURNS) << TAG_INDEX.count_ones()
}

impl<K> Requester<K> {
    /// A requester whose peer grants what `limits` say.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for an invalid limit.
    pub fn new(limits: Limits, now: Instant) -> Result<Self, Error> {
        limits.check()?;
        Ok(Self {
            limits,
            jobs: Slots::new(),
            queue: VecDeque::new(),
            flying: Slots::new(),
            slots: vec![0; limits.slots as usize],
            free_slots: (0..limits.slots).rev().collect(),
            grant_left: limits.grant_bytes,
            batch: Vec::with_capacity(ENTRIES_MAX),
            outbox: Outbox::default(),
            inbox: Inbox::new(INBOX_BYTES),
            phase: Phase::Header,
            large: 0,
            ends: VecDeque::new(),
            broken: None,
            silence: time::SilenceTimer::new(now),
            is_probing: false,
        })
    }

    /// Pull rows. A pull of no rows ends at once.
    ///
    /// # Errors
    ///
    /// Returned with the keeper, and nothing has happened: [`Error::OutOfRange`]; [`Error::Config`] for memory of
    /// another size; [`Error::Limit`] if too many wait, or a row is larger than the grant; the error that the
    /// connection broke with.
    pub fn pull(&mut self, pull: Pull, keeper: K) -> Result<Ticket, Refused<K>> {
        let transfer = Transfer {
            kind: Kind::Pull,
            tensor: pull.tensor,
            row_bytes: pull.row_bytes,
            rows_total: pull.rows_total,
            rows: pull.rows,
            memory: pull.out,
            places: pull.places,
        };
        self.transfer_rows(transfer, keeper)
    }

    /// Set rows, or add to them. A push that is longer than a piece is applied piece by piece.
    ///
    /// # Errors
    ///
    /// As [`Requester::pull`].
    pub fn push(&mut self, push: Push, keeper: K) -> Result<Ticket, Refused<K>> {
        let transfer = Transfer {
            kind: Kind::Push(push.operation),
            tensor: push.tensor,
            row_bytes: push.row_bytes,
            rows_total: push.rows_total,
            rows: push.rows,
            memory: push.values,
            places: push.places,
        };
        self.transfer_rows(transfer, keeper)
    }

    /// Look 1 to 256 names up.
    ///
    /// # Errors
    ///
    /// Returned with the keeper, and nothing has happened: [`Error::Name`], [`Error::Config`] for another number of
    /// them; [`Error::Limit`] if too many wait; the error that the connection broke with.
    pub fn look_up(&mut self, names: &[&str], keeper: K) -> Result<Ticket, Refused<K>> {
        let count = u16::try_from(names.len()).unwrap_or(u16::MAX);
        if !(1..=ENTRIES_MAX).contains(&names.len()) {
            let error = Error::Config {
                setting: "the number of names",
                value: names.len() as u64,
                advice: "look up 1 to 256 at once",
            };
            return Err(Refused { error, keeper });
        }
        let mut list = Vec::new();
        for name in names {
            if !(1..=NAME_BYTES_MAX).contains(&name.len()) {
                let error = Error::Name {
                    name: (*name).into(),
                    advice: "must have 1 to 255 bytes in one line",
                };
                return Err(Refused { error, keeper });
            }
            encode_name(name, &mut list);
        }
        self.submit(Task::LookUp { list, count }, keeper)
    }

    fn transfer_rows(&mut self, transfer: Transfer, keeper: K) -> Result<Ticket, Refused<K>> {
        match transfer.check(self.limits.grant_bytes) {
            Ok(()) => self.submit(Task::Move(transfer), keeper),
            Err(error) => Err(Refused { error, keeper }),
        }
    }

    fn submit(&mut self, work: Task, keeper: K) -> Result<Ticket, Refused<K>> {
        if let Err(error) = self.check_room() {
            return Err(Refused { error, keeper });
        }
        let is_nothing = matches!(&work, Task::Move(transfer) if transfer.rows.count() == 0);
        let key = self.jobs.insert(Job::new(work, keeper));
        if is_nothing {
            self.end(key, Ok(Outcome::Moved { version: 0 }));
        } else {
            self.queue.push_back(key);
        }
        Ok(Ticket::of(key))
    }

    fn check_room(&self) -> Result<(), Error> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let maximum = u64::from(self.limits.waiting_max);
        let value = self.queue.len() as u64 + 1;
        if value <= maximum {
            return Ok(());
        }
        Err(Error::Limit {
            limit: "max_waiting",
            value,
            maximum,
            advice: "wait for some to end",
        })
    }

    /// Cancel a job. Pieces that the peer has continue without the caller.
    pub fn cancel(&mut self, ticket: Ticket) -> Canceled<K> {
        let key = ticket.key();
        let Some(job) = self.jobs.get(key).filter(|job| !job.is_detached()) else {
            return Canceled::Gone;
        };
        if job.is_flying() {
            self.detach(key);
            return Canceled::Detached;
        }
        self.leave_queue(key);
        match self.jobs.remove(key) {
            Some(job) => Canceled::TakenBack(job.into_keeper()),
            None => Canceled::Gone,
        }
    }

    /// The next bytes to send, in order; returns how many of `into` were set, 0 if there is nothing.
    ///
    /// They are valid until the requester is changed.
    pub fn outgoing(&mut self, into: &mut [Span]) -> usize {
        let was_idle = self.is_idle();
        self.issue();
        if was_idle && !self.is_idle() {
            self.silence.begins();
        }
        self.outbox.gather(into)
    }

    /// `bytes` of `outgoing` were sent.
    ///
    /// # Panics
    ///
    /// If there were fewer.
    pub fn sent(&mut self, bytes: usize, now: Instant) {
        let flying = &mut self.flying;
        self.outbox.sent(bytes, |index| {
            // A piece stays until all of its memory has been sent.
            let (_, piece) = flying.at_mut(index).expect("kept while it is sent");
            piece.lent -= 1;
        });
        self.silence.sent(bytes > 0 && !self.outbox.is_empty(), now);
    }

    /// Whether there is something to send.
    pub fn wants_write(&self) -> bool {
        !self.outbox.is_empty() || self.can_issue()
    }

    /// Where to receive the next bytes, in order; only the second span may be empty.
    ///
    /// They are valid until the requester is changed.
    pub fn incoming(&mut self) -> [Span; 2] {
        let ahead = self.ahead();
        self.inbox.spans(ahead)
    }

    /// `bytes` were received into the spans of `incoming`.
    ///
    /// # Errors
    ///
    /// [`Error::Protocol`]: close the socket, then [`Requester::break_off`].
    pub fn received(&mut self, bytes: usize, now: Instant) -> Result<(), Error> {
        if self.broken.is_some() {
            return Ok(());
        }
        if bytes > 0 {
            self.silence.heard(now);
        }
        self.inbox.received(bytes);
        while self.step()? {}
        Ok(())
    }

    /// As `incoming` and `received`, for bytes in a buffer of the caller.
    ///
    /// # Errors
    ///
    /// As [`Requester::received`].
    pub fn feed(&mut self, mut bytes: &[u8], now: Instant) -> Result<(), Error> {
        while !bytes.is_empty() && self.broken.is_none() {
            let count = crate::inbox::fill(self.inbox.spans(usize::MAX), bytes);
            bytes = &bytes[count..];
            self.received(count, now)?;
        }
        Ok(())
    }

    /// Check the peer's silence; returns when to check again.
    ///
    /// It may queue a liveness probe to send: after half of the limit, so that an idle but live peer has time to
    /// answer.
    ///
    /// # Errors
    ///
    /// [`Error::Silent`]: close the socket, then [`Requester::break_off`].
    pub fn expire(&mut self, now: Instant) -> Result<Option<Instant>, Error> {
        if self.is_idle() {
            return Ok(None);
        }
        let since = self.silence.silent_since(now);
        let limit = self.limits.liveness;
        let silent = now.saturating_duration_since(since);
        if silent >= limit {
            return Err(Error::Silent { silent, limit });
        }
        if silent >= limit / 2 && !self.is_probing {
            self.is_probing = true;
            self.send_probe();
        }
        let looks = if self.is_probing { limit } else { limit / 2 };
        Ok(Some(since + looks))
    }

    /// End all jobs with `error`, and refuse later ones. The caller has fenced the peer: its socket is closed, so
    /// their memory is free.
    ///
    /// Idempotent; the first error stays.
    pub fn break_off(&mut self, error: Error) {
        if self.broken.is_some() {
            return;
        }
        self.queue.clear();
        self.outbox.clear(|_| {});
        self.inbox.clear();
        self.phase = Phase::Header;
        self.is_probing = false;
        self.large = 0;
        for index in 0..self.flying.end() {
            if let Some((piece, _)) = self.flying.at(index) {
                self.flying.remove(piece);
            }
        }
        for index in 0..self.jobs.end() {
            let Some((key, job)) = self.jobs.at_mut(index) else {
                continue;
            };
            // A job that was refused before keeps its own error.
            let own = job.take_error();
            self.end(key, Err(own.unwrap_or_else(|| error.clone())));
        }
        self.broken = Some(error);
    }

    /// The next ended job, oldest first.
    pub fn take_end(&mut self) -> Option<End<K>> {
        self.ends.pop_front()
    }

    /// Whether nothing is with the peer or waits to be sent to it.
    pub fn is_idle(&self) -> bool {
        self.flying.is_empty() && self.outbox.is_empty() && !self.is_probing
    }

    /// Jobs that are not completely requested.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Pieces that are with the peer.
    pub fn outstanding(&self) -> usize {
        self.flying.len()
    }

    /// Slots that are taken, and bytes of the grant.
    #[cfg(test)]
    pub(crate) fn outstanding_with_peer(&self) -> (usize, u64) {
        let taken: std::collections::BTreeSet<u32> =
            self.flying.iter().map(|(_, at)| at.slot).collect();
        (taken.len(), self.flying.iter().map(|(_, at)| at.cost).sum())
    }

    /// Slots that are free, and bytes of the grant that are left.
    #[cfg(test)]
    pub(crate) fn left_with_peer(&self) -> (usize, u64) {
        (self.free_slots.len(), self.grant_left)
    }

    fn job(&self, key: slots::Key) -> &Job<K> {
        self.jobs.get(key).expect("a job stays until it has ended")
    }

    fn leave_queue(&mut self, key: slots::Key) {
        let Some(job) = self.jobs.get_mut(key) else {
            return;
        };
        if job.stop_waiting()
            && let Some(at) = self.queue.iter().position(|&waiting| waiting == key)
        {
            self.queue.remove(at);
        }
    }

    /// End a flying job for its caller; its memory stays with the peer.
    fn detach(&mut self, key: slots::Key) {
        self.leave_queue(key);
        self.send_cancels(key);
        if let Some(job) = self.jobs.get_mut(key) {
            job.detach();
        }
    }

    /// End a job without flying or waiting pieces, or pull it again if it was torn.
    fn settle(&mut self, key: slots::Key) {
        let job = self.job(key);
        let is_given_up = job.is_given_up();
        if is_given_up && job.is_waiting() {
            self.leave_queue(key);
        }
        let job = self.job(key);
        if job.is_flying() || job.is_waiting() {
            return;
        }
        if job.is_torn() && !is_given_up && self.pull_again(key) {
            return;
        }
        let job = self.jobs.get_mut(key).expect("looked at above");
        let result = job.take_result();
        self.end(key, result);
    }

    /// Put a torn pull at the front of the queue; returns `false` if it must end instead.
    fn pull_again(&mut self, key: slots::Key) -> bool {
        let job = self.jobs.get_mut(key).expect("the caller has looked at it");
        let begun = job.begin_again(&self.limits);
        if begun {
            self.queue.push_front(key);
        }
        begun
    }

    fn end(&mut self, key: slots::Key, result: Result<Outcome, Error>) {
        let Some(job) = self.jobs.remove(key) else {
            return;
        };
        let (ticket, is_detached) = (Ticket::of(key), job.is_detached());
        let keeper = job.into_keeper();
        self.ends.push_back(if is_detached {
            End::Released { ticket, keeper }
        } else {
            End::Over {
                ticket,
                keeper,
                result,
            }
        });
    }
}
