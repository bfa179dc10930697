//! The state under a link's lock: the requester, its channel, the leader, and turns of them.
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_transport::drive::Look;
use forebay_transport::stream::Socket;

use super::drivers::{Drivers, Interest, Wants};
use super::verbs::{VerbsPulls, VerbsState};
use super::{LinkCounters, Submission, Work};
use crate::requester::{Canceled, End, Limits, Refused, Requester};
use crate::stream::batch::{Batch, BatchEntry};
use crate::stream::channel::{Channel, Fault};
use crate::stream::deadline::Deadline;
use crate::stream::error::StreamError;
use crate::stream::exchange::{self, Machine, Pieces, Progress};
use crate::sys::span::Span;

impl<M: Send + Sync> Machine for Requester<BatchEntry<M>> {
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

pub(super) struct Inner<M> {
    requester: Requester<BatchEntry<M>>,
    /// `None` once closed or broken.
    channel: Option<Channel>,
    fault: Option<StreamError>,
    peer: Arc<str>,
    pub(super) drivers: Drivers<M>,
    pub(super) wants: Wants,
    /// Whether a leading thread spins for a while before it sleeps.
    pub(super) look: Look,
    /// Deadlines of unfinished batches.
    deadlines: Vec<(Deadline, Arc<Batch<M>>)>,
    pub(super) verbs: VerbsState<M>,
    pieces: Pieces,
    sent_bytes: u64,
    received_bytes: u64,
}

impl<M> Inner<M> {
    pub(super) fn is_open(&self) -> bool {
        self.channel.is_some()
    }

    /// Its socket, to sleep on; `None` once it is closed or broken.
    pub(super) fn socket(&self) -> Option<Socket> {
        self.channel.as_ref().map(Channel::watch)
    }

    /// Close only the descriptor: in a forked child, where a shutdown would end the parent's connection.
    pub(super) fn close_descriptor(&mut self) {
        self.channel = None;
    }

    /// Ensure that the peer cannot move bytes any more, so that memory may be given back.
    pub(super) fn fence(&mut self) {
        if let Some(channel) = self.channel.take() {
            self.drivers.unwatch(channel.socket());
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
            drivers: Drivers::new(),
            wants: Wants::default(),
            look: Look::default(),
            deadlines: Vec::new(),
            verbs: VerbsState::new(),
            pieces: exchange::pieces(),
            sent_bytes: 0,
            received_bytes: 0,
        })
    }

    /// Its drivers, and what the leader watches.
    pub(super) fn drivers(&mut self) -> (&mut Drivers<M>, Interest<'_>) {
        let interest = Interest {
            socket: self.channel.as_ref().map(Channel::socket),
            verbs: self.verbs.pulls().map(VerbsPulls::sockets),
            wants: self.wants,
            is_idle: self.requester.is_idle(),
        };
        (&mut self.drivers, interest)
    }

    /// After a turn: see [`Drivers::update`].
    pub(super) fn update_leader(&mut self) {
        let (drivers, interest) = self.drivers();
        drivers.update(&interest);
    }

    pub(super) fn counters(&self) -> LinkCounters {
        let (outstanding, waiting) = self.verbs.pulls().map_or((0, 0), VerbsPulls::pending);
        LinkCounters {
            outstanding: self.requester.outstanding() + outstanding,
            waiting: self.requester.waiting() + waiting,
            sent_bytes: self.sent_bytes,
            received_bytes: self.received_bytes,
        }
    }

    /// Submit operations, each with its index in the batch: to verbs if possible, else to the stream.
    pub(super) fn submit(
        &mut self,
        batch: &Arc<Batch<M>>,
        works: impl IntoIterator<Item = (u32, Submission)>,
    ) {
        for (index, mut submission) in works {
            let operation = BatchEntry {
                batch: Arc::clone(batch),
                index,
            };
            if let Err(operation) = self.submit_to_verbs(operation, &mut submission) {
                self.submit_to_stream(operation, submission.work);
            }
        }
    }

    pub(super) fn submit_to_stream(&mut self, operation: BatchEntry<M>, work: Work) {
        let (batch, index) = (Arc::clone(&operation.batch), operation.index);
        let asked = match work {
            Work::Pull(pull) => self.requester.pull(pull, operation),
            Work::Push(push) => self.requester.push(push, operation),
        };
        match asked {
            Ok(ticket) => batch.begin(index, ticket),
            Err(refused) => self.refuse(refused),
        }
    }

    pub(super) fn submit_names(&mut self, batch: &Arc<Batch<M>>, names: &[&str]) {
        let operation = BatchEntry {
            batch: Arc::clone(batch),
            index: 0,
        };
        match self.requester.look_up(names, operation) {
            Ok(ticket) => batch.begin(0, ticket),
            Err(refused) => self.refuse(refused),
        }
    }

    fn refuse(&mut self, refused: Refused<BatchEntry<M>>) {
        let error = self.link_error(refused.error);
        self.end(&refused.keeper.batch, refused.keeper.index, Err(error));
    }

    /// Set the deadline of a batch.
    pub(super) fn set_deadline(
        &mut self,
        batch: &Arc<Batch<M>>,
        now: Instant,
        timeout: Option<Duration>,
    ) {
        if let Some(deadline) = timeout.and_then(|allowed| Deadline::since(now, allowed))
            && !batch.is_done()
        {
            self.deadlines.push((deadline, Arc::clone(batch)));
        }
    }

