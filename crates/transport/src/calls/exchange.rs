//! What the frames of calls mean to either end.
//!
//! A peer cannot make a connection hold more than its limits: [`Exchange::holds_back`] stops reading while the inbox, the
//! answers that the peer does not take, or the refusals it causes are above theirs. Answers themselves are never refused,
//! since their callers are waiting; refusing to read bounds them.
//!
//! A failure to send does not break a connection at once: the peer may have answered calls before it closed. So what is
//! there is received first; a failure during a turn of receiving waits for its end. A server that has closed its
//! receiving side alone (shutdown(2)) may answer later what it had read before: its caller receives until the end of the
//! stream. So each call of such a caller is known to be answered, or not to have been read whole.

use std::time::Instant;

use forebay_base::waiters::{Reader, Waiters};

use crate::calls::answering::Answering;
use crate::calls::asking::Asking;
use crate::calls::inbox::Refusal;
use crate::calls::sleeping::Sleeping;
use crate::error::{Cause, Fault, Violation};
use crate::link::framed::{Handler, Link};
use crate::link::outbox::{Head, Payload};
use crate::share::Lending;
use crate::stream::{Stream, StreamFault};
use crate::wire::frame::{Codec, Header, Incoming, Kind, Reason};
use crate::wire::preface::{Preface, STREAMS};
use crate::wire::role::Role;

/// Both ends of calls over one link.
pub struct Exchange {
    role: Role,
    runtime: u32,
    pickle_allowed: bool,
    pub(super) asking: Asking,
    pub(super) answering: Answering,
    pub(super) waiters: Waiters,
    pub(super) sleeping: Sleeping,
    /// Long segments by reference, where the peer is the same user on a socket that carries descriptors.
    pub(super) lending: Lending,
    pongs: u64,
    paused: bool,
}

impl Exchange {
    pub fn new(role: Role, runtime: u32) -> Self {
        Self {
            role,
            runtime,
            pickle_allowed: false,
            asking: Asking::default(),
            answering: Answering::default(),
            waiters: Waiters::default(),
            sleeping: Sleeping::default(),
            lending: Lending::default(),
            pongs: 0,
            paused: false,
        }
    }

    /// The kernel says whether the peer is the same user.
    pub fn allow_pickle(&mut self, allowed: bool) {
        self.pickle_allowed = allowed;
    }

    /// Whether the kernel says that the peer is the same user.
    pub fn allows_pickle(&self) -> bool {
        self.pickle_allowed
    }

    /// Our preface on a link.
    pub fn preface<S>(&self, link: &Link<S>) -> Preface {
        let mut preface = Preface::new(self.role, link.limits(), self.runtime);
        preface.features |= self.lending.features();
        preface
    }

    /// Answers to our pings.
    pub fn pongs(&self) -> u64 {
        self.pongs
    }

    /// Send a frame, or queue what the kernel does not take; returns its end in the stream.
    #[inline]
    pub fn send<S: Stream>(
        &mut self,
        link: &mut Link<S>,
        header: Header,
        head: Head<'_>,
        segments: Vec<Payload>,
    ) -> u64 {
        link.queue_preface();
        self.lending.prepare(link, self.role, &segments);
        link.send(self, header, head, segments)
    }

    /// Send a frame without a body.
    pub fn send_control<S: Stream>(&mut self, link: &mut Link<S>, header: Header) -> u64 {
        self.send(link, header, Head::Borrowed(&[]), Vec::new())
    }

    /// Answer a call that will not be started.
    pub fn refuse<S: Stream>(&mut self, link: &mut Link<S>, refusal: Refusal) {
        self.answering.credits.close(refusal.id);
        let header = Header {
            time: refusal.reason as u32,
            ..Header::control(Kind::Failure, refusal.id)
        };
        let end = self.send_control(link, header);
        self.answering.note_refusal(link.outbox().sent(), end);
    }

    /// The caller sends nothing more; if it is `gone`, it does not wait for answers either.
    pub fn end<S>(&mut self, link: &mut Link<S>, gone: bool) {
        link.end();
        if gone {
            self.abandon();
        }
    }

    /// The server reads nothing more. It may still answer what it has read: the end of its stream says that it will not.
    fn end_unsent<S: Stream>(&mut self, link: &mut Link<S>, fault: &Fault) {
        for id in self.asking.break_unsent(fault, link.outbox().sent()) {
            self.waiters.wake(id);
        }
        link.outbox_mut().clear();
    }

    /// Nobody waits for the answers to what runs.
    fn abandon(&mut self) {
        let running = self.answering.inbox.abandon();
        self.report_cancelled(running);
    }

    /// Report cancelled calls to a driver. A thread that runs a call asks about that call itself.
    fn report_cancelled(&mut self, ids: impl IntoIterator<Item = u64>) {
        if self.waiters.reader() == Reader::Driver {
            self.answering.report_cancelled(ids);
        }
    }

    /// The peer's preface says that it does not support streams.
    fn refuse_streams(&mut self) {
        for id in self.asking.items.refuse_all() {
            self.waiters.wake(id);
        }
    }

