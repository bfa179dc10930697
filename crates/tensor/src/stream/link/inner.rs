//! What lies under a link's lock: the requester, its channel, who leads, and turns of them.
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{Thread, ThreadId};
use std::time::{Duration, Instant};

use forebay_transport::look::Look;

use super::fabric::Submission;
use super::verbs::{Completed, VerbsPulls};
use super::{LinkCounters, Work};
use crate::requester::{Canceled, End, Limits, Refused, Requester};
use crate::stream::batch::{Batch, BatchEntry};
use crate::stream::channel::{Channel, Fault};
use crate::stream::deadline::Deadline;
use crate::stream::error::StreamError;
use crate::stream::exchange::{self, Machine, Pieces, Progress};
use crate::stream::port::Core;
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

/// Who receives what comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lead {
    None,
    Thread(ThreadId),
    /// One of the ports.
    Port(usize),
}

/// A port that has batches here.
pub(super) struct PortEntry<M> {
    pub(super) core: Arc<Core<M>>,
    pub(super) token: u64,
    /// How many of its batches have not ended.
    pub(super) batches: usize,
    /// It leads where nobody else does and something is outstanding.
    pub(super) drains: bool,
}

pub(super) struct Inner<M> {
    pub(super) requester: Requester<BatchEntry<M>>,
    /// None once closed or broken.
    pub(super) channel: Option<Channel>,
    fault: Option<StreamError>,
    peer: Arc<str>,
    pub(super) lead: Lead,
    /// Threads that wait while somebody else leads.
    pub(super) followers: VecDeque<Thread>,
    pub(super) ports: Vec<PortEntry<M>>,
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
    pub(super) verbs: Option<VerbsPulls<M>>,
    /// Whether there are such, for who must not wait for the lock.
    pub(super) has_verbs: Arc<AtomicBool>,
    /// Why there are none any more.
    pub(super) verbs_lost: Option<String>,
    pub(super) verbs_ended: Vec<Completed<M>>,
    pieces: Pieces,
    sent_bytes: u64,
    received_bytes: u64,
}

impl<M> Inner<M> {
    pub(super) fn is_open(&self) -> bool {
        self.channel.is_some()
    }

    /// Close the descriptor and nothing else, in a forked child.
    pub(super) fn close_descriptor(&mut self) {
        self.channel = None;
    }

    /// Make sure that the peer cannot move bytes any more.
    pub(super) fn fence(&mut self) {
        if let Some(channel) = self.channel.take() {
            for entry in &self.ports {
                entry.core.unwatch(channel.socket());
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
            lead: Lead::None,
            followers: VecDeque::new(),
            ports: Vec::new(),
            blocked: false,
            again: false,
            due: None,
            look: Look::default(),
            deadlines: Vec::new(),
            verbs: None,
            has_verbs: Arc::default(),
            verbs_lost: None,
            verbs_ended: Vec::new(),
            pieces: exchange::pieces(),
            sent_bytes: 0,
            received_bytes: 0,
        })
    }

    pub(super) fn counters(&self) -> LinkCounters {
        let (outstanding, waiting) = self.verbs.as_ref().map_or((0, 0), VerbsPulls::pending);
        LinkCounters {
            outstanding: self.requester.outstanding() + outstanding,
            waiting: self.requester.waiting() + waiting,
            sent_bytes: self.sent_bytes,
            received_bytes: self.received_bytes,
        }
    }

    /// Take over what is asked for, each with its number in the batch.
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

    /// Have the batch end by then.
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

    /// Send what can be.
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

    /// Send and receive what can be, within one turn's budget.
    pub(super) fn turn(&mut self, now: Instant) {
        self.turn_verbs(now);
        self.turn_stream(now);
    }

    /// The same of the stream alone.
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

    /// Note where a turn led, and what time it is.
    fn settle(&mut self, now: Instant, progress: Progress, turned: Result<(), Fault>) {
        self.sent_bytes += progress.sent as u64;
        self.received_bytes += progress.received as u64;
        self.blocked = progress.blocked;
        self.again = progress.again;
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
            self.again = true; // the peer is to be told
        }
        let verbs = self
            .verbs
            .as_ref()
            .map_or(Ok(None), |verbs| verbs.expire(now));
        match verbs.and_then(|verbs| Ok([verbs, self.requester.expire(now)?])) {
            Ok([verbs, due]) => {
                let deadline = self
                    .deadlines
                    .iter()
                    .map(|(deadline, _)| deadline.due)
                    .min();
                self.due = [verbs, due, deadline].into_iter().flatten().min();
                self.again |= !self.blocked && self.requester.wants_write();
            }
            Err(silent) => self.break_off(Fault::Peer(silent)),
        }
    }

    /// End what of a batch has not ended; its memory stays with the requester for as long as somebody writes there.
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

    /// The connection is of no use any more: everything outstanding ends.
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
        (self.blocked, self.again, self.due) = (false, false, None);
    }

    fn take_ends(&mut self) {
        while let Some(end) = self.requester.take_end() {
            match end {
                End::Over { keeper, result, .. } => {
                    let result = result.map_err(|error| self.link_error(error));
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
        result: Result<crate::Outcome, StreamError>,
    ) {
        if batch.end(index, result)
            && let Some(ready) = batch.driver()
        {
            let of = |entry: &&mut PortEntry<M>| Arc::ptr_eq(&entry.core.ready, ready);
            if let Some(entry) = self.ports.iter_mut().find(of) {
                entry.batches = entry.batches.saturating_sub(1);
            }
        }
    }

    /// The machine's error, unless it is about what was done here.
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
