//! A message connection: the state behind a lock, stepped by an event loop or waited for by threads.
//!
//! The lock is held for one bounded step, never across a wait or while lent bytes are given back.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};

use crate::blocking::{is_past, timespec};
use crate::connection::Socket;
use crate::error::{Delivered, Error, Fault, Result};
use crate::limit::Limits;
use crate::messages::state::{Admission, Message, State};
use crate::messages::{Frames, Medium};
use crate::stream::Stream;
use crate::sys::buffer::Buffer;
use crate::sys::process;
use crate::tls::Peer;

/// Gives memory to receive a message into: of the lengths of its frames, 0 for short ones, a buffer of exactly that
/// size each, or none for memory of our own. Called without a lock.
pub type Allocator = Box<dyn Fn(&[usize]) -> Vec<Option<Buffer>> + Send + Sync>;

/// How a connection is made.
pub struct Options {
    pub limits: Limits,
    /// What errors call the peer.
    pub peer: String,
    /// Whom this end lets in.
    pub admission: Admission,
    /// What it shows to be let in.
    pub token: Option<Vec<u8>>,
    /// Whether memory for what the peer announces is obtained at once.
    pub trusted: bool,
    /// Whose memory long frames are received into.
    pub allocator: Option<Allocator>,
}

/// A message on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sending {
    /// Buffers of the caller are still read.
    pub lent: bool,
    /// Its end in the outgoing stream.
    pub end: u64,
    /// The stream is with the kernel up to here.
    pub sent: u64,
    /// Bytes that wait to be sent, and whether the socket is to be watched for room.
    pub outbox_bytes: usize,
    pub wants_write: bool,
}

impl Sending {
    /// Up to where the stream must be with the kernel before the sender goes on; `None`: it may at once.
    ///
    /// A sender gets its buffers back, and waits above the high mark until the low one.
    pub fn awaited(&self, limits: &Limits) -> Option<u64> {
        if self.lent {
            Some(self.end)
        } else if self.outbox_bytes > limits.outbox_bytes_high {
            Some(self.end - limits.outbox_bytes_low as u64)
        } else {
            None
        }
    }
}

/// Where a connection stands after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // each is a fact of its own
pub struct Standing {
    /// The peer is let in.
    pub met: bool,
    /// A message can be taken.
    pub ready: bool,
    /// Nothing more comes once those are taken.
    pub over: bool,
    pub wants_read: bool,
    pub wants_write: bool,
    /// Bytes lie in the stream of which the socket says nothing: step again without waiting.
    pub again: bool,
    /// The stream is with the kernel up to here.
    pub sent: u64,
    /// Bytes that wait to be sent.
    pub outbox_bytes: usize,
}

/// What a connection has counted and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub sent_messages: u64,
    pub received_messages: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// Of both, what was copied between buffers of this process.
    pub copied_bytes: u64,
    pub outbox_bytes: usize,
    pub inbox_bytes: usize,
    pub inbox_messages: usize,
}

/// One end of a connection. Every method may be called from any thread.
pub struct Messages {
    state: Mutex<State<Medium>>,
    peer: String,
    allocator: Option<Allocator>,
    owner: AtomicU32,
    /// A thread waits for messages.
    taken: AtomicBool,
}

type Guard<'a> = MutexGuard<'a, State<Medium>>;

impl Messages {
    /// Take over a connected stream socket, or TLS over one, and say who we are.
    pub fn new(medium: impl Into<Medium>, options: Options) -> Self {
        let Options {
            limits,
            peer,
            admission,
            token,
            trusted,
            allocator,
        } = options;
        let mut state = State::new(medium.into(), limits, admission, token.as_deref());
        if trusted {
            state.trust();
        }
        if allocator.is_some() {
            state.ask();
        }
        state.flush();
        Self {
            state: Mutex::new(state),
            peer,
            allocator,
            owner: AtomicU32::new(process::current()),
            taken: AtomicBool::new(false),
        }
    }