    #[inline]
    fn accept_call<S: Stream>(
        &mut self,
        link: &mut Link<S>,
        frame: Incoming,
    ) -> Result<(), Violation> {
        if self.role != Role::Server {
            return Err(Violation::NotServing);
        }
        let header = frame.header;
        if header.stream {
            self.answering.credits.open(header.id, header.generation)?;
        }
        if let Some(refusal) = self.answering.inbox.accept(frame, Instant::now())? {
            self.refuse(link, refusal);
        }
        if !self.answering.credits.is_empty() {
            let old = self.answering.cancel_old_streams();
            self.report_cancelled(old);
        }
        Ok(())
    }

    fn accept_credit(&mut self, header: Header) -> Result<(), Violation> {
        if self.role != Role::Server {
            return Err(Violation::NotServing);
        }
        let known = self.answering.credits.grant(header.id, header.time)?;
        if known && self.waiters.reader() == Reader::Driver {
            self.answering.report_granted(header.id);
        }
        Ok(())
    }

    fn accept_cancel<S: Stream>(&mut self, link: &mut Link<S>, id: u64) {
        if self.answering.inbox.cancel(id) {
            self.report_cancelled([id]);
        } else if self.answering.credits.contains(id) {
            let reason = Reason::Cancelled; // it was only queued, so this is its end
            self.refuse(link, Refusal { id, reason });
        }
    }

    fn check_pickle(&self, peer: Option<&Preface>) -> Result<(), Violation> {
        if !self.pickle_allowed {
            return Err(Violation::Pickle);
        }
        match peer {
            Some(peer) if peer.runtime != self.runtime => Err(Violation::Runtime {
                peer: peer.runtime,
                own: self.runtime,
            }),
            _ => Ok(()),
        }
    }
}

impl<S: Stream> Handler<S> for Exchange {
    const KEEPS_LONG_FRAMES_APART: bool = false;

    fn accept_preface(&mut self, preface: &Preface) -> Result<(), Violation> {
        if preface.role == Role::Messenger {
            return Err(Violation::Purpose(preface.role));
        }
        if preface.features & STREAMS == 0 {
            self.refuse_streams();
        }
        Ok(())
    }

    #[inline]
    fn accept(&mut self, link: &mut Link<S>, frame: Incoming) -> Result<(), Violation> {
        let Header {
            kind, id, codec, ..
        } = frame.header;
        if codec == Codec::Pickle {
            self.check_pickle(link.peer())?;
        }
        let frame = self.lending.resolve(link, frame)?;
        match kind {
            Kind::Call => self.accept_call(link, frame)?,
            Kind::Reply | Kind::Failure => {
                self.asking.finish(frame);
                self.waiters.wake(id);
            }
            Kind::Item => {
                self.asking.items.accept(frame)?;
                self.waiters.wake(id);
            }
            Kind::Credit => self.accept_credit(frame.header)?,
            Kind::Cancel => self.accept_cancel(link, id),
            Kind::Ping => {
                if link.outbox().bytes() <= link.limits().outbox_bytes_high {
                    self.send_control(link, Header::control(Kind::Pong, id));
                }
            }
            Kind::Pong => self.pongs += 1,
            Kind::Goodbye => self.asking.note_goodbye(),
            Kind::Borrow | Kind::Chunk | Kind::Gone | Kind::Renew => {
                self.lending.accept(link, self.role, kind, id)?;
            }
            Kind::Token | Kind::Message | Kind::Shared => return Err(Violation::Kind(kind as u8)),
        }
        Ok(())
    }

    /// With open streams it is read even if answers wait: a caller that takes nothing may still cancel them.
    #[inline]
    fn holds_back(&mut self, link: &Link<S>) -> bool {
        let bytes = self.answering.inbox.bytes() + self.asking.calls.bytes();
        let limits = link.limits();
        let limit = limits.inbox_bytes_max;
        self.paused = bytes >= if self.paused { limit / 2 } else { limit };
        let outbox = link.outbox();
        let answers_wait = self.role == Role::Server
            && outbox.bytes() > limits.answers_bytes_max
            && self.answering.credits.is_empty();
        self.paused || answers_wait || self.answering.refusals_are_many(outbox.sent())
    }

    fn end_of_file(&mut self, link: &mut Link<S>) {
        if self.role == Role::Server {
            let gone = link.is_hung_up();
            self.end(link, gone);
            return;
        }
        let cause = if link.at_boundary() {
            Cause::EndOfFile
        } else {
            Cause::Truncated
        };
        link.break_with(self, Fault::Broken(cause));
    }

    fn fail_receiving(&mut self, link: &mut Link<S>, fault: StreamFault) {
        if self.role == Role::Server && link.life().is_open() {
            self.end(link, true);
        } else {
            link.break_with(self, Fault::Broken(fault.into()));
        }
    }

    fn fail_sending(&mut self, link: &mut Link<S>, fault: StreamFault) {
        let Some(fault) = link.defer(fault) else {
            return;
        };
        link.receive(self);
        if self.role == Role::Server {
            self.end(link, true);
            link.outbox_mut().clear();
        } else if fault.is_closed_to_writes() && link.life().receives() {
            self.end_unsent(link, &Fault::Broken(fault.into()));
        } else {
            link.break_with(self, Fault::Broken(fault.into()));
        }
    }

    /// End every call with `fault`, and let go of what was lent.
    fn broken(&mut self, link: &Link<S>, fault: &Fault) {
        self.asking.break_all(fault, link.outbox().sent());
        self.abandon();
        self.lending.close();
        self.waiters.wake_all();
    }
}
