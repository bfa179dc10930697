//! How threads wait on a connection: those that call and those that serve.
//!
//! Several threads may have calls in flight on one connection. The first that waits reads for all
//! (the leader); the others sleep on an eventfd of their own (followers). A reply wakes only its
//! follower. A leader that has its own reply leaves and promotes one follower.
//!
//! A follower is promoted, not made the reader: it wakes, takes the lock and competes like any
//! thread, so that no thread is named the reader that has left by a signal or its deadline.
//! Every exit from a wait goes through [`end_wait`], which promotes; one that did not would leave
//! followers asleep with nobody reading.
//!
//! Condition variables would do for followers but for signals: Python's main thread must return
//! from its wait to run handlers, and `poll` returns EINTR where a futex wait does not.

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use forebay_base::process;
use forebay_base::time::{left, timespec};
use forebay_base::wakeup::Wakeup;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::calls::call::Outcome;
use crate::calls::connection::{Connection, next_runnable, peer_died, release};
use crate::calls::inbox::Call;
use crate::calls::state::{ConnectionState, Reader};
use crate::drive::look::Look;
use crate::error::{Cause, Delivered, Error, Fault, Result};
use crate::limit::SPIN_US;
use crate::stream::socket::{Watch, Wire};

type Guard<'a> = MutexGuard<'a, ConnectionState<Wire>>;

thread_local! {
    /// The eventfd that this thread sleeps on as a follower, and the fork epoch in which it was made.
    static WAKE: RefCell<Option<(u64, Arc<Wakeup>)>> = const { RefCell::new(None) };
}

/// What a turn waits for, besides its deadline.
#[derive(Clone, Copy)]
pub(crate) struct WaitFor {
    /// The call whose reply is wanted. Without one, no reply can wake the thread: it must lead.
    pub(crate) id: Option<u64>,
    /// Whether queued bytes are to be written.
    pub(crate) write: bool,
}

impl Connection {
    /// Wait for the outcome of a call that was started with `Taker::Thread`.
    ///
    /// # Errors
    /// `Deadline`, after which the call is cancelled. `Interrupted`, after which it continues: wait
    /// again or cancel it. `Closed` if the id is unknown.
    pub fn wait(&self, id: u64, deadline: Option<Instant>) -> Result<Outcome> {
        let outcome = self.wait_keeping_call(id, deadline);
        if matches!(outcome, Err(Error::Deadline { .. })) {
            self.cancel(id)?;
        }
        outcome
    }

