//! The state of a connection of calls: its parts together, stepped over a nonblocking stream.
//!
//! Nothing here waits or locks; [`crate::calls::connection`] adds the lock and `drive::blocking` the waiting.
//!
//! A peer cannot make a connection hold more than its limits: [`ConnectionState::wants_read`] stops reading while the
//! inbox, the answers that the peer does not take, or the refusals it causes are above theirs. Answers themselves are
//! never refused, since their callers are waiting; refusing to read bounds them.
//!
//! A failure to send does not break a connection at once: the peer may have answered calls before it closed. So the
//! state first receives what is there ([`ConnectionState::fail_sending`]), and only notes the failure while it is
//! already receiving.

mod outgoing;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use forebay_base::wakeup::Wakeup;

use crate::calls::call::Calls;
use crate::calls::credit::Credits;
use crate::calls::inbox::{Inbox, Refusal};
use crate::calls::items::Streams;
use crate::drive::look::Look;
use crate::error::{Cause, Fault, Violation};
use crate::limit::{HANDSHAKE_BYTES_MAX, Limits, RECEIVE_BYTES, TURN_BYTES, TURN_RECEIVES};
use crate::link::admission::{self, Admission};
use crate::link::flow;
use crate::link::outbox::{Head, Outbox};
use crate::share::Lending;
use crate::stream::{Stream, StreamFault};
use crate::wire::decoder::{Decoder, Event};
use crate::wire::frame::{Codec, Header, Incoming, Kind, Reason};
use crate::wire::preface::{LENDS, Preface, STREAMS};
use crate::wire::role::Role;

/// How the two ends admit each other.
#[derive(Clone, Debug, Default)]
pub struct Handshake {
    /// What this end requires of the peer.
    pub admission: Admission,
    /// The token that it shows.
    pub token: Option<Vec<u8>>,
    /// Whether memory for announced lengths is allocated at once, even for a peer of another user.
    pub trusted: bool,
}

/// Who reads the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    None,
    /// A blocked thread, on behalf of all blocked threads; the number of its turn.
    Thread(u64),
    /// An event loop or a reader thread that steps the connection.
    Driver,
}

#[allow(clippy::struct_excessive_bools)] // each is a fact of its own, not a mode
pub struct ConnectionState<S> {
    pub stream: Option<S>,
    /// The peer's process, if it is known.
    pub pidfd: Option<Arc<OwnedFd>>,
    /// Our preface was queued.
    preface_sent: bool,
    pub handshake: Handshake,
    /// The peer has shown the token that `handshake` requires.
    admitted: bool,
    pub role: Role,
    pub limits: Limits,
    pub pickle_allowed: bool,
    pub runtime: u32,
    pub peer: Option<Preface>,
    pub calls: Calls,
    /// Streams that this end has started.
    pub items: Streams,
    pub inbox: Inbox,
    /// Streams that it serves.
    pub credits: Credits,
    pub outbox: Outbox,
    pub decoder: Decoder,
    /// Long segments by reference, where the peer is the same user on a socket that carries descriptors.
    pub lending: Option<Box<Lending>>,
    pub fault: Option<Fault>,
    /// The peer sends nothing more.
    pub ended: bool,
    /// The peer takes no new calls.
    pub goodbye: bool,
    pub pongs: u64,
    /// Running calls that were cancelled, for an event loop to act on.
    pub cancels: Vec<u64>,
    /// Running streams that were granted credit, for an event loop to act on.
    pub granted: Vec<u64>,
    pub reader: Reader,
    /// The eventfds of blocked threads that do not read, by the call that each waits for.
    pub followers: BTreeMap<u64, Arc<Wakeup>>,
    /// The eventfd that the reading thread sleeps on besides the socket, if it waits for a reply.
    pub leader: Option<Arc<Wakeup>>,
    /// Turns of reading threads so far. The number tells a thread whether it is still the reader.
    pub leads: u64,
    /// Whether a blocked thread spins before it sleeps.
    pub look: Look,
    paused: bool,
    /// Frames wait for a flush, see [`crate::Connection::cork`].
    pub corked: bool,
    /// Within `receive`, where a failure to send is only recorded.
    receiving: bool,
    failed_sending: Option<StreamFault>,
    refused: outgoing::Refused,
}

