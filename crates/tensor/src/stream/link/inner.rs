//! What lies under a link's lock: the requester, its channel, who leads, and turns of them.
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{Thread, ThreadId};
use std::time::{Duration, Instant};

use forebay_transport::drive::Look;

use super::fabric::Wanted;
use super::far::{Ended, Far};
use super::{Counters, Work};
use crate::requester::{Canceled, End, Limits, Refused, Requester};
use crate::stream::batch::{Batch, Job};
use crate::stream::channel::{Channel, Fault};
use crate::stream::deadline::Deadline;
use crate::stream::error::Error;
use crate::stream::exchange::{self, Machine, Pieces, Standing};
use crate::stream::port::Core;
use crate::sys::span::Span;

impl<M: Send + Sync> Machine for Requester<Job<M>> {
    fn outgoing(&mut self, into: &mut [Span]) -> usize {
        Self::outgoing(self, into)
    }
    fn sent(&mut self, bytes: usize, now: Instant) {
        Self::sent(self, bytes, now);
    }
    fn incoming(&mut self) -> [Span; 2] {
        Self::incoming(self)
    }
    fn received(&mut self, bytes: usize, now: Instant) -> Result<(), crate::Error> {
        Self::received(self, bytes, now)
    }
    fn feed(&mut self, bytes: &[u8], now: Instant) -> Result<(), crate::Error> {
        Self::feed(self, bytes, now)
    }
}

/// Who receives what comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lead {
    Nobody,
    Thread(ThreadId),
    /// One of the ports.
    Port(usize),
}

/// A port that has batches here.
pub(super) struct Seat<M> {
    pub(super) core: Arc<Core<M>>,
    pub(super) place: u64,
    /// How many of its batches have not ended.
    pub(super) batches: usize,
    /// It leads where nobody else does and something is outstanding.
    pub(super) keeps: bool,
}

pub(super) struct Inner<M> {
    pub(super) requester: Requester<Job<M>>,
    /// None once closed or broken.
    pub(super) channel: Option<Channel>,
    fault: Option<Error>,
    peer: Arc<str>,
    pub(super) lead: Lead,
    /// Threads that wait while somebody else leads.
    pub(super) followers: VecDeque<Thread>,
    pub(super) seats: Vec<Seat<M>>,
    /// The socket takes no more for now.
    pub(super) blocked: bool,
    /// There is more to do without waiting.
    pub(super) again: bool,
    /// When to come back without an event.
    pub(super) due: Option<Instant>,
    /// Whether who leads looks for a while before it sleeps.
    pub(super) look: Look,
    /// Of batches that have one, until they have ended.
    deadlines: Vec<(Deadline, Arc<Batch<M>>)>,
    /// Pulls over a fabric beside the stream.
    pub(super) far: Option<Far<M>>,
    /// Whether there are such, for who must not wait for the lock.
    pub(super) has_far: Arc<AtomicBool>,
    /// Why there are none any more.
    pub(super) far_lost: Option<String>,
    pub(super) far_ended: Vec<Ended<M>>,
    pieces: Pieces,
    sent_bytes: u64,
    received_bytes: u64,
}

impl<M> Inner<M> {
    pub(super) fn is_open(&self) -> bool {
        self.channel.is_some()
    }

    /// Close the descriptor and nothing else, in a forked child.
    pub(super) fn let_go(&mut self) {
        self.channel = None;
    }

    /// Make sure that the peer cannot move bytes any more.
    pub(super) fn fence(&mut self) {
        if let Some(channel) = self.channel.take() {
            for seat in &self.seats {
                seat.core.forget(channel.socket());
            }
            channel.hang_up();
        }
    }
}