    /// As [`Self::wait`], but the call continues past the deadline: wait again, cancel it, or hand it over.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub fn wait_keeping_call(&self, id: u64, deadline: Option<Instant>) -> Result<Outcome> {
        let mut state = self.lock()?;
        loop {
            if let Some(outcome) = state.calls.take(id) {
                end_wait(state, Some(id));
                return Ok(outcome);
            }
            if !state.calls.is_waiting(id) {
                end_wait(state, Some(id));
                return Err(Error::Closed {
                    peer: self.peer.clone(),
                });
            }
            if is_past(deadline) {
                end_wait(state, Some(id));
                return Err(Error::Deadline {
                    peer: self.peer.clone(),
                });
            }
            let write = state.wants_write();
            state = self.turn(
                state,
                WaitFor {
                    id: Some(id),
                    write,
                },
                deadline,
            )?;
        }
    }

    /// Wait for a call to run; `None` once the peer sends no more.
    ///
    /// # Errors
    /// `Deadline`, `Interrupted`, `Busy` if another thread or loop reads, `Protocol`, `Closed`.
    pub fn next_call(&self, deadline: Option<Instant>) -> Result<Option<Call>> {
        let mut state = self.lock()?;
        if state.reader != Reader::None {
            return Err(self.busy("another thread or loop takes its calls"));
        }
        if state.inbox.queued() > 0 && !state.look.is_off() {
            // A cancel of a queued call may have arrived behind it.
            state.receive();
        }
        loop {
            if let Some(call) = next_runnable(&mut state) {
                end_wait(state, None);
                return Ok(Some(call));
            }
            match &state.fault {
                Some(Fault::Broken(_)) => {
                    end_wait(state, None);
                    return Ok(None);
                }
                Some(fault) => {
                    let error = fault.to_error(&self.peer, Delivered::Maybe);
                    end_wait(state, None);
                    return Err(error);
                }
                None if state.ended || state.inbox.is_closing() => {
                    end_wait(state, None);
                    return Ok(None);
                }
                None => {}
            }
            if is_past(deadline) {
                end_wait(state, None);
                return Err(Error::Deadline {
                    peer: self.peer.clone(),
                });
            }
            let write = state.wants_write();
            state = self.turn(state, WaitFor { id: None, write }, deadline)?;
        }
    }

    /// Wait until the peer's preface was read and its token, if one is required, was accepted. TLS completes before that.
    ///
    /// # Errors
    /// `Deadline`, `Interrupted`, `Busy` if another thread or loop reads, what ended the connection.
    pub fn handshake(&self, deadline: Option<Instant>) -> Result<()> {
        let mut state = self.lock()?;
        while !state.is_open() {
            let ended = state.ended.then_some(Fault::Broken(Cause::EndOfFile));
            if let Some(fault) = state.fault.clone().or(ended) {
                end_wait(state, None);
                return Err(fault.to_error(&self.peer, Delivered::No));
            }
            if state.reader != Reader::None {
                return Err(self.busy("another thread or loop reads it"));
            }
            if is_past(deadline) {
                end_wait(state, None);
                return Err(Error::Deadline {
                    peer: self.peer.clone(),
                });
            }
            let write = state.wants_write();
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
        let mut state = self.lock()?;
        let end = state.outbox.end();
        // With an empty outbox, the stream itself may still hold bytes (a TLS record, say).
        while (state.outbox.sent() < end || state.outbox.is_empty())
            && state.wants_write()
            && state.fault.is_none()
        {
            if is_past(deadline) {
                end_wait(state, None);
                return Err(Error::Deadline {
                    peer: self.peer.clone(),
                });
            }
            state = self.turn(
                state,
                WaitFor {
                    id: None,
                    write: true,
                },
                deadline,
            )?;
        }
        end_wait(state, None);
        Ok(())
    }

    /// If the outbox is above its high mark, wait until it is below the low one.
    ///
    /// # Errors
    /// As [`Self::drain`].
    pub fn wait_for_room(&self, deadline: Option<Instant>) -> Result<()> {
        let mut state = self.lock()?;
        if state.outbox.bytes() <= state.limits.outbox_bytes_high {
            return Ok(());
        }
        while state.outbox.bytes() > state.limits.outbox_bytes_low && state.fault.is_none() {
            if is_past(deadline) {
                end_wait(state, None);
                return Err(Error::Deadline {
                    peer: self.peer.clone(),
                });
            }
            state = self.turn(
                state,
                WaitFor {
                    id: None,
                    write: true,
                },
                deadline,
            )?;
        }
        end_wait(state, None);
        Ok(())
    }

    /// Wait once, then read and write what can be.
    pub(crate) fn turn<'a>(
        &'a self,
        mut state: Guard<'a>,
        wait_for: WaitFor,
        deadline: Option<Instant>,
    ) -> Result<Guard<'a>> {
        let wake = wait_for.id.map(|_| thread_wakeup()).transpose()?;
        let turn = self.begin_turn(&mut state, wait_for, wake.as_ref())?;
        let mut look = state.look;
        let returns = state.lending.as_ref().and_then(|lending| lending.returns());
        release(state);
        let watched = (turn.watch.as_fd(), turn.pidfd.as_deref(), wake.as_deref());
        let lead = turn.lead.is_some();
        let woken = if turn.buffered {
            Ok(Woken {
                readable: true,
                writable: wait_for.write,
                peer_died: false,
            })
        } else {
            let tidy = || {
                if let Some(returns) = &returns {
                    let _ = returns.restore(); // a failure is retried when the next segment is opened
                }
            };
            Self::sleep(watched, (lead, wait_for.write), deadline, &mut look, tidy)
        };
        let mut state = self.lock()?;
        if lead {
            state.look = look;
        }
        match woken {
            Ok(woken) => {
                end_turn(&mut state, &turn, woken);
                Ok(state)
            }
            Err(error) => {
                end_turn(&mut state, &turn, Woken::default());
                end_wait(state, wait_for.id);
                Err(error)
            }
        }
    }

    /// Become the reader if there is none, or follow the current one.
    pub(crate) fn begin_turn(
        &self,
        state: &mut ConnectionState<Wire>,
        wait_for: WaitFor,
        wake: Option<&Arc<Wakeup>>,
    ) -> Result<Turn> {
        let Some(watch) = state.stream.as_ref().map(Wire::watch) else {
            return Err(Error::Closed {
                peer: self.peer.clone(),
            });
        };
        let lead = state.reader == Reader::None && state.wants_read();
        if let (Some(id), Some(wake)) = (wait_for.id, wake) {
            if lead {
                state.leader = Some(wake.clone());
            } else {
                state.followers.insert(id, wake.clone());
            }
        }
        state.leads += u64::from(lead);
        let reading = Reader::Thread(state.leads);
        if lead {
            state.reader = reading;
        }
        Ok(Turn {
            watch,
            pidfd: state.pidfd.clone(),
            lead: lead.then_some(reading),
            buffered: lead && state.holds_received(),
        })
    }

    fn sleep(
        (socket, pidfd, wake): (BorrowedFd<'_>, Option<&OwnedFd>, Option<&Wakeup>),
        (read, write): (bool, bool),
        deadline: Option<Instant>,
        look: &mut Look,
        before_sleep: impl FnOnce(),
    ) -> Result<Woken> {
        let mut interest = PollFlags::empty();
        interest.set(PollFlags::IN, read);
        interest.set(PollFlags::OUT, write);
        // poll(2) reports a hang-up even for an empty interest, so it would return at once, for ever.
        let socket = (read || write).then(|| PollFd::from_borrowed_fd(socket, interest));
        let readable = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let sources = [
            socket,
            pidfd.map(|fd| readable(fd.as_fd())),
            wake.map(|fd| readable(fd.as_fd())),
        ];
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(sources.len());
        let mut places = [None; 3];
        for (place, source) in places.iter_mut().zip(sources) {
            if let Some(fd) = source {
                *place = Some(fds.len());
                fds.push(fd);
            }
        }
        if read && look.is_worth_it() && spin(&mut fds, SPIN_US) {
            look.hit();
            return Ok(Self::found(&fds, places, wake));
        }
        let looked = read && look.is_worth_it();
        before_sleep(); // not before spinning: the thread that was answered may be waiting for this core
        let slept = Instant::now();
        let timeout = left(deadline).map(timespec);
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Err(Error::Interrupted),
            Err(errno) => {
                return Err(Error::System {
                    what: "poll".into(),
                    errno,
                });
            }
        }
        look.slept(looked, slept.elapsed());
        Ok(Self::found(&fds, places, wake))
    }

    /// What `poll` reported.
    fn found(fds: &[PollFd<'_>], places: [Option<usize>; 3], wake: Option<&Wakeup>) -> Woken {
        let seen = |at: usize| places[at].map_or(PollFlags::empty(), |place| fds[place].revents());
        if let (Some(wake), false) = (wake, seen(2).is_empty()) {
            wake.clear();
        }
        Woken {
            readable: seen(0).intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR),
            writable: seen(0).intersects(PollFlags::OUT | PollFlags::HUP | PollFlags::ERR),
            peer_died: !seen(1).is_empty(),
        }
    }
}