impl<S: Stream> ConnectionState<S> {
    pub fn new(role: Role, limits: Limits, runtime: u32) -> Self {
        Self {
            stream: None,
            pidfd: None,
            preface_sent: true,
            handshake: Handshake::default(),
            admitted: true,
            role,
            limits,
            pickle_allowed: false,
            runtime,
            peer: None,
            calls: Calls::default(),
            items: Streams::default(),
            inbox: Inbox::default(),
            credits: Credits::default(),
            outbox: Outbox::default(),
            decoder: Decoder::new(&limits, false),
            lending: None,
            fault: None,
            ended: false,
            goodbye: false,
            pongs: 0,
            cancels: Vec::new(),
            granted: Vec::new(),
            reader: Reader::None,
            followers: BTreeMap::new(),
            leader: None,
            leads: 0,
            look: Look::default(),
            paused: false,
            corked: false,
            receiving: false,
            failed_sending: None,
            refused: outgoing::Refused::default(),
        }
    }

    /// Begin on a stream; `trusted` says that the peer is the same user.
    pub fn connect(&mut self, stream: S, trusted: bool) {
        self.lending = (trusted && stream.carries_descriptors()).then(Box::default);
        self.stream = Some(stream);
        self.pickle_allowed = trusted;
        self.decoder = Decoder::new(&self.limits, trusted || self.handshake.trusted);
        self.preface_sent = false;
        self.admitted = self.handshake.admission == Admission::Anybody;
        if !self.admitted {
            self.decoder.limit_frames(HANDSHAKE_BYTES_MAX);
        }
    }

    /// Whether the peer's preface was read, and the peer was admitted.
    pub fn is_open(&self) -> bool {
        self.fault.is_none() && self.decoder.has_preface() && self.admitted
    }

    /// Check a token. Unrequested or repeated tokens are ignored.
    fn admit(&mut self, shown: &[u8]) -> Result<(), Violation> {
        if self.admitted {
            return Ok(());
        }
        if !self.handshake.admission.admits(shown) {
            return Err(Violation::Token);
        }
        self.admitted = true;
        self.decoder.limit_frames(self.limits.frame_bytes_max);
        self.decoder.trust();
        self.send_preface();
        self.flush();
        Ok(())
    }

    /// Continue a stream on which another process has sent our preface and, with `preface_read`, has read the peer's.
    pub fn resume(&mut self, preface_read: bool) {
        self.preface_sent = true;
        if preface_read {
            self.decoder.skip_preface();
        }
    }

    /// Queue the preface, unless that was done. It precedes the first frame.
    ///
    /// An end that requires a token holds its preface back until the token was right, so that the peer's connect fails
    /// with a wrong one.
    pub fn send_preface(&mut self) {
        if self.admitted && !std::mem::replace(&mut self.preface_sent, true) {
            let mut preface = Preface::new(self.role, &self.limits, self.runtime);
            if self.lending.is_some() {
                preface.features |= LENDS;
            }
            self.outbox.push_copy(&preface.encode());
            if let Some(token) = self.handshake.token.take() {
                admission::show(&token, &mut self.outbox);
            }
        }
    }

    /// Receive what has arrived and act on it, within one turn's budget.
    pub fn receive(&mut self) {
        self.receiving = true;
        let took = self.stream.as_ref().is_none_or(Stream::takes);
        let mut bytes = 0;
        for _ in 0..TURN_RECEIVES {
            if !self.wants_read() || bytes >= TURN_BYTES {
                break;
            }
            match self.receive_once() {
                Some(count) => bytes += count,
                None if self.holds_received() => {}
                None => break,
            }
        }
        self.receiving = false;
        if !took {
            self.flush();
        }
        if let Some(fault) = self.failed_sending.take() {
            self.fail_sending(fault);
        }
    }

