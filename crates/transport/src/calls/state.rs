//! The state of a connection of calls: the link and what its frames mean, stepped together.
//!
//! The link is open to the modules of calls; what its frames mean is reached by methods alone.
//!
//! Nothing here waits or locks; [`crate::calls::connection`] adds the lock and its `waiting` the waiting.

mod handoff;

use std::time::Instant;

use forebay_base::waiters::{Reader, Waiters};

use crate::calls::call::{Calls, Taker};
use crate::calls::credit::Credits;
use crate::calls::exchange::Exchange;
use crate::calls::inbox::{Inbox, Refusal};
use crate::calls::incoming::Call;
use crate::calls::items::Streams;
use crate::calls::options::Counters;
use crate::calls::sleeping::Sleeping;
use crate::calls::streaming::{StreamReadiness, Urgency};
use crate::error::{Cause, Error, Fault, Result};
use crate::limit::Limits;
use crate::link::admission::Handshake;
use crate::link::framed::Link;
use crate::link::outbox::{Head, Payload};
use crate::share::Lending;
use crate::stream::Stream;
use crate::sys::shared::Staged;
use crate::wire::frame::{Header, Kind, Reason};
use crate::wire::role::Role;

/// Everything of one connection but its lock.
pub struct ConnectionState<S> {
    pub(super) link: Link<S>,
    exchange: Exchange,
}

impl<S> ConnectionState<S> {
    pub fn new(role: Role, limits: Limits, runtime: u32, handshake: Handshake) -> Self {
        Self {
            link: Link::new(limits, handshake),
            exchange: Exchange::new(role, runtime),
        }
    }

    /// The link, to look at.
    #[cfg(any(test, feature = "fuzzing"))]
    pub fn link(&self) -> &Link<S> {
        &self.link
    }

    /// Who reads the stream.
    #[inline]
    pub fn reader(&self) -> Reader {
        self.exchange.waiters.reader()
    }

    /// The threads that wait.
    #[inline]
    pub fn waiters(&mut self) -> &mut Waiters {
        &mut self.exchange.waiters
    }

    /// How they sleep.
    #[inline]
    pub fn sleeping(&mut self) -> &mut Sleeping {
        &mut self.exchange.sleeping
    }

    /// Whether the kernel says that the peer is the same user.
    pub fn allows_pickle(&self) -> bool {
        self.exchange.allows_pickle()
    }

    /// Whether the peer has said goodbye.
    pub fn is_refused(&self) -> bool {
        self.exchange.asking.is_refused()
    }

    /// Calls whose outcomes have not been taken, and streams that have not been read to their end.
    pub fn in_flight(&self) -> usize {
        self.exchange.asking.in_flight()
    }

    /// What was counted.
    pub fn counters(&self) -> Counters {
        let (link, exchange) = (&self.link, &self.exchange);
        let (asking, inbox) = (&exchange.asking, &exchange.answering.inbox);
        Counters {
            sent_bytes: link.outbox().sent(),
            received_bytes: link.offset(),
            outbox_bytes: link.outbox().bytes(),
            inbox_bytes: inbox.bytes() + asking.bytes(),
            inbox_calls: inbox.queued(),
            in_flight: asking.in_flight(),
            late_replies: asking.calls.late,
            expired: inbox.expired,
            stale: inbox.stale,
            cancelled: inbox.cancelled,
            pongs: exchange.pongs(),
            lent_segments: exchange.lending.lent(),
        }
    }

    /// A driver reads from now on; false while another one does.
    pub fn attach_driver(&mut self) -> bool {
        self.exchange.waiters.attach()
    }

    /// Take the running calls that were cancelled; kept for a driver alone.
    pub fn take_cancelled(&mut self) -> Vec<u64> {
        self.exchange.answering.take_cancelled()
    }

    /// Take the running streams that were granted credit; kept for a driver alone.
    pub fn take_granted(&mut self) -> Vec<u64> {
        self.exchange.answering.take_granted()
    }

    /// What it lends and borrows.
    #[inline]
    pub fn lending(&self) -> &Lending {
        &self.exchange.lending
    }

    /// The calls that this end has started.
    #[inline]
    pub fn calls(&mut self) -> &mut Calls {
        &mut self.exchange.asking.calls
    }

    /// The streams that this end has started.
    #[inline]
    pub fn items(&mut self) -> &mut Streams {
        &mut self.exchange.asking.items
    }

