//! A connection of messages: the state behind a lock, stepped by an event loop or waited for by threads.
//!
//! The lock is held for one bounded step, never across a wait or while memory is dropped that was lent to be sent or
//! received into: see [`crate::calls::connection`].

#[cfg(test)]
mod given_tests;
mod raw;
mod waiting;

use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forebay_base::process::{self, number};
use forebay_memory::Lease;

use crate::error::{Cause, Delivered, Error, Fault, Result};
use crate::limit::Limits;
use crate::link::admission::Admission;
use crate::messages::frames::{Frames, Message};
use crate::messages::queue::LeadQueue;
use crate::messages::stall::Stall;
use crate::messages::state::State;
use crate::stream::socket::Wire;
use crate::stream::tls::Peer;
use crate::stream::{Socket, Stream};
use crate::sys::buffer::Buffer;
use crate::sys::shared::Staged;

/// Allocates memory to receive a message into. It gets the lengths of the frames, 0 for short ones, and returns for each
/// a buffer of exactly that size, or `None` for the connection's own memory. Called without a lock.
pub type Allocator = Box<dyn Fn(&[usize]) -> Vec<Option<Buffer>> + Send + Sync>;

/// How a connection is made.
pub struct MessageOptions {
    pub limits: Limits,
    /// The peer's name in errors.
    pub peer: String,
    /// What this end requires of the peer.
    pub admission: Admission,
    /// The token that it shows.
    pub token: Option<Vec<u8>>,
    /// Whether memory for announced lengths is allocated at once.
    pub trusted: bool,
    /// Allocates the memory for long frames.
    pub allocator: Option<Allocator>,
}

/// The progress of a message that is being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sending {
    /// Buffers of the caller are still in use.
    pub lent: bool,
    /// Its end in the outgoing stream.
    pub end: u64,
    /// The kernel has the stream up to here.
    pub sent: u64,
    /// Bytes that wait to be sent, and whether to watch the socket for output.
    pub outbox_bytes: usize,
    pub wants_write: bool,
    /// The process holds more than it may.
    pub over_budget: bool,
}

impl Sending {
    /// How far the kernel must have the stream before the sender may continue; `None`: at once.
    ///
    /// A sender waits until its buffers are free; otherwise, above the high mark, until the low one. If the process holds
    /// too much, it waits above the low mark already.
    pub fn awaited(&self, limits: &Limits) -> Option<u64> {
        let most = if self.over_budget {
            limits.outbox_bytes_low
        } else {
            limits.outbox_bytes_high
        };
        if self.lent {
            Some(self.end)
        } else if self.outbox_bytes > most {
            Some(self.end.saturating_sub(limits.outbox_bytes_low as u64))
        } else {
            None
        }
    }
}

/// What a connection is ready for after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // each is a fact of its own
pub struct Readiness {
    /// The peer is admitted.
    pub open: bool,
    /// A message can be taken.
    pub ready: bool,
    /// Nothing more arrives once those are taken.
    pub over: bool,
    pub wants_read: bool,
    pub wants_write: bool,
    /// The stream holds received bytes, for which the socket does not become readable: step again without waiting.
    pub again: bool,
    /// The kernel has the stream up to here.
    pub sent: u64,
    /// Bytes that wait to be sent.
    pub outbox_bytes: usize,
}

/// What a connection has counted and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageCounters {
    pub sent_messages: u64,
    pub received_messages: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// Bytes that were copied between buffers of this process, of both directions.
    pub copied_bytes: u64,
    pub outbox_bytes: usize,
    pub inbox_bytes: usize,
    pub inbox_messages: usize,
    /// Frames in shared memory that the peer may still read.
    pub lent_frames: usize,
}

/// One end of a connection. Every method may be called from any thread.
pub struct Messages {
    state: Mutex<State<Wire>>,
    peer: String,
    allocator: Option<Allocator>,
    owner: AtomicU64,
    /// A thread waits for messages.
    taken: AtomicBool,
    /// Threads that wait on shared memory, whose wakeup only one may sleep on.
    queue: LeadQueue,
    /// The progress at the last check for a stall.
    stall: Mutex<Option<Stall>>,
}

/// The state of a connection that a native server has stepped so far: [`Messages::resume`].
pub type Handed = State<Socket>;

type Guard<'a> = MutexGuard<'a, State<Wire>>;

