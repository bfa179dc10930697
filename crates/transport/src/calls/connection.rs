//! A connection of calls over a socket or TLS: the state behind a lock, in steps that never block.
//!
//! Lock order: the state's lock is the first; those of `share` (the pool, the loans of peers, the held segments) are taken
//! under it. It is held for one bounded turn, and never across a wait or while lent bytes are dropped: dropping them may
//! wait for a lock of another runtime, such as Python's GIL, while a thread that holds that lock waits for ours. So a step
//! gets what is lent by [`Connection::step_with`], which drops it after unlocking, and what the state itself has taken goes
//! to the outbox, which [`release`] empties after unlocking.

mod calling;
#[cfg(test)]
mod handoff_tests;
#[cfg(test)]
mod lent_tests;
mod serving;
pub(super) mod waiting;
#[cfg(test)]
mod waiting_tests;

use std::collections::VecDeque;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use forebay_base::process::{self, number};
use rustix::net::{AddressFamily, sockopt::socket_domain};

use crate::calls::call::{Outcome, Taker};
use crate::calls::connection::waiting::{WaitFor, end_wait};
use crate::calls::options::{Counters, Options};
use crate::calls::state::ConnectionState;
use crate::drive::blocking::is_past;
use crate::error::{Cause, Delivered, Error, Fault, Result};
use crate::link::framed::Link;
use crate::link::outbox::Head;
use crate::share::sweep_lent;
use crate::stream::Socket;
use crate::stream::socket::Wire;
use crate::stream::unix::peer_uid;
use crate::wire::frame::{Header, Kind};
use forebay_base::waiters::Reader;

type Guard<'a> = MutexGuard<'a, ConnectionState<Wire>>;