    /// What errors call the peer.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// The socket, for a selector; `None` once closed.
    pub fn descriptor(&self) -> Option<RawFd> {
        let state = self.lock_any();
        state
            .stream
            .as_ref()
            .map(|medium| medium.socket().as_raw_fd())
    }

    /// What a handshake of TLS found out, once it has ended.
    pub fn tls_peer(&self) -> Option<Peer> {
        self.lock_any().stream.as_ref().and_then(Medium::peer)
    }

    /// Send a message without waiting.
    ///
    /// # Errors
    /// `Limit` above the limits of either side, `Broken` with "no" or `Protocol` after a fault, `Closed`, `Forked`.
    pub fn send(&self, frames: &mut dyn Frames) -> Result<Sending> {
        let mut state = self.lock()?;
        if let Some(fault) = &state.fault {
            return Err(fault.to_error(&self.peer, Delivered::No));
        }
        check(&state, frames)?;
        let (lent, end) = state.send(frames);
        self.sending(state, lent, end)
    }

    /// Send several messages as one: queued together, then handed over in as few calls as possible.
    ///
    /// # Errors
    /// As [`Self::send`]; where a later message is refused, those before it are on their way.
    pub fn send_many(&self, messages: &mut [&mut dyn Frames]) -> Result<Sending> {
        let mut state = self.lock()?;
        if let Some(fault) = &state.fault {
            return Err(fault.to_error(&self.peer, Delivered::No));
        }
        let mut refused = None;
        let mut lent = false;
        for frames in messages {
            if let Err(error) = check(&state, *frames) {
                refused = Some(error);
                break;
            }
            lent |= state.push(*frames);
        }
        state.flush();
        let end = state.outbox.end();
        lent &= state.outbox.sent() < end;
        let sending = self.sending(state, lent, end)?;
        refused.map_or(Ok(sending), Err)
    }

    fn sending(&self, state: Guard<'_>, lent: bool, end: u64) -> Result<Sending> {
        let error = state
            .fault
            .as_ref()
            .map(|fault| fault.to_error(&self.peer, Delivered::Maybe));
        let sending = Sending {
            lent,
            end,
            sent: state.with_kernel(),
            outbox_bytes: state.outbox.bytes(),
            wants_write: state.wants_write(),
        };
        release(state);
        error.map_or(Ok(sending), Err)
    }

    /// The limits of this end.
    pub fn limits(&self) -> Limits {
        self.lock_any().limits
    }

    /// Whether the kernel has the stream up to `end`.
    ///
    /// # Errors
    /// What ended the connection before it had; then `Broken` says "maybe".
    pub fn is_sent(&self, end: u64) -> Result<bool> {
        let state = self.lock()?;
        if state.with_kernel() >= end {
            return Ok(true);
        }
        match &state.fault {
            Some(fault) => Err(fault.to_error(&self.peer, Delivered::Maybe)),
            None => Ok(false),
        }
    }

    /// Whether input lies in the stream of which the socket says nothing.
    pub fn holds_received(&self) -> bool {
        let mut state = self.lock_any();
        state.holds_received() && state.wants_read()
    }

    /// Take a message that is there; looks at the socket where the last look left something in it.
    ///
    /// # Errors
    /// What ended the connection, once everything that came before has been taken.
    pub fn take(&self) -> Result<Option<Message>> {
        let mut state = self.lock()?;
        self.take_from(&mut state)
    }

    fn take_from(&self, state: &mut Guard<'_>) -> Result<Option<Message>> {
        if state.waiting().0 == 0 && state.may_have_more() && self.allocator.is_none() {
            state.receive();
        }
        if let Some(message) = state.take() {
            return Ok(Some(message));
        }
        state.end().map_or(Ok(None), |fault| {
            Err(fault.to_error(&self.peer, Delivered::Maybe))
        })
    }

    /// Receive and send what can be, and say where that led.
    pub fn step(&self, readable: bool, writable: bool) -> Result<Standing> {
        let mut state = self.lock()?;
        if writable {
            state.flush();
        }
        if readable {
            state = self.receive(state)?;
        }
        let standing = standing_of(&mut state);
        release(state);
        Ok(standing)
    }

