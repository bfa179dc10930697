//! A connection of calls over a socket or TLS: the state behind a lock, in steps that never block.
//!
//! Lock order: the state's lock is the only one. It is held for one bounded turn, and never across a wait or while lent
//! bytes are dropped: dropping them may wait for a lock of another runtime, such as Python's GIL, while a thread that
//! holds that lock waits for ours. So a step gets what is lent by [`Connection::step_with`], which drops it after
//! unlocking, and what the state itself has taken goes to the outbox, which [`release`] empties after unlocking.

#[cfg(test)]
mod lent_tests;
mod serving;

pub(crate) use serving::next_runnable;

use std::collections::VecDeque;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forebay_base::process::{self, number};
use rustix::net::{AddressFamily, sockopt::socket_domain};

use crate::calls::call::{Outcome, Taker};
use crate::calls::state::{ConnectionState, Handshake, Reader};
use crate::error::{Cause, Delivered, Error, Fault, Result};
use crate::limit::{LEND_BYTES_MIN, Limits};
use crate::link::outbox::{Head, Payload};
use crate::share::sweep_lent;
use crate::stream::Socket;
use crate::stream::socket::Wire;
use crate::stream::unix::peer_uid;
use crate::sys::shared::Staged;
use crate::wire::frame::{Codec, Header, Kind, time_to_wire};
use crate::wire::role::Role;

/// How a connection is made.
#[derive(Clone, Debug)]
pub struct Options {
    pub role: Role,
    pub limits: Limits,
    /// The peer's name in messages.
    pub peer: String,
    /// The language runtime that is announced, see [`crate::wire::preface::Preface::runtime`].
    pub runtime: u32,
    /// How the two ends let each other in.
    pub handshake: Handshake,
    /// Whether long segments may be lent to a peer of our user, and be borrowed: see [`crate::share`].
    pub lends: bool,
}

impl Options {
    /// Default limits.
    pub fn new(role: Role, peer: impl Into<String>) -> Self {
        Self {
            role,
            limits: Limits::default(),
            peer: peer.into(),
            runtime: 0,
            handshake: Handshake::default(),
            lends: true,
        }
    }
}

/// A call to send.
pub struct Outgoing<'a> {
    pub codec: Codec,
    pub one_way: bool,
    pub remaining: Option<Duration>,
    pub generation: u32,
    pub head: Head<'a>,
    pub segments: Vec<Payload>,
}

/// What a connection has counted and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub outbox_bytes: usize,
    pub inbox_bytes: usize,
    pub inbox_calls: usize,
    pub in_flight: usize,
    pub late_replies: u64,
    pub expired: u64,
    pub stale: u64,
    pub cancelled: u64,
    pub pongs: u64,
    /// Segments that the peer may still read in our memory.
    pub lent_segments: usize,
}

/// One end of a connection. Every method may be called from any thread.
pub struct Connection {
    state: Mutex<ConnectionState<Wire>>,
    pub(crate) peer: String,
    owner: AtomicU64,
    lends: bool,
}

impl Connection {
    /// Take over a connected stream socket, or TLS over one.
    ///
    /// Pickle frames are accepted only if the kernel says that the peer has our user id.
    ///
    /// # Errors
    /// `Config` if the descriptor is no such socket, or the wire is shared memory.
    pub fn new(wire: impl Into<Wire>, options: Options) -> Result<Self> {
        let connection = Self::unconnected(options);
        connection.adopt(wire)?;
        connection.step(|state| {
            state.send_preface();
            state.flush();
        })?;
        Ok(connection)
    }

    /// A connection without a socket, which `adopt` brings later, possibly in another process.
    ///
    /// A template makes it before it forks, so that its services do not spend time on it.
    pub fn unconnected(options: Options) -> Self {
        let Options {
            role,
            limits,
            peer,
            runtime,
            handshake,
            lends,
        } = options;
        let mut state = ConnectionState::new(role, limits, runtime);
        state.handshake = handshake;
        Self {
            state: Mutex::new(state),
            peer,
            owner: AtomicU64::new(process::epoch()),
            lends,
        }
    }