/// One end of a connection. Every method may be called from any thread.
pub struct Connection {
    state: Mutex<ConnectionState<Wire>>,
    peer: String,
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
            state.link.queue_preface();
            state.flush();
        })?;
        Ok(connection)
    }

    /// Take over the socket of a caller in another process that has sent its preface; `preface_read`: it has also read the
    /// server's.
    ///
    /// # Errors
    /// `Config` if the descriptor is no connected Unix socket.
    pub fn resume(socket: OwnedFd, options: Options, preface_read: bool) -> Result<Self> {
        let connection = Self::unconnected(options);
        connection.adopt(socket)?;
        connection.step(|state| state.resume(preface_read))?;
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
        Self {
            state: Mutex::new(ConnectionState::new(role, limits, runtime, handshake)),
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

    /// Continue after another process has used the connection. The frame that says so goes out before the next call.
    pub fn renew(&self) -> Result<()> {
        self.step(ConnectionState::renew)
    }

    /// Whether another process could continue from here: nothing is half written or half read, and no calls are in flight
    /// but the `owed` ones whose answers the next process will read.
    pub fn is_quiescent(&self, owed: usize) -> Result<bool> {
        self.step(|state| state.is_quiescent(owed))
    }

    /// Whether the server's preface was read.
    pub fn is_open(&self) -> Result<bool> {
        self.step(|state| state.link.life().is_open())
    }

    /// Forget a call whose answer another process will read, without cancelling it at the server.
    pub fn forget_call(&self, id: u64) -> Result<()> {
        self.step(|state| state.forget_call(id))
    }

    /// Expect the reply to a call that another process made; it is taken like that of our own call.
    pub fn expect_reply(&self, id: u64, taker: Taker) -> Result<()> {
        self.step(|state| state.expect_reply(id, taker))
    }

    /// Whether the peer may lend us memory: the names of what it has lent mean nothing to another process.
    pub fn borrows(&self) -> bool {
        self.lock_any().borrows()
    }

    /// Close our duplicate of the socket; those of other processes stay connected. Idempotent.
    ///
    /// For a [quiescent](Self::is_quiescent) connection on which no thread waits; `close` ends it for all processes.
    pub fn close_local(&self) -> Result<()> {
        self.step(ConnectionState::close_local)
    }

    /// The peer's name in messages.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// Whether the kernel says that the peer is the same user.
    pub fn is_trusted(&self) -> bool {
        self.lock_any().allows_pickle()
    }

    /// What a selector watches; `None` once closed.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.lock_any().link.stream().map(Wire::descriptor)
    }

    /// The socket itself, for an epoll: it stays open meanwhile. `None` once closed.
    pub fn socket(&self) -> Option<Socket> {
        let state = self.lock_any();
        state.link.stream().map(|wire| Arc::clone(wire.socket()))
    }

    /// Take the peer's pidfd: readable means that the peer ended. Closed with the connection.
    pub fn watch(&self, pidfd: OwnedFd) {
        let mut state = self.lock_any();
        let connected = state.link.stream().is_some();
        state.sleeping().watch(connected.then_some(pidfd));
    }

    /// Read the socket, and take the calls that finished for the queue.
    ///
    /// # Errors
    /// `Busy` while a thread reads. A broken connection is no error here: its calls end with it.
    pub fn receive(&self) -> Result<VecDeque<(u64, Outcome)>> {
        self.step(|state| {
            if matches!(state.reader(), Reader::Thread(_)) {
                return Err(self.busy("a thread reads it"));
            }
            state.receive();
            Ok(state.calls().take_finished())
        })?
    }

    /// From now on let frames wait for `flush`, up to [`CORKED_BYTES_MAX`] bytes.
    ///
    /// For a driver that answers many calls in one turn and flushes each connection once at its end.
    ///
    /// [`CORKED_BYTES_MAX`]: crate::limit::CORKED_BYTES_MAX
    pub fn cork(&self) -> Result<()> {
        self.step(|state| state.link.cork())
    }

    /// Take calls without spinning from now on: neither before a sleep nor while calls are queued.
    ///
    /// For a worker whose calls arrive at the pace of a disk: spinning takes a core from the process that sends them. A
    /// cancel of a queued call is then found once the queue is empty.
    pub fn disable_spin(&self) -> Result<()> {
        self.step(|state| state.sleeping().disable_spin())
    }

    /// Write queued bytes; true if nothing waits any more.
    pub fn flush(&self) -> Result<bool> {
        self.step(|state| {
            state.flush();
            !state.link.wants_write()
        })
    }

    /// Become the only reader, as an event loop or a reader thread does; blocked threads then follow.
    ///
    /// A thread that reads at this moment wakes, checks for its reply, and follows too.
    ///
    /// # Errors
    /// `Busy` while another driver reads.
    pub fn attach(&self) -> Result<()> {
        let attached = self.step(ConnectionState::attach_driver)?;
        let other = "another loop or thread reads it";
        attached.then_some(()).ok_or_else(|| self.busy(other))
    }

    /// Stop being the reader.
    pub fn detach(&self) -> Result<()> {
        self.step(|state| state.waiters().detach())
    }

    /// The watched peer process ended: deliver what it sent before, then break.
    pub fn peer_died(&self) -> Result<()> {
        self.step(ConnectionState::peer_died)
    }

    /// Send a ping; the answer is counted in `pongs`.
    pub fn ping(&self) -> Result<()> {
        self.step(|state| state.tell(Header::control(Kind::Ping, 0)))
    }

    /// Whether a selector should watch for readable and for writable.
    pub fn wants(&self) -> Result<(bool, bool)> {
        self.step(|state| (state.wants_read(), state.link.wants_write()))
    }

    /// Whether the stream holds received bytes, for which the socket does not become readable: step again without waiting.
    pub fn holds_received(&self) -> bool {
        let mut state = self.lock_any();
        state.link.holds_received() && state.wants_read()
    }

    /// Calls whose outcomes have not been taken, and streams that have not been read to their end.
    pub fn in_flight(&self) -> usize {
        self.lock_any().in_flight()
    }

    /// Bytes that wait to be sent; those that the stream itself holds count as at least one.
    pub fn outbox_bytes(&self) -> usize {
        self.lock_any().link.unsent_bytes()
    }

    /// Why nothing more comes, if so: the fault, or the end of the peer's calls.
    pub fn is_over(&self) -> bool {
        let mut state = self.lock_any();
        state.link.life().is_broken()
            || (state.link.life().has_ended() && state.inbox().queued() == 0)
    }

    /// The error that ended the connection, if one did.
    pub fn fault(&self) -> Option<Error> {
        self.lock_any()
            .link
            .fault()
            .map(|fault| fault.to_error(&self.peer, Delivered::Maybe))
    }

    /// Whether this side closed it.
    pub fn is_closed(&self) -> bool {
        self.lock_any().link.stream().is_none()
    }

    /// What was counted.
    pub fn counters(&self) -> Counters {
        self.lock_any().counters()
    }

    /// Close now: queued bytes are dropped, waiting calls end with `Closed`. Idempotent.
    ///
    /// In a forked child only the descriptor is closed; the peer does not notice.
    pub fn close(&self) {
        if process::epoch() != self.owner.load(Ordering::Relaxed) {
            // The lock may have been held by a thread that does not exist here.
            if let Ok(mut state) = self.state.try_lock() {
                state.link.take_stream();
                state.sleeping().watch(None);
            }
            return;
        }
        let mut state = self.lock_any();
        state.break_with(Fault::Closed);
        state.sleeping().watch(None);
        let mut wire = state.link.take_stream();
        if let Some(wire) = &mut wire {
            wire.hang_up();
        }
        let retired = state.link.take_sent();
        drop(state);
        drop(wire);
        drop(retired);
    }

    /// Wait until the peer's preface was read and its token, if one is required, was accepted. TLS completes before that.
    ///
    /// # Errors
    /// `Deadline`, `Interrupted`, `Busy` if another thread or loop reads, what ended the connection.
    pub fn handshake(&self, deadline: Option<Instant>) -> Result<()> {
        let mut state = self.lock()?;
        while !state.link.life().is_open() {
            let ended = state
                .link
                .life()
                .has_ended()
                .then_some(Fault::Broken(Cause::EndOfFile));
            if let Some(fault) = state.link.fault().cloned().or(ended) {
                end_wait(state, None);
                return Err(fault.to_error(&self.peer, Delivered::No));
            }
            if state.reader() != Reader::None {
                return Err(self.busy("another thread or loop reads it"));
            }
            if is_past(deadline) {
                end_wait(state, None);
                return Err(Error::Deadline {
                    peer: self.peer.clone(),
                });
            }
            let write = state.link.wants_write();
            state = self.turn(state, WaitFor { id: None, write }, deadline)?;
        }
        end_wait(state, None);
        Ok(())
    }

    /// Wait until the kernel has everything queued so far, or the connection is broken.
    ///
    /// # Errors
    /// `Deadline`, `Interrupted`, `Closed`.
    pub fn drain(&self, deadline: Option<Instant>) -> Result<()> {
        let state = self.lock()?;
        let end = state.link.outbox().end();
        // With an empty outbox, the stream itself may still hold bytes (a TLS record, say).
        self.write_while(state, deadline, |link| {
            (link.outbox().sent() < end || link.outbox().is_empty()) && link.wants_write()
        })
    }

    /// If the outbox is above its high mark, wait until it is below the low one.
    ///
    /// # Errors
    /// As [`Self::drain`].
    pub fn wait_for_room(&self, deadline: Option<Instant>) -> Result<()> {
        let state = self.lock()?;
        if state.link.outbox().bytes() <= state.link.limits().outbox_bytes_high {
            return Ok(());
        }
        self.write_while(state, deadline, |link| {
            link.outbox().bytes() > link.limits().outbox_bytes_low
        })
    }

    /// Write while something `waits`, until the link is broken.
    fn write_while<'a>(
        &'a self,
        mut state: Guard<'a>,
        deadline: Option<Instant>,
        waits: impl Fn(&Link<Wire>) -> bool,
    ) -> Result<()> {
        let wait_for = WaitFor {
            id: None,
            write: true,
        };
        while waits(&state.link) && !state.link.life().is_broken() {
            if is_past(deadline) {
                end_wait(state, None);
                return Err(Error::Deadline {
                    peer: self.peer.clone(),
                });
            }
            state = self.turn(state, wait_for, deadline)?;
        }
        end_wait(state, None);
        Ok(())
    }

    /// Wait once without the lock, then read and write what can be.
    fn turn<'a>(
        &'a self,
        state: Guard<'a>,
        wait_for: WaitFor,
        deadline: Option<Instant>,
    ) -> Result<Guard<'a>> {
        waiting::turn(&self.peer, state, || self.lock(), wait_for, deadline)
    }

    pub(super) fn busy(&self, what: &'static str) -> Error {
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
    pub(super) fn step_with<L, R>(
        &self,
        mut lent: L,
        act: impl FnOnce(&mut ConnectionState<Wire>, &mut L) -> R,
    ) -> Result<R> {
        self.step(|state| act(state, &mut lent))
    }

    pub(super) fn lock(&self) -> Result<Guard<'_>> {
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

    fn lock_any(&self) -> Guard<'_> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Unlock, then drop lent bytes. A protocol violation closes the connection here.
pub(super) fn release(mut state: Guard<'_>) {
    if matches!(state.link.fault(), Some(Fault::Protocol { .. }))
        && let Some(wire) = state.link.stream_mut()
    {
        wire.hang_up();
    }
    let retired = state.link.take_sent();
    drop(state);
    drop(retired);
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

fn head_bytes(head: &Head<'_>) -> Result<u32> {
    let value = head.as_slice().len() as u64;
    u32::try_from(value).map_err(|_| Error::Limit {
        name: "head_bytes_max",
        limit: u32::MAX.into(),
        value,
    })
}