impl Messages {
    /// Take over a connected stream socket, TLS over one, or shared memory, and send the preface.
    pub fn new(wire: impl Into<Wire>, options: MessageOptions) -> Self {
        let MessageOptions {
            limits,
            peer,
            admission,
            token,
            trusted,
            allocator,
        } = options;
        let mut state = State::new(wire.into(), limits, admission, token.as_deref());
        if trusted {
            state.trust();
        }
        if allocator.is_some() {
            state.request_memory();
        }
        state.flush();
        Self {
            state: Mutex::new(state),
            peer,
            allocator,
            owner: AtomicU64::new(process::epoch()),
            taken: AtomicBool::new(false),
            queue: LeadQueue::default(),
            stall: Mutex::new(None),
        }
    }

    /// Continue with a state that a native server of this process has stepped so far.
    pub fn resume(state: Handed, peer: String) -> Self {
        Self {
            state: Mutex::new(state.map_stream(Wire::Socket)),
            peer,
            allocator: None,
            owner: AtomicU64::new(process::epoch()),
            taken: AtomicBool::new(false),
            queue: LeadQueue::default(),
            stall: Mutex::new(None),
        }
    }

    /// The peer's name in errors.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// What a selector watches; `None` once closed.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.lock_any().stream().map(Wire::descriptor)
    }

    /// Whether the watched descriptor has an error, which a receive that found bytes did not see.
    pub fn has_error(&self) -> bool {
        self.lock_any().stream().is_some_and(Wire::has_error)
    }

    /// The socket, which for shared memory is the lifeline; `None` once closed.
    pub fn socket(&self) -> Option<RawFd> {
        let state = self.lock_any();
        state.stream().map(|wire| wire.socket().as_raw_fd())
    }

    /// What the TLS handshake established, once it has ended.
    pub fn tls_peer(&self) -> Option<Peer> {
        self.lock_any().stream().and_then(Wire::peer)
    }

    /// Memory that the peer sees, for a frame that is sent without a copy.
    ///
    /// Do not write to it while the peer may read it, which is until the peer has dropped the frame.
    ///
    /// # Errors
    /// `Config` where nothing is shared, `Limit` (`region_bytes_max`), `Memory`, `Closed`, `Forked`.
    pub fn allocate(&self, bytes: usize) -> Result<Lease> {
        let mut state = self.lock()?;
        match state.stream_mut() {
            Some(Wire::Shared(stream)) => stream.allocate(bytes),
            Some(Wire::Socket(_) | Wire::Local(_) | Wire::Tls(_)) => Err(Error::Config(format!(
                "{} shares no memory: allocate() is for shm://",
                self.peer
            ))),
            None => Err(Error::Closed {
                peer: self.peer.clone(),
            }),
        }
    }

    /// Copy a long frame into shared memory without holding the lock; it is then sent by reference.
    ///
    /// `None` if nothing is shared or there is no room: then it is sent as bytes.
    pub fn stage(&self, bytes: &[u8]) -> Option<Staged> {
        let mut state = self.lock().ok()?;
        let Some(Wire::Shared(stream)) = state.stream_mut() else {
            return None;
        };
        if stream.holds(bytes) {
            return None; // it is in shared memory already
        }
        let lease = stream.reserve(bytes.len()).ok()?;
        drop(state);
        Staged::new(lease, bytes)
    }

    /// Whether the peer may still read the memory of these bytes, because it was sent without a copy.
    ///
    /// # Errors
    /// `Closed` once this end is closed, though the peer may still read what was lent before. `Forked`.
    pub fn is_lent(&self, bytes: &[u8]) -> Result<bool> {
        let mut state = self.lock()?;
        match state.stream_mut() {
            Some(Wire::Shared(stream)) => Ok(stream.is_lent(bytes)),
            Some(Wire::Socket(_) | Wire::Local(_) | Wire::Tls(_)) => Ok(false),
            None => Err(Error::Closed {
                peer: self.peer.clone(),
            }),
        }
    }

    /// Send a message without waiting.
    ///
    /// # Errors
    /// `Limit` above the limits of either side, and if `outbox_bytes_max` is queued already; `Broken` with "no" or
    /// `Protocol` after a fault, `Closed`, `Forked`.
    pub fn send(&self, frames: &mut dyn Frames) -> Result<Sending> {
        let mut state = self.lock()?;
        if let Some(fault) = state.fault() {
            return Err(fault.to_error(&self.peer, Delivered::No));
        }
        state.check(frames)?;
        state.check_outbox()?;
        let (lent, end) = state.send(frames);
        self.sending(state, lent, end)
    }

    /// Send several messages: queued together, then written by as few system calls as possible.
    ///
    /// # Errors
    /// As [`Self::send`]; if a message is refused, those before it are being sent.
    pub fn send_many(&self, messages: &mut [&mut dyn Frames]) -> Result<Sending> {
        let mut state = self.lock()?;
        if let Some(fault) = state.fault() {
            return Err(fault.to_error(&self.peer, Delivered::No));
        }
        let mut refused = None;
        let mut lent = false;
        for frames in messages {
            if let Err(error) = state.check(*frames).and_then(|()| state.check_outbox()) {
                refused = Some(error);
                break;
            }
            lent |= state.push(*frames);
        }
        state.flush();
        let end = state.outbox().end();
        lent &= state.outbox().sent() < end;
        let sending = self.sending(state, lent, end)?;
        refused.map_or(Ok(sending), Err)
    }

    fn sending(&self, state: Guard<'_>, lent: bool, end: u64) -> Result<Sending> {
        let error = state
            .fault()
            .map(|fault| fault.to_error(&self.peer, Delivered::Maybe));
        let sending = Sending {
            lent,
            end,
            sent: state.kernel_offset(),
            outbox_bytes: state.outbox().bytes(),
            wants_write: state.wants_write(),
            over_budget: state.is_over_budget(),
        };
        release(state);
        error.map_or(Ok(sending), Err)
    }

    /// Whether the kernel has the stream up to `end`.
    ///
    /// # Errors
    /// What ended the connection before that; then `Broken` says "maybe".
    pub fn is_sent(&self, end: u64) -> Result<bool> {
        let state = self.lock()?;
        if state.kernel_offset() >= end {
            return Ok(true);
        }
        match state.fault() {
            Some(fault) => Err(fault.to_error(&self.peer, Delivered::Maybe)),
            None => Ok(false),
        }
    }

    /// Whether the stream holds received bytes, for which the socket does not become readable.
    pub fn holds_received(&self) -> bool {
        let mut state = self.lock_any();
        state.holds_received() && state.wants_read()
    }

    /// Take a message that has arrived; reads the socket if the last receive left something in it.
    ///
    /// # Errors
    /// What ended the connection, once every earlier message was taken.
    pub fn take(&self) -> Result<Option<Message>> {
        let mut state = self.lock()?;
        self.take_from(&mut state)
    }

    /// Append messages that have arrived to `taken`, until it has `count`.
    ///
    /// # Errors
    /// As [`Self::take`]; earlier messages are in `taken`.
    pub fn take_many(&self, count: usize, taken: &mut Vec<Message>) -> Result<()> {
        let mut state = self.lock()?;
        while taken.len() < count
            && let Some(message) = self.take_from(&mut state)?
        {
            taken.push(message);
        }
        Ok(())
    }

    fn take_from(&self, state: &mut Guard<'_>) -> Result<Option<Message>> {
        if state.waiting().0 == 0 && self.allocator.is_none() {
            state.receive_between_turns();
        }
        if let Some(message) = state.take() {
            return Ok(Some(message));
        }
        state.end().map_or(Ok(None), |fault| {
            Err(fault.to_error(&self.peer, Delivered::Maybe))
        })
    }

    /// Receive and send what can be; returns what the connection is ready for then.
    pub fn step(&self, readable: bool, writable: bool) -> Result<Readiness> {
        let mut state = self.lock()?;
        if readable {
            state.woken();
        }
        if writable || (readable && signals_room_as_input(&state)) {
            state.flush();
        }
        if readable {
            state = self.receive(state)?;
        }
        let readiness = readiness_of(&mut state);
        release(state);
        Ok(readiness)
    }

    /// Receive what has arrived, into the allocator's memory if there is one.
    fn receive<'a>(&'a self, mut state: Guard<'a>) -> Result<Guard<'a>> {
        state.begin_turn();
        state.receive();
        while let (Some(allocate), Some(lengths)) = (&self.allocator, state.wanted()) {
            drop(state);
            let buffers = allocate(&lengths);
            state = self.lock()?;
            state.provide(buffers); // ignored if another thread was first
            state.receive();
        }
        Ok(state)
    }

    /// End the connection if the peer has made no progress for `allowed` with a half sent message or with output that
    /// waits for it; returns whether it was ended.
    ///
    /// The first call begins to measure. If it returns true, step the connection, so that waiting tasks get the error.
    ///
    /// # Errors
    /// `Forked`.
    pub fn end_if_stalled(&self, now: Instant, allowed: Duration) -> Result<bool> {
        let mut state = self.lock()?;
        let (receiving, sending) = (state.receiving(), state.sending());
        let mut stall = self.stall.lock().unwrap_or_else(PoisonError::into_inner);
        let stall = stall.get_or_insert_with(|| Stall::new(now));
        let stalled = stall.has_stalled(now, receiving, sending, allowed);
        if stalled {
            state.break_with(Fault::Broken(Cause::Stalled(allowed)));
            if let Some(wire) = state.stream_mut() {
                wire.hang_up();
            }
        }
        release(state);
        Ok(stalled)
    }

    /// Stop using the caller's buffers: copy what the kernel has not taken of them.
    pub fn own(&self) -> Result<()> {
        let mut state = self.lock()?;
        state.own();
        release(state);
        Ok(())
    }

    /// Whether the peer is gone, even while the connection is not read.
    pub fn is_over(&self) -> bool {
        self.lock_any().is_over()
    }

    /// Whether the peer closed it between two messages.
    pub fn closed_cleanly(&self) -> bool {
        let state = self.lock_any();
        state.has_ended() && state.fault().is_none()
    }

    /// The error that ended the connection, if one did.
    pub fn fault(&self, delivered: Delivered) -> Option<Error> {
        let state = self.lock_any();
        state
            .end()
            .map(|fault| fault.to_error(&self.peer, delivered))
    }

    /// What was counted.
    pub fn counters(&self) -> MessageCounters {
        let mut state = self.lock_any();
        let (inbox_messages, inbox_bytes) = state.waiting();
        let lent_frames = state.lent();
        MessageCounters {
            sent_messages: state.sent(),
            received_messages: state.received(),
            sent_bytes: state.outbox().sent(),
            received_bytes: state.offset(),
            copied_bytes: state.copied(),
            outbox_bytes: state.outbox().bytes(),
            inbox_bytes,
            inbox_messages,
            lent_frames,
        }
    }

    /// Close now: queued bytes are dropped, waiting threads get `Closed`. Idempotent.
    ///
    /// In a forked child only the descriptor is closed; the peer does not notice.
    pub fn close(&self) {
        if process::epoch() != self.owner.load(Ordering::Relaxed) {
            if let Ok(mut state) = self.state.try_lock() {
                state.drop_stream();
            }
            return;
        }
        let mut state = self.lock_any();
        let mut wire = state.close();
        if let Some(wire) = &mut wire {
            wire.hang_up();
        }
        let retired = state.take_retired();
        drop(state);
        drop(wire);
        drop(retired);
    }

    fn busy(&self, what: &'static str) -> Error {
        Error::Busy {
            peer: self.peer.clone(),
            what,
        }
    }

    fn lock(&self) -> Result<Guard<'_>> {
        let here = process::epoch();
        let owner = self.owner.load(Ordering::Relaxed);
        if here != owner {
            return Err(Error::Forked {
                peer: self.peer.clone(),
                owner: number(owner),
                here: number(here),
            });
        }
        Ok(self.lock_any())
    }

    fn lock_any(&self) -> Guard<'_> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn readiness_of(state: &mut Guard<'_>) -> Readiness {
    Readiness {
        open: state.has_opened(),
        ready: state.waiting().0 > 0,
        over: state.end().is_some(),
        wants_read: state.wants_read() || (state.end().is_none() && signals_room_as_input(state)),
        wants_write: state.wants_write(),
        again: state.holds_received() && state.wants_read(),
        sent: state.kernel_offset(),
        outbox_bytes: state.outbox().bytes(),
    }
}

/// Whether readability of the watched descriptor signals room for output too.
fn signals_room_as_input(state: &Guard<'_>) -> bool {
    state.stream().is_some_and(Stream::signals_room_as_input)
}

/// Unlock, then drop what was lent to be sent or received into. A protocol violation closes the connection here.
fn release(mut state: Guard<'_>) {
    if matches!(state.fault(), Some(Fault::Protocol { .. }))
        && let Some(wire) = state.stream_mut()
    {
        wire.hang_up();
    }
    let retired = state.take_retired();
    drop(state);
    drop(retired);
}