    /// Receive what is there, into whose memory it is to go.
    fn receive<'a>(&'a self, mut state: Guard<'a>) -> Result<Guard<'a>> {
        state.receive();
        while let (Some(allocate), Some(lengths)) = (&self.allocator, state.wanted()) {
            drop(state);
            let buffers = allocate(&lengths);
            state = self.lock()?;
            state.provide(buffers); // unless another thread was first
            state.receive();
        }
        Ok(state)
    }

    /// Have nothing of the caller's buffers read any more: what the kernel has not taken of them is copied.
    pub fn own(&self) -> Result<()> {
        let mut state = self.lock()?;
        state.outbox.own();
        release(state);
        Ok(())
    }

    /// Wait for a message.
    ///
    /// # Errors
    /// As [`Self::take`]; `Deadline`, `Interrupted`; `Busy` while another thread waits for one.
    pub fn recv(&self, deadline: Option<Instant>) -> Result<Message> {
        if self.taken.swap(true, Ordering::Acquire) {
            return Err(self.busy("another thread waits for its messages"));
        }
        let outcome = self.wait(deadline, |state| self.take_from(state));
        self.taken.store(false, Ordering::Release);
        outcome
    }

    /// Wait until the peer is let in.
    ///
    /// # Errors
    /// `Deadline`, `Interrupted`, what ended the connection.
    pub fn meet(&self, deadline: Option<Instant>) -> Result<()> {
        self.wait(deadline, |state| match state.end() {
            Some(fault) => Err(fault.to_error(&self.peer, Delivered::No)),
            None => Ok(state.is_met().then_some(())),
        })
    }

    /// Wait until the kernel has the stream up to `end`.
    ///
    /// # Errors
    /// `Deadline`, `Interrupted`, `Broken` with "maybe", `Closed`.
    pub fn drain(&self, end: u64, deadline: Option<Instant>) -> Result<()> {
        self.wait(deadline, |state| {
            if state.with_kernel() >= end {
                return Ok(Some(()));
            }
            match &state.fault {
                Some(fault) => Err(fault.to_error(&self.peer, Delivered::Maybe)),
                None => Ok(None),
            }
        })
    }

    /// Look, step, and sleep until `look` finds what it wants.
    fn wait<R>(
        &self,
        deadline: Option<Instant>,
        mut look: impl FnMut(&mut Guard<'_>) -> Result<Option<R>>,
    ) -> Result<R> {
        loop {
            let mut state = self.lock()?;
            state.flush();
            let mut found = look(&mut state);
            if matches!(found, Ok(None)) {
                state = self.receive(state)?;
                found = look(&mut state);
            }
            let interest = interest_of(&mut state);
            let again = state.holds_received() && state.wants_read();
            let socket = state.stream.as_ref().map(|medium| medium.socket().clone());
            release(state);
            if let Some(found) = found? {
                return Ok(found);
            }
            if is_past(deadline) {
                return Err(Error::Deadline {
                    peer: self.peer.clone(),
                });
            }
            if let Some(socket) = socket.filter(|_| !again) {
                sleep(&socket, interest, deadline)?;
            }
        }
    }

    /// Whether the peer is gone, though nobody reads.
    pub fn is_over(&self) -> bool {
        self.lock_any().is_over()
    }

    /// Whether the peer closed it between two messages.
    pub fn has_ended_well(&self) -> bool {
        let state = self.lock_any();
        state.ended && state.fault.is_none()
    }

    /// The error that ended the connection, if one did.
    pub fn fault(&self, delivered: Delivered) -> Option<Error> {
        let state = self.lock_any();
        state
            .end()
            .map(|fault| fault.to_error(&self.peer, delivered))
    }

    /// What was counted.
    pub fn counters(&self) -> Counters {
        let state = self.lock_any();
        let (inbox_messages, inbox_bytes) = state.waiting();
        Counters {
            sent_messages: state.sent,
            received_messages: state.received,
            sent_bytes: state.outbox.sent(),
            received_bytes: state.offset(),
            copied_bytes: state.copied(),
            outbox_bytes: state.outbox.bytes(),
            inbox_bytes,
            inbox_messages,
        }
    }

    /// Close now: what is queued is dropped, whoever waits gets `Closed`. Idempotent.
    ///
    /// In a forked child only the descriptor is closed; the peer notices nothing.
    pub fn close(&self) {
        if process::current() != self.owner.load(Ordering::Relaxed) {
            if let Ok(mut state) = self.state.try_lock() {
                state.stream = None;
            }
            return;
        }
        let mut state = self.lock_any();
        state.break_with(Fault::Closed);
        if let Some(mut medium) = state.stream.take() {
            // Wakes the threads that wait on it; the descriptor goes with the last of them.
            hang_up(&mut medium);
        }
        let retired = state.outbox.take_retired();
        drop(state);
        drop(retired);
    }

    fn busy(&self, what: &'static str) -> Error {
        Error::Busy {
            peer: self.peer.clone(),
            what,
        }
    }

    fn lock(&self) -> Result<Guard<'_>> {
        let here = process::current();
        let owner = self.owner.load(Ordering::Relaxed);
        if here != owner {
            return Err(Error::Forked {
                peer: self.peer.clone(),
                owner,
                here,
            });
        }
        Ok(self.lock_any())
    }