    /// Take over a wire; from now on the connection belongs to this process.
    ///
    /// The preface goes out with the first frame, so that the peer's socket becomes readable with the
    /// first answer: a client that polls it learns that this end is ready.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn adopt(&self, wire: impl Into<Wire>) -> Result<()> {
        let wire = wire.into();
        let trusted = is_same_user(&wire)?;
        rustix::io::fcntl_setfd(wire.socket(), rustix::io::FdFlags::CLOEXEC).map_err(|errno| {
            Error::System {
                what: "fcntl".into(),
                errno,
            }
        })?;
        let wire = if trusted && self.lends {
            sweep_lent();
            wire.with_descriptors()
        } else {
            wire
        };
        self.owner.store(process::epoch(), Ordering::Relaxed);
        self.lock_any().connect(wire, trusted);
        Ok(())
    }

    /// The peer's name in messages.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// Whether the kernel says that the peer is the same user.
    pub fn is_trusted(&self) -> bool {
        self.lock_any().pickle_allowed
    }

    /// What a selector watches; `None` once closed.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.lock_any().stream.as_ref().map(Wire::descriptor)
    }

    /// The socket itself, for an epoll: it stays open meanwhile. `None` once closed.
    pub fn socket(&self) -> Option<Socket> {
        let state = self.lock_any();
        state.stream.as_ref().map(|wire| Arc::clone(wire.socket()))
    }

    /// Take the peer's pidfd: readable means that the peer ended. Closed with the connection.
    pub fn watch(&self, pidfd: OwnedFd) {
        let mut state = self.lock_any();
        state.pidfd = state.stream.is_some().then(|| Arc::new(pidfd));
    }

    /// Send a call without waiting; returns its id.
    ///
    /// # Errors
    /// `Limit` above the limits of either side, `Broken` with "no" once the peer is gone or said
    /// goodbye, `Closed`, `Forked`.
    ///
    /// Cost: long segments are copied once to be lent, without the lock.
    pub fn start(&self, call: Outgoing<'_>, taker: Taker) -> Result<u64> {
        let staged = self.stage(&call.segments)?;
        self.step_with(call, |state, call| {
            let (id, mut header) = self.next_header(state, call)?;
            if !call.one_way {
                // Registered before sending, so that a failure to send ends it like any other call.
                state.calls.begin(id, taker, u64::MAX);
            }
            let segments = std::mem::take(&mut call.segments);
            let segments = state.name_staged(&mut header, segments, staged);
            let end = state.send(header, call.head.take(), segments);
            if !call.one_way && state.fault.is_none() {
                state.calls.begin(id, taker, end);
            }
            Ok(id)
        })?
    }

    /// The next id and the header of a call that may be sent.
    pub(crate) fn next_header(
        &self,
        state: &mut ConnectionState<Wire>,
        call: &Outgoing<'_>,
    ) -> Result<(u64, Header)> {
        let segments = self.check_call(state, call)?;
        let head_bytes = head_bytes(&call.head)?;
        let id = state.calls.next_id();
        let header = Header {
            head_bytes,
            codec: call.codec,
            one_way: call.one_way,
            segments,
            time: time_to_wire(call.remaining),
            generation: call.generation,
            ..Header::control(Kind::Call, id)
        };
        Ok((id, header))
    }

    fn check_call(&self, state: &ConnectionState<Wire>, call: &Outgoing<'_>) -> Result<u16> {
        if let Some(fault) = &state.fault {
            return Err(fault.to_error(&self.peer, Delivered::No));
        }
        if state.goodbye {
            return Err(Fault::Broken(Cause::Goodbye).to_error(&self.peer, Delivered::No));
        }
        check_limits(state, &call.head, &call.segments)
    }

    /// Read the socket, and take the calls that finished for the queue.
    ///
    /// # Errors
    /// `Busy` while a thread reads. A broken connection is no error here: its calls end with it.
    pub fn receive(&self) -> Result<VecDeque<(u64, Outcome)>> {
        self.step(|state| {
            if matches!(state.reader, Reader::Thread(_)) {
                return Err(self.busy("a thread reads it"));
            }
            state.receive();
            Ok(state.calls.take_finished())
        })?
    }

    /// From now on let frames wait for `flush`, up to [`CORKED_BYTES_MAX`] bytes.
    ///
    /// For a driver that answers many calls in one turn and flushes each connection once at its end.
    ///
    /// [`CORKED_BYTES_MAX`]: crate::limit::CORKED_BYTES_MAX
    pub fn cork(&self) -> Result<()> {
        self.step(|state| state.corked = true)
    }

    /// Take calls without spinning from now on: neither before a sleep nor while calls are queued.
    ///
    /// For a worker whose calls arrive at the pace of a disk: spinning takes a core from the process that sends them. A
    /// cancel of a queued call is then found once the queue is empty.
    pub fn disable_spin(&self) -> Result<()> {
        self.step(|state| state.look.turn_off())
    }

    /// Write queued bytes; true if nothing waits any more.
    pub fn flush(&self) -> Result<bool> {
        self.step(|state| {
            state.flush();
            !state.wants_write()
        })
    }

    /// Become the only reader, as an event loop or a reader thread does; blocked threads then follow.
    ///
    /// A thread that reads at this moment wakes, checks for its reply, and follows too.
    ///
    /// # Errors
    /// `Busy` while another driver reads.
    pub fn attach(&self) -> Result<()> {
        self.step(|state| {
            if state.reader == Reader::Driver {
                return Err(self.busy("another loop or thread reads it"));
            }
            state.reader = Reader::Driver;
            // The reading thread sleeps on a socket that it will find empty from now on.
            if let Some(wake) = state.leader.take() {
                wake.raise();
            }
            Ok(())
        })?
    }

    /// Stop being the reader.
    pub fn detach(&self) -> Result<()> {
        self.step(|state| {
            if state.reader == Reader::Driver {
                state.reader = Reader::None;
                state.promote();
            }
        })
    }

    /// The watched peer process ended: deliver what it sent before, then break.
    pub fn peer_died(&self) -> Result<()> {
        self.step(peer_died)
    }

    /// Copy long segments into the share pool if the peer borrows. `None` at an index: that segment is sent as bytes; an
    /// empty list: all are.
    pub(crate) fn stage(&self, segments: &[Payload]) -> Result<Vec<Option<Staged>>> {
        let is_long = |segment: &Payload| (**segment).as_ref().len() >= LEND_BYTES_MIN;
        if !segments.iter().any(is_long) {
            return Ok(Vec::new());
        }
        let state = self.lock()?;
        let writer = state.lending.as_ref().and_then(|lending| lending.writer());
        drop(state);
        let Some(writer) = writer else {
            return Ok(Vec::new());
        };
        let mut before = 0;
        let put = segments.iter().map(|segment| {
            let bytes = (**segment).as_ref();
            let staged = is_long(segment)
                .then(|| writer.stage(bytes, before))
                .flatten();
            before += staged.as_ref().map_or(0, |_| bytes.len() as u64);
            staged
        });
        Ok(put.collect())
    }

    /// Cancel a call; its late reply is dropped. Unknown ids are ignored.
    pub fn cancel(&self, id: u64) -> Result<()> {
        self.step(|state| cancel_call(state, id))
    }

    /// Change who takes the outcome of a call in flight, even if it has arrived.
    pub fn hand_over(&self, id: u64, to: Taker) -> Result<()> {
        self.step(|state| state.calls.hand_over(id, to))
    }

    /// Send a ping; the answer is counted in `pongs`.
    pub fn ping(&self) -> Result<()> {
        self.step(|state| {
            if state.fault.is_none() {
                state.send(
                    Header::control(Kind::Ping, 0),
                    Head::Borrowed(&[]),
                    Vec::new(),
                );
            }
        })
    }

    /// Whether a selector should watch for readable and for writable.
    pub fn wants(&self) -> Result<(bool, bool)> {
        self.step(|state| (state.wants_read(), state.wants_write()))
    }

    /// Whether the stream holds received bytes, for which the socket does not become readable: step again without waiting.
    pub fn holds_received(&self) -> bool {
        let mut state = self.lock_any();
        state.holds_received() && state.wants_read()
    }

    /// Calls whose outcomes have not been taken, and streams that have not been read to their end.
    pub fn in_flight(&self) -> usize {
        let state = self.lock_any();
        state.calls.in_flight() + state.items.in_flight()
    }

    /// Bytes that wait to be sent; those that the stream itself holds count as at least one.
    pub fn outbox_bytes(&self) -> usize {
        self.lock_any().unsent_bytes()
    }

    /// Why nothing more comes, if so: the fault, or the end of the peer's calls.
    pub fn is_over(&self) -> bool {
        let state = self.lock_any();
        state.fault.is_some() || (state.ended && state.inbox.queued() == 0)
    }

    /// Read the socket if it has no reader; returns whether a new call may succeed.
    pub fn probe(&self) -> Result<bool> {
        self.step(|state| {
            if state.reader == Reader::None {
                state.receive();
            }
            state.stream.is_some() && state.fault.is_none() && !state.ended && !state.goodbye
        })
    }

    /// Whether the server said goodbye.
    pub fn is_leaving(&self) -> bool {
        self.lock_any().goodbye
    }

    /// The error that ended the connection, if one did.
    pub fn fault(&self) -> Option<Error> {
        self.lock_any()
            .fault
            .as_ref()
            .map(|fault| fault.to_error(&self.peer, Delivered::Maybe))
    }

    /// Whether this side closed it.
    pub fn is_closed(&self) -> bool {
        self.lock_any().stream.is_none()
    }

    /// What was counted.
    pub fn counters(&self) -> Counters {
        let state = self.lock_any();
        Counters {
            sent_bytes: state.outbox.sent(),
            received_bytes: state.decoder.offset(),
            outbox_bytes: state.outbox.bytes(),
            inbox_bytes: state.inbox.bytes() + state.calls.bytes() + state.items.bytes(),
            inbox_calls: state.inbox.queued(),
            in_flight: state.calls.in_flight() + state.items.in_flight(),
            late_replies: state.calls.late,
            expired: state.inbox.expired,
            stale: state.inbox.stale,
            cancelled: state.inbox.cancelled,
            pongs: state.pongs,
            lent_segments: state.lending.as_ref().map_or(0, |lending| lending.lent()),
        }
    }

    /// Close now: queued bytes are dropped, waiting calls end with `Closed`. Idempotent.
    ///
    /// In a forked child only the descriptor is closed; the peer does not notice.
    pub fn close(&self) {
        if process::epoch() != self.owner.load(Ordering::Relaxed) {
            // The lock may have been held by a thread that does not exist here.
            if let Ok(mut state) = self.state.try_lock() {
                state.stream = None;
                state.pidfd = None;
            }
            return;
        }
        let mut state = self.lock_any();
        state.break_with(Fault::Closed);
        state.pidfd = None;
        let mut wire = state.stream.take();
        if let Some(wire) = &mut wire {
            wire.hang_up();
        }
        let retired = state.outbox.take_retired();
        drop(state);
        drop(wire);
        drop(retired);
    }

    pub(crate) fn busy(&self, what: &'static str) -> Error {
        Error::Busy {
            peer: self.peer.clone(),
            what,
        }
    }

    /// Run one step under the lock, then give lent bytes back outside of it.
    pub(crate) fn step<R>(&self, act: impl FnOnce(&mut ConnectionState<Wire>) -> R) -> Result<R> {
        let mut state = self.lock()?;
        let result = act(&mut state);
        release(state);
        Ok(result)
    }

    /// As [`Self::step`], with what is `lent` for the step: what `act` leaves of it is dropped after unlocking, too.
    ///
    /// So `act` may return early; it takes nothing that is lent before its last check.
    pub(crate) fn step_with<L, R>(
        &self,
        mut lent: L,
        act: impl FnOnce(&mut ConnectionState<Wire>, &mut L) -> R,
    ) -> Result<R> {
        self.step(|state| act(state, &mut lent))
    }

    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, ConnectionState<Wire>>> {
        let here = process::epoch();
        if here != self.owner.load(Ordering::Relaxed) {
            return Err(Error::Forked {
                peer: self.peer.clone(),
                owner: number(self.owner.load(Ordering::Relaxed)),
                here: number(here),
            });
        }
        Ok(self.lock_any())
    }

    fn lock_any(&self) -> MutexGuard<'_, ConnectionState<Wire>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Unlock, then drop lent bytes. A protocol violation closes the connection here.