    /// The calls of the peer.
    #[inline]
    pub fn inbox(&mut self) -> &mut Inbox {
        &mut self.exchange.answering.inbox
    }

    /// The credit of the streams that this end serves.
    #[inline]
    pub fn credits(&mut self) -> &mut Credits {
        &mut self.exchange.answering.credits
    }
}

impl<S: Stream> ConnectionState<S> {
    /// Begin on a stream; `trusted` says that the peer is the same user.
    pub fn connect(&mut self, stream: S, trusted: bool) {
        if trusted && stream.carries_descriptors() {
            self.exchange.lending.open();
        } else {
            self.exchange.lending.close();
        }
        self.exchange.allow_pickle(trusted);
        self.link.connect(stream, trusted);
        let preface = self.exchange.preface(&self.link);
        self.link.set_preface(preface);
    }

    /// Receive what has arrived and act on it, within one turn's budget.
    #[inline]
    pub fn receive(&mut self) {
        self.link.receive(&mut self.exchange);
    }

    /// Write queued bytes until the kernel takes no more.
    #[inline]
    pub fn flush(&mut self) {
        self.link.flush(&mut self.exchange);
    }

    /// Whether the stream should be read now: it is alive, the inbox is below its limit, and the peer takes our answers.
    #[inline]
    pub fn wants_read(&mut self) -> bool {
        self.link.wants_read(&mut self.exchange)
    }

    /// Send a frame, or queue what the kernel does not take; returns its end in the stream.
    #[inline]
    pub fn send(&mut self, header: Header, head: Head<'_>, segments: Vec<Payload>) -> u64 {
        self.exchange.send(&mut self.link, header, head, segments)
    }

    /// Send a frame without a body, unless the link is broken.
    pub fn tell(&mut self, header: Header) {
        if !self.link.life().is_broken() {
            self.exchange.send_control(&mut self.link, header);
        }
    }

    /// End every call with `fault`.
    pub fn break_with(&mut self, fault: Fault) {
        self.link.break_with(&mut self.exchange, fault);
    }

    /// The peer process ended: deliver what is still in the socket, then break.
    pub fn peer_died(&mut self) {
        let mut before = self.link.offset();
        loop {
            self.receive();
            let after = self.link.offset();
            if after == before {
                break;
            }
            before = after;
        }
        self.break_with(Fault::Broken(Cause::PeerDied));
    }

    /// Whether the caller of the running calls is gone; polls the socket.
    pub fn caller_gone(&mut self) -> bool {
        if self.link.life().has_ended() && self.link.is_hung_up() {
            self.exchange.end(&mut self.link, true);
        }
        self.link.stream().is_none()
    }

    /// Check that a frame with this body is within the limits of both ends; returns its count of segments.
    pub fn check_limits(&self, head: &Head<'_>, segments: &[Payload]) -> Result<u16> {
        let payload: usize = segments
            .iter()
            .map(|segment| (**segment).as_ref().len())
            .sum();
        let value = (head.as_slice().len() + payload) as u64;
        let limit = self.link.frame_bytes_max();
        if value > limit {
            return Err(Error::Limit {
                name: "frame_bytes_max",
                limit,
                value,
            });
        }
        let limit = self.link.segments_max();
        let value = segments.len() as u64;
        u16::try_from(value)
            .ok()
            .filter(|&count| count <= limit)
            .ok_or(Error::Limit {
                name: "segments_max",
                limit: limit.into(),
                value,
            })
    }

    /// Replace staged segments by names; the originals are given back.
    #[inline]
    pub fn name_staged(
        &mut self,
        header: &mut Header,
        segments: Vec<Payload>,
        staged: Vec<Option<Staged>>,
    ) -> Vec<Payload> {
        let lending = &mut self.exchange.lending;
        lending.name_staged(&mut self.link, header, segments, staged)
    }

    /// Cancel a call, here and at the peer.
    pub fn cancel_call(&mut self, id: u64) {
        self.exchange.waiters.forget(id);
        if self.calls().cancel(id) {
            self.tell(Header::control(Kind::Cancel, id));
        }
    }

    /// Send a stream's first credit and its call in one write.
    pub fn begin_stream(
        &mut self,
        header: Header,
        head: Head<'_>,
        segments: Vec<Payload>,
        taker: Taker,
        credit: u32,
    ) {
        let id = header.id;
        self.link.queue_preface();
        self.items().begin(id, taker, credit);
        let first = credit_frame(id, credit).encode();
        self.link.outbox_mut().push_copy(&first);
        let end = self.send(header, head, segments);
        if !self.link.life().is_broken() {
            self.items().sent_until(id, end);
        }
    }

