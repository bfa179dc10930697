//! The state of a connection of messages: the link and the received messages, stepped together.
//!
//! Nothing here waits or locks.
//!
//! With an allocator, receiving pauses before each message with long frames: the decoder asks for memory at its lengths,
//! bytes that arrived behind them are kept, and nothing is read until [`State::provide`]. The allocator is the caller's
//! code, so it cannot run under the connection's lock.

mod outgoing;
#[cfg(test)]
mod tests;

use crate::error::{Cause, Fault};
use crate::limit::{Limits, TURN_BYTES};
use crate::link::admission::{Admission, Handshake};
use crate::link::framed::Link;
use crate::link::outbox::{Outbox, Payload};
use crate::link::stall::FlowPosition;
use crate::messages::arrivals::Arrivals;
use crate::messages::frames::Message;
use crate::stream::Stream;
use crate::sys::buffer::Buffer;
use crate::wire::preface::Preface;
use crate::wire::role::Role;

/// Everything of one connection but its lock.
pub struct State<S> {
    link: Link<S>,
    arrivals: Arrivals,
    /// Messages sent so far.
    sent: u64,
    /// Where in the stream the turn began.
    turn_began: u64,
}

impl<S> State<S> {
    /// Continue with the same stream under another type.
    pub fn map_stream<T>(self, map: impl FnOnce(S) -> T) -> State<T> {
        State {
            link: self.link.map_stream(map),
            arrivals: self.arrivals,
            sent: self.sent,
            turn_began: self.turn_began,
        }
    }
}

impl<S: Stream> State<S> {
    /// Begin on a stream; the preface, and `token` if there is one, go out with the first flush.
    pub fn new(stream: S, limits: Limits, admission: Admission, token: Option<&[u8]>) -> Self {
        let handshake = Handshake {
            admission,
            token: token.map(<[u8]>::to_vec),
            trusted: false,
        };
        let mut link = Link::new(limits, handshake);
        link.connect(stream, false);
        link.push_preface(&Preface::new(Role::Messenger, &limits, 0));
        Self {
            link,
            arrivals: Arrivals::new(),
            sent: 0,
            turn_began: 0,
        }
    }

    /// The progress of the message that the peer is sending; `None` between messages, and while it is not read.
    pub fn receiving(&mut self) -> Option<FlowPosition> {
        (self.is_within() && self.wants_read()).then(|| FlowPosition {
            moved: self.link.offset(),
            target: self.arrivals.boundary(),
        })
    }

    /// How far the kernel has the stream, and the end of what is queued; `None` if nothing waits for the peer.
    pub fn sending(&self) -> Option<(u64, u64)> {
        let (sent, queued) = (self.kernel_offset(), self.link.outbox().end());
        (!self.link.life().is_broken() && sent < queued).then_some((sent, queued))
    }

    /// Whether the peer's preface was read, and the peer was admitted, even if the connection broke since.
    pub fn has_opened(&self) -> bool {
        self.link.life().has_opened()
    }

    /// Trust the peer: memory for announced lengths is allocated at once.
    pub fn trust(&mut self) {
        self.link.trust();
    }

    /// Begin a turn of the loop, or of a thread's wait.
    pub fn begin_turn(&mut self) {
        self.turn_began = self.link.offset();
    }

    /// Receive if the last receive left something, within twice the budget of a turn.
    ///
    /// A task that takes messages does not return to its loop in between, so a fast peer could keep it there for ever.
    pub fn receive_between_turns(&mut self) {
        let received = self.link.offset() - self.turn_began;
        if self.link.filled_its_buffer() && received < 2 * TURN_BYTES as u64 {
            self.receive();
        }
    }

    /// Receive what has arrived, within one turn's budget.
    pub fn receive(&mut self) {
        self.link.receive(&mut self.arrivals);
        self.arrivals.account(&self.link);
    }

    /// The watched descriptor was reported ready.
    pub fn woken(&mut self) {
        let woken = self.link.stream_mut().map_or(Ok(()), Stream::woken);
        if let Err(fault) = woken
            && !fault.is_transient()
        {
            self.link.fail(&mut self.arrivals, fault);
        }
    }

    /// Frames in shared memory that the peer may still read.
    pub fn lent(&mut self) -> usize {
        self.link.stream_mut().map_or(0, Stream::lent)
    }

    /// From now on ask the caller for the memory of messages with long frames.
    pub fn request_memory(&mut self) {
        self.link.request_memory();
    }

    /// The lengths of the frames for which memory is wanted before more is read, 0 for short ones.
    pub fn wanted(&self) -> Option<Vec<usize>> {
        self.link.wanted()
    }

    /// Provide the memory that is wanted, and continue to decode.
    pub fn provide(&mut self, buffers: Vec<Option<Buffer>>) {
        self.link.provide(&mut self.arrivals, buffers);
    }

    /// Lent memory that is no longer used. Drop it outside of any lock.
    pub fn take_retired(&mut self) -> (Vec<Payload>, Vec<Buffer>) {
        (self.link.take_sent(), self.link.take_unused())
    }

