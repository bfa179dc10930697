//! The state of a connection of messages: decoder, inbox and outbox, stepped over a nonblocking stream.
//!
//! Nothing here waits or locks.
//!
//! With an allocator, receiving pauses before each message with long frames: the decoder raises [`Event::Wanted`] at its
//! lengths, bytes that arrived behind them are kept in `deferred`, and nothing is read until [`State::provide`]. The
//! allocator is the caller's code, so it cannot run under the connection's lock.

mod end;
mod outgoing;
#[cfg(test)]
mod tests;

use crate::error::{Fault, Violation};
use crate::limit::{Limits, RECEIVE_BYTES, TURN_BYTES, TURN_RECEIVES};
use crate::link::admission::{self, Admission};
use crate::link::flow;
use crate::link::outbox::{Head, Outbox, Payload};
use crate::link::stall::FlowPosition;
use crate::messages::budget::{Budget, BudgetUse};
use crate::messages::frames::Message;
use crate::messages::inbox::MessageInbox;
use crate::messages::named;
use crate::stream::{Stream, StreamFault};
use crate::sys::buffer::Buffer;
use crate::wire::decoder::{Decoder, Event};
use crate::wire::frame::{Header, Incoming, Kind};
use crate::wire::preface::Preface;
use crate::wire::role::Role;

/// Everything of one connection but its lock.
pub struct State<S> {
    stream: Option<S>,
    limits: Limits,
    outbox: Outbox,
    fault: Option<Fault>,
    /// The peer's preface, once it was read.
    peer: Option<Preface>,
    /// The peer sends nothing more.
    ended: bool,
    /// Messages sent so far.
    sent: u64,
    decoder: Decoder,
    inbox: MessageInbox,
    admission: Admission,
    admitted: bool,
    /// Bytes that arrived behind the lengths of a message for which memory is wanted.
    deferred: Vec<u8>,
    /// The last receive filled its buffer, so there may be more.
    maybe_more: bool,
    /// Where in the stream the turn began.
    turn_began: u64,
    /// What was reported to the budget of the process.
    usage: BudgetUse,
    /// Where the message that is being received begins.
    boundary: u64,
}

impl<S> State<S> {
    /// Continue with the same stream under another type.
    pub fn map_stream<T>(self, map: impl FnOnce(S) -> T) -> State<T> {
        State {
            stream: self.stream.map(map),
            limits: self.limits,
            outbox: self.outbox,
            fault: self.fault,
            peer: self.peer,
            ended: self.ended,
            sent: self.sent,
            decoder: self.decoder,
            inbox: self.inbox,
            admission: self.admission,
            admitted: self.admitted,
            deferred: self.deferred,
            maybe_more: self.maybe_more,
            turn_began: self.turn_began,
            usage: self.usage,
            boundary: self.boundary,
        }
    }
}

impl<S: Stream> State<S> {
    /// Begin on a stream; the preface, and `token` if there is one, go out with the first flush.
    pub fn new(stream: S, limits: Limits, admission: Admission, token: Option<&[u8]>) -> Self {
        let mut outbox = Outbox::default();
        outbox.push_copy(&Preface::new(Role::Messenger, &limits, 0).encode());
        if let Some(token) = token {
            admission::show(token, &mut outbox);
        }
        Self {
            stream: Some(stream),
            limits,
            outbox,
            fault: None,
            peer: None,
            ended: false,
            sent: 0,
            decoder: Decoder::new(&limits, false),
            inbox: MessageInbox::default(),
            admitted: admission == Admission::Anybody,
            admission,
            deferred: Vec::new(),
            maybe_more: false,
            turn_began: 0,
            usage: BudgetUse::new(Budget::of_process()),
            boundary: 0,
        }
    }

    /// Report what is held here to the budget: queued, finished, and the received part of the current message.
    fn account(&mut self) {
        let under_way = self.decoder.offset() - self.boundary;
        let under_way = usize::try_from(under_way).unwrap_or(usize::MAX);
        self.usage
            .hold(self.inbox.bytes() + self.outbox.bytes() + under_way);
    }

    /// The progress of the message that the peer is sending; `None` between messages, and while it is not read.
    pub fn receiving(&mut self) -> Option<FlowPosition> {
        (self.is_within() && self.wants_read()).then(|| FlowPosition {
            moved: self.decoder.offset(),
            target: self.boundary,
        })
    }

    /// How far the kernel has the stream, and the end of what is queued; `None` if nothing waits for the peer.
    pub fn sending(&self) -> Option<(u64, u64)> {
        let (sent, queued) = (self.kernel_offset(), self.outbox.end());
        (self.fault.is_none() && sent < queued).then_some((sent, queued))
    }