pub(crate) fn release(mut state: MutexGuard<'_, ConnectionState<Wire>>) {
    if state
        .fault
        .as_ref()
        .is_some_and(|fault| matches!(fault, Fault::Protocol { .. }))
        && let Some(wire) = &mut state.stream
    {
        wire.hang_up();
    }
    let retired = state.outbox.take_retired();
    drop(state);
    drop(retired);
}

/// Cancel a call, here and at the peer.
pub(crate) fn cancel_call(state: &mut ConnectionState<Wire>, id: u64) {
    state.followers.remove(&id);
    if state.calls.cancel(id) && state.fault.is_none() {
        state.send(
            Header::control(Kind::Cancel, id),
            Head::Borrowed(&[]),
            Vec::new(),
        );
    }
}

/// The peer process ended: deliver what is still in the socket, then break.
pub(crate) fn peer_died(state: &mut ConnectionState<Wire>) {
    let mut before = state.decoder.offset();
    loop {
        state.receive();
        let after = state.decoder.offset();
        if after == before {
            break;
        }
        before = after;
    }
    state.break_with(Fault::Broken(Cause::PeerDied));
}

/// Whether the kernel confirms that the peer has our user id, which it can only for Unix sockets.
fn is_same_user(wire: &Wire) -> Result<bool> {
    let socket = match wire {
        Wire::Socket(socket) => socket,
        Wire::Local(stream) => stream.socket(),
        Wire::Tls(_) => return Ok(false),
        Wire::Shared(_) => return Err(Error::Config("calls do not run over shared memory".into())),
    };
    let family = socket_domain(socket)
        .map_err(|errno| Error::Config(format!("not a connected stream socket ({errno})")))?;
    if family != AddressFamily::UNIX {
        return Ok(false);
    }
    Ok(peer_uid(socket)? == rustix::process::geteuid().as_raw())
}