    /// Take the next message.
    pub fn take(&mut self) -> Option<Message> {
        let message = self.arrivals.inbox.pop()?;
        self.arrivals.account(&self.link);
        Some(message)
    }

    /// The next message, without taking it.
    pub fn front(&self) -> Option<&Message> {
        self.arrivals.inbox.front()
    }

    /// Whether a message, or the handshake, is incomplete.
    pub fn is_within(&self) -> bool {
        !self.link.at_boundary() || !self.has_opened()
    }

    /// Whether another receive would probably find something.
    pub fn may_have_more(&mut self) -> bool {
        self.link.may_have_more() && self.wants_read()
    }

    /// How far the kernel has the stream.
    pub fn kernel_offset(&self) -> u64 {
        self.link.kernel_offset()
    }

    /// Whether the stream holds received bytes, for which the socket does not become readable.
    pub fn holds_received(&self) -> bool {
        self.link.holds_received()
    }

    /// Whether the stream should be watched for input.
    pub fn wants_read(&mut self) -> bool {
        self.link.wants_read(&mut self.arrivals)
    }

    /// Whether the stream should be watched for output.
    pub fn wants_write(&self) -> bool {
        let is_watched = |stream: &S| !stream.signals_room_as_input();
        !self.link.life().is_broken()
            && self.stream().is_some_and(is_watched)
            && self.link.wants_write()
    }

    /// The stream; `None` once it was closed or given away.
    pub fn stream(&self) -> Option<&S> {
        self.link.stream()
    }

    /// The stream, for what it offers besides moving bytes.
    pub fn stream_mut(&mut self) -> Option<&mut S> {
        self.link.stream_mut()
    }

    /// The limits of this end.
    pub fn limits(&self) -> Limits {
        *self.link.limits()
    }

    /// What is queued to be sent.
    pub fn outbox(&self) -> &Outbox {
        self.link.outbox()
    }

    /// Messages received so far.
    pub fn received(&self) -> u64 {
        self.arrivals.inbox.received()
    }

    /// Messages sent so far.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Messages that wait, and their bytes.
    pub fn waiting(&self) -> (usize, usize) {
        let inbox = &self.arrivals.inbox;
        (inbox.len(), inbox.bytes())
    }

    /// Bytes received so far.
    pub fn offset(&self) -> u64 {
        self.link.offset()
    }

    /// Bytes that were copied: out of the receive buffer, into the outbox, and into shared memory.
    pub fn copied(&self) -> u64 {
        let aside = self.stream().map_or(0, Stream::copied);
        self.link.received_copied() + self.outbox().copied() + aside
    }

    /// Why the connection broke, if it did.
    pub fn fault(&self) -> Option<&Fault> {
        self.link.fault()
    }

    /// Whether the peer sends nothing more, after its last whole message.
    pub fn has_ended(&self) -> bool {
        self.link.life().has_ended()
    }

    /// Why nothing more arrives once the inbox is empty, if so.
    pub fn end(&self) -> Option<Fault> {
        let ended = self.has_ended().then_some(Fault::Broken(Cause::EndOfFile));
        self.fault().cloned().or(ended)
    }

    /// Whether the peer is gone; polls the stream if it is not read.
    pub fn is_over(&mut self) -> bool {
        let is_gone = |stream: &S| self.arrivals.inbox.is_paused() && stream.hung_up();
        !self.link.life().receives() || self.stream().is_none_or(is_gone)
    }

    /// End the connection; received messages can still be taken.
    pub fn break_with(&mut self, fault: Fault) {
        self.link.break_with(&mut self.arrivals, fault);
    }

    /// Take the stream between two messages, if nothing is queued in either direction; `None`, without a change,
    /// otherwise.
    ///
    /// The next byte in each direction has the meaning that the two ends agreed on by messages. So the peer must not send
    /// such bytes before it knows that this end has taken the stream: they would be read as messages. The end that
    /// answers last sends its answer, and takes the stream before it receives again.
    ///
    /// This closes the state.
    pub fn take_stream(&mut self) -> Option<S> {
        if !self.is_between() {
            return None;
        }
        self.close()
    }

    /// Close now: queued bytes are dropped. Returns the stream, to be dropped outside of any lock.
    pub fn close(&mut self) -> Option<S> {
        self.break_with(Fault::Closed);
        self.arrivals.close();
        self.link.take_stream()
    }

    /// Drop the stream alone, in a forked child: the peer does not notice, and what the parent counts stays.
    pub fn drop_stream(&mut self) {
        self.link.take_stream();
    }

    /// Continue to send after a fault, for a message that tells the peer about it. Nothing more should be received.
    pub fn send_despite_fault(&mut self) {
        self.link.send_despite_fault();
    }

    /// Whether no message is in transit or queued, in either direction.
    fn is_between(&self) -> bool {
        let sent = |stream: &S| stream.unsent() == 0 && !stream.wants_write();
        self.link.life().receives()
            && !self.is_within()
            && !self.link.has_kept()
            && self.arrivals.inbox.is_empty()
            && self.outbox().is_empty()
            && self.stream().is_some_and(sent)
    }
}