    /// Whether the peer's preface was read, and the peer was admitted.
    pub fn is_open(&self) -> bool {
        self.peer.is_some() && self.admitted
    }

    /// Trust the peer: memory for announced lengths is allocated at once.
    pub fn trust(&mut self) {
        self.decoder.trust();
    }

    /// Begin a turn of the loop, or of a thread's wait.
    pub fn begin_turn(&mut self) {
        self.turn_began = self.decoder.offset();
    }

    /// Receive if the last receive left something, within twice the budget of a turn.
    ///
    /// A task that takes messages does not return to its loop in between, so a fast peer could keep it there for ever.
    pub fn receive_between_turns(&mut self) {
        let received = self.decoder.offset() - self.turn_began;
        if self.maybe_more && received < 2 * TURN_BYTES as u64 {
            self.receive();
        }
    }

    /// Receive what has arrived, within one turn's budget.
    pub fn receive(&mut self) {
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
        if !took {
            self.flush(); // a handshake may have ended, for which the outbox waits
        }
        self.account();
    }

    /// One receive; `None` when there is nothing more. A short receive proves emptiness.
    fn receive_once(&mut self) -> Option<usize> {
        self.maybe_more = false;
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
                    self.maybe_more = count == room;
                    self.maybe_more.then_some(count)
                }
                Ok(Err(violation)) => self.violate(violation),
                Err(fault) => self.fail_receiving(fault),
            };
        }
        flow::with_receive_buffer(|buffer| {
            let room = self.decoder.receive_max().min(RECEIVE_BYTES);
            let outcome = self.stream.as_mut()?.receive(&mut buffer[..room]);
            match outcome {
                Ok([]) => self.end_of_file(),
                Ok(filled) => {
                    let count = filled.len();
                    self.decode_bytes(filled);
                    self.maybe_more = count == room;
                    self.maybe_more.then_some(count)
                }
                Err(fault) => self.fail_receiving(fault),
            }
        })
    }

    fn decode_bytes(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.fault.is_none() {
            match self.decoder.feed(bytes) {
                Ok((count, Some(Event::Wanted))) => {
                    self.deferred = bytes[count..].to_vec();
                    return;
                }
                Ok((count, event)) => {
                    bytes = &bytes[count..];
                    self.handle_event(event);
                }
                Err(violation) => drop(self.violate(violation)),
            }
        }
    }

    fn handle_event(&mut self, event: Option<Event>) {
        if !matches!(event, None | Some(Event::Wanted)) {
            self.boundary = self.decoder.offset();
        }
        let outcome = match event {
            None | Some(Event::Wanted) => Ok(()),
            Some(Event::Preface(preface)) => self.accept_preface(preface),
            Some(Event::Frame(frame)) => self.accept(frame),
        };
        if let Err(violation) = outcome {
            self.violate(violation);
        }
    }

    fn accept_preface(&mut self, preface: Preface) -> Result<(), Violation> {
        if preface.role != Role::Messenger {
            return Err(Violation::Purpose(preface.role));
        }
        self.peer = Some(preface);
        Ok(())
    }

    fn accept(&mut self, mut frame: Incoming) -> Result<(), Violation> {
        let is_message = matches!(frame.header.kind, Kind::Message | Kind::Shared);
        if !is_message || !self.admitted {
            self.decoder.retire(frame.segments.drain(..)); // dropped after unlocking
        }
        match frame.header.kind {
            Kind::Token => self.admit(&frame),
            _ if !self.admitted => Err(Violation::Uninvited),
            Kind::Message => {
                if frame.segments.is_empty() {
                    return Err(Violation::Empty);
                }
                self.inbox.push(frame.segments);
                Ok(())
            }
            Kind::Shared => {
                let message = self.open(frame.segments)?;
                self.inbox.push(message);
                Ok(())
            }
            Kind::Ping => {
                if self.outbox.bytes() <= self.limits.outbox_bytes_high {
                    self.send_control(Kind::Pong, frame.header.id);
                }
                Ok(())
            }
            Kind::Pong => Ok(()),
            other => Err(Violation::Kind(other as u8)),
        }
    }

    /// The frames of a message of which some are named.
    fn open(&mut self, mut segments: Vec<Buffer>) -> Result<Message, Violation> {
        let limits = self.limits;
        let Some(stream) = &mut self.stream else {
            self.decoder.retire(segments);
            return Err(Violation::Kind(Kind::Shared as u8));
        };
        let opened = named::open(&mut segments, &limits, |name| {
            stream.open(name).map_err(|fault| match fault {
                StreamFault::Violation(violation) => violation,
                other => Violation::Window(other.to_string()),
            })
        });
        self.decoder.retire(segments);
        opened
    }

    /// The watched descriptor was reported ready.
    pub fn woken(&mut self) {
        let woken = self.stream.as_mut().map_or(Ok(()), Stream::woken);
        if let Err(fault) = woken
            && !fault.is_transient()
        {
            self.fail(fault);
        }
    }

    /// Frames in shared memory that the peer may still read.
    pub fn lent(&mut self) -> usize {
        self.stream.as_mut().map_or(0, Stream::lent)
    }

    fn admit(&mut self, frame: &Incoming) -> Result<(), Violation> {
        if self.admitted {
            return Ok(()); // unrequested or repeated tokens are ignored
        }
        self.admitted = self.admission.admits(frame.head.as_slice());
        if self.admitted {
            self.trust();
            return Ok(());
        }
        Err(Violation::Token)
    }

    /// Send a frame that is no message.
    pub fn send_control(&mut self, kind: Kind, id: u64) {
        self.outbox
            .push_head(Head::Borrowed(&Header::control(kind, id).encode()));
        self.flush();
    }

    /// From now on ask the caller for the memory of messages with long frames.
    pub fn request_memory(&mut self) {
        self.decoder.request_memory();
    }

    /// The lengths of the frames for which memory is wanted before more is read, 0 for short ones.
    pub fn wanted(&self) -> Option<Vec<usize>> {
        self.decoder.wanted().filter(|_| self.fault.is_none())
    }

    /// Provide the memory that is wanted, and continue to decode.
    pub fn provide(&mut self, buffers: Vec<Option<Buffer>>) {
        self.decoder.provide(buffers);
        let deferred = std::mem::take(&mut self.deferred);
        self.decode_bytes(&deferred);
    }

    /// Lent memory that is no longer used. Drop it outside of any lock.
    pub fn take_retired(&mut self) -> (Vec<Payload>, Vec<Buffer>) {
        (self.outbox.take_retired(), self.decoder.take_retired())
    }

    /// Take the next message.
    pub fn take(&mut self) -> Option<Message> {
        let message = self.inbox.pop()?;
        self.account();
        Some(message)
    }

    /// The next message, without taking it.
    pub fn front(&self) -> Option<&Message> {
        self.inbox.front()
    }

    /// Whether a message, or the handshake, is incomplete.
    pub fn is_within(&self) -> bool {
        !self.decoder.at_boundary() || !self.is_open()
    }

    /// Whether another receive would probably find something.
    pub fn may_have_more(&mut self) -> bool {
        (self.maybe_more || self.holds_received()) && self.wants_read()
    }

    /// How far the kernel has the stream.
    pub fn kernel_offset(&self) -> u64 {
        let unsent = self.stream.as_ref().map_or(0, Stream::unsent);
        self.outbox.sent() - unsent as u64
    }

    /// Whether the stream holds received bytes, for which the socket does not become readable.
    pub fn holds_received(&self) -> bool {
        self.fault.is_none() && self.stream.as_ref().is_some_and(Stream::holds_received)
    }

    /// Whether the stream should be watched for input.
    pub fn wants_read(&mut self) -> bool {
        let held_back = self.usage.holds_back(self.inbox.bytes());
        let paused = (self.inbox).update_pause(self.limits.inbox_bytes_max, held_back);
        let open = !self.ended && self.fault.is_none() && self.stream.is_some();
        open && !paused && !self.decoder.awaits_memory()
    }

    /// Whether the stream should be watched for output.
    pub fn wants_write(&self) -> bool {
        let queued = !self.outbox.is_empty();
        let waits = |stream: &S| {
            let watched = !stream.signals_room_as_input();
            watched && (stream.wants_write() || (queued && stream.takes()))
        };
        self.fault.is_none() && self.stream.as_ref().is_some_and(waits)
    }

    /// The stream; `None` once it was closed or given away.
    pub fn stream(&self) -> Option<&S> {
        self.stream.as_ref()
    }

    /// The stream, for what it offers besides moving bytes.
    pub fn stream_mut(&mut self) -> Option<&mut S> {
        self.stream.as_mut()
    }

    /// The limits of this end.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// What is queued to be sent.
    pub fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// Messages received so far.
    pub fn received(&self) -> u64 {
        self.inbox.received()
    }

    /// Messages sent so far.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Messages that wait, and their bytes.
    pub fn waiting(&self) -> (usize, usize) {
        (self.inbox.len(), self.inbox.bytes())
    }

    /// Bytes received so far.
    pub fn offset(&self) -> u64 {
        self.decoder.offset()
    }

    /// Bytes that were copied: out of the receive buffer, into the outbox, and into shared memory.
    pub fn copied(&self) -> u64 {
        let aside = self.stream.as_ref().map_or(0, Stream::copied);
        self.decoder.copied() + self.outbox.copied() + aside
    }
}