pub(crate) fn head_bytes(head: &Head<'_>) -> Result<u32> {
    let value = head.as_slice().len() as u64;
    u32::try_from(value).map_err(|_| Error::Limit {
        name: "head_bytes_max",
        limit: u32::MAX.into(),
        value,
    })
}

pub(crate) fn check_limits(
    state: &ConnectionState<Wire>,
    head: &Head<'_>,
    segments: &[Payload],
) -> Result<u16> {
    let (bytes_max, segments_max) = match &state.peer {
        None => (state.limits.frame_bytes_max, state.limits.segments_max),
        Some(peer) => (
            state.limits.frame_bytes_max.min(peer.frame_bytes_max),
            state.limits.segments_max.min(peer.segments_max),
        ),
    };
    let payload: usize = segments
        .iter()
        .map(|segment| (**segment).as_ref().len())
        .sum();
    let value = (head.as_slice().len() + payload) as u64;
    if value > bytes_max {
        return Err(Error::Limit {
            name: "frame_bytes_max",
            limit: bytes_max,
            value,
        });
    }
    let value = segments.len() as u64;
    u16::try_from(value)
        .ok()
        .filter(|&count| count <= segments_max)
        .ok_or(Error::Limit {
            name: "segments_max",
            limit: segments_max.into(),
            value,
        })
}