/// Poll for events for a short while, yielding the core in between; true if there are some.
pub(crate) fn spin(fds: &mut [PollFd<'_>], time_us: u64) -> bool {
    let now = timespec(Duration::ZERO);
    let time = Duration::from_micros(time_us);
    forebay_base::spin::spin(time, || poll(fds, Some(&now)).is_ok_and(|count| count > 0))
}

/// One sleep of a thread on one connection.
pub(crate) struct Turn {
    pub(crate) watch: Watch,
    pub(crate) pidfd: Option<Arc<OwnedFd>>,
    /// What marks this thread as the reader, if it is.
    pub(crate) lead: Option<Reader>,
    /// This thread reads, and the stream holds received bytes, for which the socket does not become readable.
    pub(crate) buffered: bool,
}

/// How a sleep ended, for one connection.
#[derive(Clone, Copy, Default)]
pub(crate) struct Woken {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) peer_died: bool,
}

/// Unlock and leave: this thread no longer waits for call `id`, or at all, and another one becomes the reader.
///
/// Every wait ends here. A follower sleeps on its eventfd alone: if none is promoted when the last leader leaves, it
/// sleeps for ever, and if the peer waits until its output is read, so does the peer.
pub(crate) fn end_wait(mut state: Guard<'_>, id: Option<u64>) {
    if let Some(id) = id {
        state.followers.remove(&id);
    }
    state.promote();
    release(state);
}

/// Stop being the reader after a sleep, then read and write what the sleep was for.
pub(crate) fn end_turn(state: &mut ConnectionState<Wire>, turn: &Turn, woken: Woken) {
    // Compared by number: a driver may have attached and detached during the sleep, and another thread may read now.
    let lead = turn.lead.is_some_and(|reading| state.reader == reading);
    if lead {
        state.reader = Reader::None;
        state.leader = None;
    }
    if woken.peer_died {
        peer_died(state);
        return;
    }
    if woken.readable && lead {
        state.receive();
    }
    if woken.writable {
        state.flush();
    }
}

pub(crate) fn is_past(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|at| at <= Instant::now())
}

/// The calling thread's eventfd; a new one in a forked child, which shares the old one with its parent.
pub(crate) fn thread_wakeup() -> Result<Arc<Wakeup>> {
    WAKE.with_borrow_mut(|slot| {
        let here = process::epoch();
        if let Some((owner, wake)) = slot
            && *owner == here
        {
            return Ok(wake.clone());
        }
        let wake = Wakeup::new().map_err(|error| Error::System {
            what: "eventfd".into(),
            errno: Errno::from_io_error(&error).unwrap_or(Errno::MFILE),
        })?;
        let wake = Arc::new(wake);
        *slot = Some((here, wake.clone()));
        Ok(wake)
    })
}