    /// Send as much as possible.
    pub(super) fn send(&mut self, now: Instant) {
        self.issue_verbs(now);
        let Some(channel) = &mut self.channel else {
            return;
        };
        let mut progress = Progress::default();
        let pieces = &mut self.pieces;
        let sent = exchange::send(channel, &mut self.requester, pieces, now, &mut progress);
        self.settle(now, progress, sent);
    }

    /// Send and receive as much as one turn's budget allows.
    pub(super) fn turn(&mut self, now: Instant) {
        self.turn_verbs(now);
        self.turn_stream(now);
    }

    /// The same for the stream only.
    pub(super) fn turn_stream(&mut self, now: Instant) {
        let Some(channel) = &mut self.channel else {
            return;
        };
        let mut progress = Progress::default();
        let (requester, pieces) = (&mut self.requester, &mut self.pieces);
        let turned = exchange::receive(channel, requester, now, &mut progress);
        let more = std::mem::take(&mut progress.again) || channel.holds_received();
        let turned =
            turned.and_then(|()| exchange::send(channel, requester, pieces, now, &mut progress));
        progress.again |= more;
        self.settle(now, progress, turned);
    }

    /// Record the outcome of a turn, and check deadlines.
    fn settle(&mut self, now: Instant, progress: Progress, turned: Result<(), Fault>) {
        self.sent_bytes += progress.sent as u64;
        self.received_bytes += progress.received as u64;
        self.wants.blocked = progress.blocked;
        self.wants.again = progress.again;
        self.take_ends();
        match turned {
            Ok(()) => self.expire(now),
            Err(fault) => self.break_off(fault),
        }
    }

    pub(super) fn expire(&mut self, now: Instant) {
        self.deadlines.retain(|(_, batch)| !batch.is_done());
        let has_passed = |(deadline, _): &(Deadline, _)| deadline.has_passed(now);
        while let Some(at) = self.deadlines.iter().position(has_passed) {
            let (deadline, batch) = self.deadlines.swap_remove(at);
            self.give_up(&batch, &deadline.missed_by(&self.peer));
            self.wants.again = true; // the cancel has to be sent
        }
        let verbs = self
            .verbs
            .pulls()
            .map_or(Ok(None), |verbs| verbs.expire(now));
        match verbs.and_then(|verbs| Ok([verbs, self.requester.expire(now)?])) {
            Ok([verbs, due]) => {
                let deadline = self
                    .deadlines
                    .iter()
                    .map(|(deadline, _)| deadline.due)
                    .min();
                self.wants.due = [verbs, due, deadline].into_iter().flatten().min();
                self.wants.again |= !self.wants.blocked && self.requester.wants_write();
            }
            Err(silent) => self.break_off(Fault::Peer(silent)),
        }
    }

    /// End the unfinished operations of a batch. The requester keeps their memory while the peer's rows may still
    /// arrive.
    pub(super) fn give_up(&mut self, batch: &Arc<Batch<M>>, why: &StreamError) {
        for (index, ticket) in batch.unfinished() {
            let canceled = self.requester.cancel(ticket);
            if !matches!(canceled, Canceled::Gone) {
                self.end(batch, index, Err(why.clone()));
            }
        }
        self.give_up_verbs(batch, why);
        self.take_ends();
    }

    pub(super) fn close(&mut self) {
        if self.fault.is_none() {
            self.fault = Some(StreamError::Closed {
                what: Arc::clone(&self.peer),
            });
        }
        self.break_off(Fault::Ended);
    }

    /// The connection is unusable: fence the peer first, then end everything outstanding, which releases its memory.
    pub(super) fn break_off(&mut self, fault: Fault) {
        self.fence();
        let error = fault.into_error();
        self.fault.get_or_insert_with(|| StreamError::Tensor {
            peer: Arc::clone(&self.peer),
            error: error.clone(),
        });
        self.end_verbs(&error);
        self.requester.break_off(error);
        self.take_ends();
        self.deadlines.clear();
        self.wants = Wants::default();
    }

    fn take_ends(&mut self) {
        while let Some(end) = self.requester.take_end() {
            match end {
                End::Over { keeper, result, .. } => {
                    let result = result.map_err(|error| self.link_error(error));
                    self.end(&keeper.batch, keeper.index, result);
                }
                End::Released { .. } => {} // the operation ended when it was canceled
            }
        }
    }

    pub(super) fn end(
        &mut self,
        batch: &Batch<M>,
        index: u32,
        result: Result<crate::Outcome, StreamError>,
    ) {
        if batch.end(index, result)
            && let Some(ready) = batch.driver()
        {
            self.drivers.batch_ended(ready);
        }
    }

    /// The error of an operation: `Closed` if this side closed the link, otherwise the requester's.
    pub(super) fn link_error(&self, error: crate::Error) -> StreamError {
        match &self.fault {
            Some(closed @ StreamError::Closed { .. }) => closed.clone(),
            _ => StreamError::Tensor {
                peer: Arc::clone(&self.peer),
                error,
            },
        }
    }
}