    /// Send the credit that is due for what was taken before.
    pub fn give_credit(&mut self, id: u64) {
        if let Some(credit) = self.items().consume(id) {
            self.tell(credit_frame(id, credit));
        }
    }

    /// Cancel a stream, here and at the peer. A thread that waits for it is woken.
    pub fn cancel_stream(&mut self, id: u64) {
        self.exchange.waiters.wake_with_leader(id);
        if self.items().cancel(id) {
            self.tell(Header::control(Kind::Cancel, id));
        }
    }

    /// The next call that is to run; refusals are sent on the way.
    pub fn next_runnable(&mut self) -> Option<Call> {
        loop {
            match self.inbox().next(Instant::now())? {
                Ok(call) => {
                    if call.stream {
                        self.credits().run(call.id, call.deadline);
                    }
                    return Some(call);
                }
                Err(Some(refusal)) => self.refuse(refusal),
                Err(None) => {}
            }
        }
    }

    /// Answer a call that will not be started.
    #[inline]
    pub fn refuse(&mut self, refusal: Refusal) {
        self.exchange.refuse(&mut self.link, refusal);
    }

    /// Answer a running call; nothing is sent if it was cancelled.
    pub fn answer(
        &mut self,
        mut header: Header,
        reason: Option<Reason>,
        head: Head<'_>,
        segments: Vec<Payload>,
    ) {
        let was_stream = self.credits().close(header.id);
        let waits = self.inbox().answer(header.id);
        if waits && self.link.stream().is_some() {
            header.time = reason.map_or(header.time, |reason| reason as u32);
            self.send(header, head, segments);
        } else {
            self.link.outbox_mut().retire(head.into_lent());
            self.link.outbox_mut().retire(segments);
            if was_stream {
                self.confirm_cancelled(header.id);
            }
        }
    }

    /// Send the end of a stream that its caller has cancelled.
    fn confirm_cancelled(&mut self, id: u64) {
        if !self.link.life().is_broken() && self.link.stream().is_some() {
            let reason = Reason::Cancelled;
            self.refuse(Refusal { id, reason });
        }
    }

    /// Why the running streams must be continued at `now`, if any must.
    pub fn urgency(&self, now: Instant) -> Option<Urgency> {
        let serves = &self.exchange.answering;
        let running = (serves.credits.ids()).filter(|&id| serves.inbox.is_running(id));
        let urgencies = running.filter_map(|id| match self.readiness(id, now) {
            StreamReadiness::Waiting => None,
            StreamReadiness::Ready => Some(Urgency::Send),
            StreamReadiness::Cancelled | StreamReadiness::Expired => Some(Urgency::End),
        });
        urgencies.max()
    }

    /// What a running stream may do at `now`.
    pub fn readiness(&self, id: u64, now: Instant) -> StreamReadiness {
        let serves = &self.exchange.answering;
        if serves.inbox.is_cancelled(id) || self.link.life().is_broken() {
            StreamReadiness::Cancelled
        } else if serves.credits.is_expired(id, now) {
            StreamReadiness::Expired
        } else if serves.credits.may_send(id) {
            if self.link.outbox().bytes() > self.link.limits().outbox_bytes_high {
                StreamReadiness::Waiting
            } else {
                StreamReadiness::Ready
            }
        } else if self.link.life().has_ended() {
            StreamReadiness::Cancelled // no credit will arrive any more
        } else {
            StreamReadiness::Waiting
        }
    }

    /// Send an item of a stream that is ready; with `hold` a short one waits for the next flush.
    pub fn send_item(
        &mut self,
        mut header: Header,
        head: Head<'_>,
        segments: Vec<Payload>,
        staged: Vec<Option<Staged>>,
        hold: bool,
    ) {
        let payload = segments.iter().map(|segment| (**segment).as_ref().len());
        let bytes = head.as_slice().len() + payload.sum::<usize>();
        self.credits().sent(header.id, bytes);
        if hold && segments.is_empty() {
            self.link.queue_preface();
            self.link.outbox_mut().push_copy(&header.encode());
            self.link.outbox_mut().push_head(head);
        } else {
            let segments = self.name_staged(&mut header, segments, staged);
            self.send(header, head, segments);
        }
    }
}

fn credit_frame(id: u64, credit: u32) -> Header {
    Header {
        time: credit,
        ..Header::control(Kind::Credit, id)
    }
}