    fn lock_any(&self) -> Guard<'_> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn standing_of(state: &mut Guard<'_>) -> Standing {
    Standing {
        met: state.is_met(),
        ready: state.waiting().0 > 0,
        over: state.end().is_some(),
        wants_read: state.wants_read(),
        wants_write: state.wants_write(),
        again: state.holds_received() && state.wants_read(),
        sent: state.with_kernel(),
        outbox_bytes: state.outbox.bytes(),
    }
}

fn interest_of(state: &mut Guard<'_>) -> PollFlags {
    let mut interest = PollFlags::empty();
    interest.set(PollFlags::IN, state.wants_read());
    interest.set(PollFlags::OUT, state.wants_write());
    interest
}

fn sleep(socket: &Socket, interest: PollFlags, deadline: Option<Instant>) -> Result<()> {
    let timeout = deadline.map(|at| timespec(at.saturating_duration_since(Instant::now())));
    match poll(&mut [PollFd::new(socket, interest)], timeout.as_ref()) {
        Ok(_) => Ok(()),
        Err(Errno::INTR) => Err(Error::Interrupted),
        Err(errno) => Err(Error::System {
            what: "poll".into(),
            errno,
        }),
    }
}

/// Unlock, then give lent bytes back. A broken protocol ends the connection here.
fn release(mut state: Guard<'_>) {
    if matches!(state.fault, Some(Fault::Protocol { .. }))
        && let Some(medium) = &mut state.stream
    {
        hang_up(medium);
    }
    let retired = state.outbox.take_retired();
    drop(state);
    drop(retired);
}

/// Say goodbye where the medium has a word for it, and end both directions.
fn hang_up(medium: &mut Medium) {
    medium.finish();
    let _ = medium.flush();
    let _ = shutdown(medium.socket().as_fd(), Shutdown::Both);
}

fn check(state: &Guard<'_>, frames: &dyn Frames) -> Result<()> {
    let (bytes_max, frames_max) = match &state.peer {
        None => (state.limits.frame_bytes_max, state.limits.segments_max),
        Some(peer) => (
            state.limits.frame_bytes_max.min(peer.frame_bytes_max),
            state.limits.segments_max.min(peer.segments_max),
        ),
    };
    let count = frames.count();
    if count == 0 {
        return Err(Error::Config("a message needs at least one frame".into()));
    }
    if count > usize::from(frames_max) {
        return Err(Error::Limit {
            name: "frames_max",
            limit: frames_max.into(),
            value: count as u64,
        });
    }
    let value = (0..count).map(|index| frames.get(index).len() as u64).sum();
    if value > bytes_max {
        return Err(Error::Limit {
            name: "message_bytes_max",
            limit: bytes_max,
            value,
        });
    }
    Ok(())
}