impl<M: Send + Sync + 'static> Inner<M> {
    pub(super) fn new(
        channel: Channel,
        limits: Limits,
        peer: Arc<str>,
    ) -> Result<Self, crate::Error> {
        Ok(Self {
            requester: Requester::new(limits, Instant::now())?,
            channel: Some(channel),
            fault: None,
            peer,
            lead: Lead::Nobody,
            followers: VecDeque::new(),
            seats: Vec::new(),
            blocked: false,
            again: false,
            due: None,
            look: Look::default(),
            deadlines: Vec::new(),
            far: None,
            has_far: Arc::default(),
            far_lost: None,
            far_ended: Vec::new(),
            pieces: exchange::pieces(),
            sent_bytes: 0,
            received_bytes: 0,
        })
    }

    pub(super) fn counters(&self) -> Counters {
        let (outstanding, waiting) = self.far.as_ref().map_or((0, 0), Far::pending);
        Counters {
            outstanding: self.requester.outstanding() + outstanding,
            waiting: self.requester.waiting() + waiting,
            sent_bytes: self.sent_bytes,
            received_bytes: self.received_bytes,
        }
    }

    /// Take over what is asked for, each with its number in the batch.
    pub(super) fn ask(
        &mut self,
        batch: &Arc<Batch<M>>,
        works: impl IntoIterator<Item = (u32, Wanted)>,
    ) {
        for (index, mut wanted) in works {
            let job = Job {
                batch: Arc::clone(batch),
                index,
            };
            if let Err(job) = self.ask_far(job, &mut wanted) {
                self.ask_stream(job, wanted.work);
            }
        }
    }

    pub(super) fn ask_stream(&mut self, job: Job<M>, work: Work) {
        let (batch, index) = (Arc::clone(&job.batch), job.index);
        let asked = match work {
            Work::Pull(pull) => self.requester.pull(pull, job),
            Work::Push(push) => self.requester.push(push, job),
        };
        match asked {
            Ok(ticket) => batch.begin(index, ticket),
            Err(refused) => self.refuse(refused),
        }
    }

    pub(super) fn ask_names(&mut self, batch: &Arc<Batch<M>>, names: &[&str]) {
        let job = Job {
            batch: Arc::clone(batch),
            index: 0,
        };
        match self.requester.look_up(names, job) {
            Ok(ticket) => batch.begin(0, ticket),
            Err(refused) => self.refuse(refused),
        }
    }

    fn refuse(&mut self, refused: Refused<Job<M>>) {
        let error = self.in_own_words(refused.error);
        self.end(&refused.keeper.batch, refused.keeper.index, Err(error));
    }

    /// Have the batch end by then.
    pub(super) fn limit(&mut self, batch: &Arc<Batch<M>>, now: Instant, timeout: Option<Duration>) {
        if let Some(deadline) = timeout.and_then(|allowed| Deadline::since(now, allowed))
            && !batch.is_done()
        {
            self.deadlines.push((deadline, Arc::clone(batch)));
        }
    }

    /// Send what can be.
    pub(super) fn send(&mut self, now: Instant) {
        self.issue_far(now);
        let Some(channel) = &mut self.channel else {
            return;
        };
        let mut standing = Standing::default();
        let pieces = &mut self.pieces;
        let sent = exchange::send(channel, &mut self.requester, pieces, now, &mut standing);
        self.settle(now, standing, sent);
    }

    /// Send and receive what can be, within one turn's budget.
    pub(super) fn turn(&mut self, now: Instant) {
        self.turn_far(now);
        self.turn_stream(now);
    }

    /// The same of the stream alone.
    pub(super) fn turn_stream(&mut self, now: Instant) {
        let Some(channel) = &mut self.channel else {
            return;
        };
        let mut standing = Standing::default();
        let (requester, pieces) = (&mut self.requester, &mut self.pieces);
        let turned = exchange::receive(channel, requester, now, &mut standing);
        let more = std::mem::take(&mut standing.again) || channel.holds_received();
        let turned =
            turned.and_then(|()| exchange::send(channel, requester, pieces, now, &mut standing));
        standing.again |= more;
        self.settle(now, standing, turned);
    }

    /// Note where a turn led, and what time it is.
    fn settle(&mut self, now: Instant, standing: Standing, turned: Result<(), Fault>) {
        self.sent_bytes += standing.sent as u64;
        self.received_bytes += standing.received as u64;
        self.blocked = standing.blocked;
        self.again = standing.again;
        self.take_ends();
        match turned {
            Ok(()) => self.keep_time(now),
            Err(fault) => self.break_off(fault),
        }
    }

    pub(super) fn keep_time(&mut self, now: Instant) {
        self.deadlines.retain(|(_, batch)| !batch.is_done());
        let has_passed = |(deadline, _): &(Deadline, _)| deadline.has_passed(now);
        while let Some(at) = self.deadlines.iter().position(has_passed) {
            let (deadline, batch) = self.deadlines.swap_remove(at);
            self.give_up(&batch, &deadline.missed_by(&self.peer));
            self.again = true; // the peer is to be told
        }
        let far = self.far.as_ref().map_or(Ok(None), |far| far.expire(now));
        match far.and_then(|far| Ok([far, self.requester.expire(now)?])) {
            Ok([far, due]) => {
                let deadline = self
                    .deadlines
                    .iter()
                    .map(|(deadline, _)| deadline.due)
                    .min();
                self.due = [far, due, deadline].into_iter().flatten().min();
                self.again |= !self.blocked && self.requester.wants_write();
            }
            Err(silent) => self.break_off(Fault::Peer(silent)),
        }
    }

    /// End what of a batch has not ended; its memory stays with the requester for as long as somebody writes there.
    pub(super) fn give_up(&mut self, batch: &Arc<Batch<M>>, why: &Error) {
        for (index, ticket) in batch.unfinished() {
            let canceled = self.requester.cancel(ticket);
            if !matches!(canceled, Canceled::Gone) {
                self.end(batch, index, Err(why.clone()));
            }
        }
        self.give_up_far(batch, why);
        self.take_ends();
    }

    pub(super) fn close(&mut self) {
        if self.fault.is_none() {
            self.fault = Some(Error::Closed {
                what: Arc::clone(&self.peer),
            });
        }
        self.break_off(Fault::Ended);
    }

    /// The connection is of no use any more: everything outstanding ends.
    pub(super) fn break_off(&mut self, fault: Fault) {
        self.fence();
        let error = fault.into_error();
        self.fault.get_or_insert_with(|| Error::Tensor {
            peer: Arc::clone(&self.peer),
            error: error.clone(),
        });
        self.end_far(&error);
        self.requester.break_off(error);
        self.take_ends();
        self.deadlines.clear();
        (self.blocked, self.again, self.due) = (false, false, None);
    }

    fn take_ends(&mut self) {
        while let Some(end) = self.requester.take_end() {
            match end {
                End::Over { keeper, result, .. } => {
                    let result = result.map_err(|error| self.in_own_words(error));
                    self.end(&keeper.batch, keeper.index, result);
                }
                End::Released { .. } => {} // what was canceled has ended before
            }
        }
    }

    pub(super) fn end(
        &mut self,
        batch: &Batch<M>,
        index: u32,
        result: Result<crate::Outcome, Error>,
    ) {
        if batch.end(index, result)
            && let Some(bell) = batch.driver()
        {
            let of = |seat: &&mut Seat<M>| Arc::ptr_eq(&seat.core.bell, bell);
            if let Some(seat) = self.seats.iter_mut().find(of) {
                seat.batches = seat.batches.saturating_sub(1);
            }
        }
    }

    /// The machine's error, unless it is about what was done here.
    pub(super) fn in_own_words(&self, error: crate::Error) -> Error {
        match &self.fault {
            Some(closed @ Error::Closed { .. }) => closed.clone(),
            _ => Error::Tensor {
                peer: Arc::clone(&self.peer),
                error,
            },
        }
    }
}