    /// One receive; `None` when there is probably nothing more. A short receive proves emptiness.
    fn receive_once(&mut self) -> Option<usize> {
        let stream = self.stream.as_mut()?;
        if self.decoder.wants_direct() {
            let mut room = 0;
            let outcome = self.decoder.receive_with(|spare| {
                room = spare.len();
                stream.receive(spare)
            });
            return match outcome {
                Ok(Ok((0, None))) => self.end_of_file(),
                Ok(Ok((count, event))) => {
                    self.handle_event(event);
                    (count == room).then_some(count)
                }
                Ok(Err(violation)) => self.violate(violation),
                Err(fault) => self.fail_receiving(fault),
            };
        }
        flow::with_receive_buffer(|buffer| {
            let outcome = self.stream.as_mut()?.receive(buffer);
            match outcome {
                Ok([]) => self.end_of_file(),
                Ok(filled) => {
                    let count = filled.len();
                    self.decode_bytes(filled);
                    (count == RECEIVE_BYTES).then_some(count)
                }
                Err(fault) => self.fail_receiving(fault),
            }
        })
    }

    /// Decode received bytes and act on their frames.
    fn decode_bytes(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.fault.is_none() {
            match self.decoder.feed(bytes) {
                Ok((count, event)) => {
                    bytes = &bytes[count..];
                    self.handle_event(event);
                }
                Err(violation) => drop(self.violate(violation)),
            }
        }
    }

    fn handle_event(&mut self, event: Option<Event>) {
        let outcome = match event {
            None | Some(Event::Wanted) => Ok(()),
            Some(Event::Preface(preface)) if preface.role == Role::Messenger => {
                Err(Violation::Purpose(preface.role))
            }
            Some(Event::Preface(preface)) => {
                self.peer = Some(preface);
                if preface.features & STREAMS == 0 {
                    self.refuse_streams();
                }
                Ok(())
            }
            Some(Event::Frame(frame)) => self.accept(frame),
        };
        if let Err(violation) = outcome {
            self.violate(violation);
        }
    }

    fn accept(&mut self, frame: Incoming) -> Result<(), Violation> {
        let Header {
            kind, id, codec, ..
        } = frame.header;
        match kind {
            Kind::Token => return self.admit(frame.head.as_slice()),
            _ if !self.admitted => return Err(Violation::Uninvited),
            _ => {}
        }
        if codec == Codec::Pickle {
            self.check_pickle()?;
        }
        let frame = self.resolve(frame)?;
        match kind {
            Kind::Call if self.role != Role::Server => return Err(Violation::NotServing),
            Kind::Call => {
                if frame.header.stream {
                    self.credits.open(id, frame.header.generation)?;
                }
                if let Some(refusal) = self.inbox.accept(frame, Instant::now())? {
                    self.refuse(refusal);
                }
                if !self.credits.is_empty() {
                    self.end_old_streams();
                }
            }
            Kind::Reply | Kind::Failure => {
                if let Some(frame) = self.items.finish(frame) {
                    self.calls.finish(frame);
                }
                self.wake(id);
            }
            Kind::Item => {
                self.items.accept(frame)?;
                self.wake(id);
            }
            Kind::Credit => self.accept_credit(frame.header)?,
            Kind::Cancel if self.inbox.cancel(id) => self.report_cancelled([id]),
            Kind::Cancel if self.credits.contains(id) => self.refuse(Refusal {
                id,
                reason: Reason::Cancelled, // it was only queued, so this is its end
            }),
            Kind::Ping if self.outbox.bytes() <= self.limits.outbox_bytes_high => {
                self.send(
                    Header::control(Kind::Pong, id),
                    Head::Borrowed(&[]),
                    Vec::new(),
                );
            }
            Kind::Pong => self.pongs += 1,
            Kind::Goodbye => self.goodbye = true,
            Kind::Borrow | Kind::Chunk | Kind::Gone if self.is_renewing() => {
                self.skip_descriptors(kind);
            }
            Kind::Borrow => self.begin_lending()?,
            Kind::Chunk => self.map_chunk(id)?,
            Kind::Gone => self.forget_chunk(id)?,
            Kind::Renew => self.accept_renewal(id),
            Kind::Cancel | Kind::Ping => {}
            Kind::Token | Kind::Message | Kind::Shared => return Err(Violation::Kind(kind as u8)),
        }
        Ok(())
    }

    fn check_pickle(&self) -> Result<(), Violation> {
        if !self.pickle_allowed {
            return Err(Violation::Pickle);
        }
        match &self.peer {
            Some(peer) if peer.runtime != self.runtime => Err(Violation::Runtime {
                peer: peer.runtime,
                own: self.runtime,
            }),
            _ => Ok(()),
        }
    }

    fn wake(&mut self, id: u64) {
        if let Some(wake) = self.followers.remove(&id) {
            wake.raise();
        }
    }

    fn end_of_file(&mut self) -> Option<usize> {
        let cause = if self.decoder.at_boundary() {
            Cause::EndOfFile
        } else {
            Cause::Truncated
        };
        match self.role {
            Role::Caller | Role::Messenger => self.break_with(Fault::Broken(cause)),
            Role::Server => {
                let gone = self.stream.as_ref().is_none_or(Stream::hung_up);
                self.end(gone);
            }
        }
        None
    }

    fn fail_receiving(&mut self, fault: StreamFault) -> Option<usize> {
        if let StreamFault::Violation(violation) = fault {
            return self.violate(violation);
        }
        match self.role {
            _ if fault.is_transient() => {}
            Role::Server if self.is_open() => self.end(true),
            _ => self.break_with(Fault::Broken(fault.into())),
        }
        None
    }

    fn violate(&mut self, violation: Violation) -> Option<usize> {
        self.break_with(Fault::Protocol {
            offset: self.decoder.offset(),
            violation,
        });
        None
    }

    /// The caller sends nothing more; if it is `gone`, it does not wait for answers either.
    fn end(&mut self, gone: bool) {
        self.ended = true;
        if gone {
            let running = self.inbox.abandon();
            self.report_cancelled(running);
        }
    }

    /// Report cancelled calls to a driver. A thread that runs a call asks about that call itself.
    pub fn report_cancelled(&mut self, ids: impl IntoIterator<Item = u64>) {
        if self.reader == Reader::Driver {
            self.cancels.extend(ids);
        }
    }

    /// Whether the caller of the running calls is gone; polls the socket.
    pub fn caller_gone(&mut self) -> bool {
        if self.ended && self.stream.as_ref().is_none_or(Stream::hung_up) {
            self.end(true);
        }
        self.stream.is_none()
    }

    /// End every call with `fault` and let go of the socket.
    pub fn break_with(&mut self, fault: Fault) {
        if self.fault.is_some() {
            return;
        }
        self.calls.break_all(&fault, self.outbox.sent());
        self.items.break_all(&fault, self.outbox.sent());
        let running = self.inbox.abandon();
        self.report_cancelled(running);
        self.fault = Some(fault);
        self.outbox.clear();
        self.lending = None;
        for wake in std::mem::take(&mut self.followers).values() {
            wake.raise();
        }
    }

    /// Whether the stream should be read now: it is alive, the inbox is below its limit, and the peer takes our answers.
    pub fn wants_read(&mut self) -> bool {
        if self.fault.is_some() || self.ended {
            return false;
        }
        let bytes = self.inbox.bytes() + self.calls.bytes();
        let limit = self.limits.inbox_bytes_max;
        self.paused = bytes >= if self.paused { limit / 2 } else { limit };
        // With open streams it is read even so: a caller that takes nothing may still cancel them.
        let answers_wait = self.role == Role::Server
            && self.outbox.bytes() > self.limits.answers_bytes_max
            && self.credits.is_empty();
        !self.paused && !answers_wait && !self.refusals_are_many()
    }

    /// Wake the next blocked thread to read, if there is no reader.
    pub fn promote(&mut self) {
        if self.reader == Reader::None
            && let Some(wake) = self.followers.values().next()
        {
            wake.raise();
        }
    }
}
