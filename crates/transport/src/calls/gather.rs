//! Waiting in one thread for calls that were started on several connections.
//!
//! The thread becomes the reader of every connection that has none, as a thread that waits for a
//! single call does (`waiting`), and sleeps once for all of them.
//! At first it sleeps only on the *last* remaining call, and on the peers' deaths: waking for each
//! answer would take cores from processes that are still working on theirs. Then it reads what has
//! arrived in the other sockets without sleeping. After `GATHER_PATIENCE_US` any answer wakes it,
//! because an answer larger than a socket's buffer blocks its sender until somebody reads.

use std::cell::Cell;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_base::signals;
use forebay_base::time::left;
use forebay_base::wakeup::Wakeup;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::calls::call::Outcome;
use crate::calls::connection::waiting::{Turn, WaitFor, begin_turn, end_turn, end_wait};
use crate::calls::connection::{Connection, release};
use crate::drive::blocking::{Woken, is_past, thread_wakeup};
use crate::drive::look::{LongLook, spin};
use crate::error::{Error, Result};
use crate::limit::{GATHER_LOOK_US, GATHER_PATIENCE_US};

thread_local! {
    static LOOK: Cell<LongLook> = const { Cell::new(LongLook::new()) };
}

/// Wait until every call has ended, each by an answer, a failure or a break of its connection.
///
/// `calls` are connections and the ids of calls that were started for a thread; the outcome of
/// `calls[n]` goes to `ended[n]`. A call that has an outcome there is not waited for. `look` says
/// that answers are expected soon enough to spin before sleeping.
///
/// # Errors
/// `Deadline` and `Interrupted`, after which the calls without an outcome continue: wait again with
/// the same `ended`, or cancel them. An error of one call is its outcome, not an error of the whole.
///
/// # Panics
/// Where `ended` is shorter than `calls`.
pub fn wait_all(
    calls: &[(&Connection, u64)],
    ended: &mut [Option<Result<Outcome>>],
    deadline: Option<Instant>,
    look: bool,
) -> Result<()> {
    let wake = thread_wakeup()?;
    let patient = Instant::now() + Duration::from_micros(GATHER_PATIENCE_US);
    loop {
        let mut waits = begin_turns(calls, ended, &wake);
        if waits.is_empty() {
            return Ok(());
        }
        let slept = if is_past(deadline) {
            Err(Error::Deadline {
                peer: format!("{} of {} calls", waits.len(), calls.len()),
            })
        } else {
            sleep(&mut waits, &wake, patient, deadline, look)
        };
        for wait in &waits {
            wait.end_turn(slept.is_err());
        }
        slept?;
    }
}

/// This thread's turn at the connection of one call.
struct Waiting<'a> {
    connection: &'a Connection,
    id: u64,
    turn: Turn,
    write: bool,
    woken: Woken,
}

impl Waiting<'_> {
    /// End the turn; for good if the wait has `stopped`.
    fn end_turn(&self, stopped: bool) {
        // Only a forked child fails here; it gets the error when it enters again.
        let Ok(mut state) = self.connection.lock() else {
            return;
        };
        end_turn(&mut state, &self.turn, self.woken);
        if stopped {
            end_wait(state, Some(self.id));
        } else {
            release(state);
        }
    }
}

/// Take the outcomes that have arrived, and begin a turn at the connection of every other call.
fn begin_turns<'a>(
    calls: &[(&'a Connection, u64)],
    ended: &mut [Option<Result<Outcome>>],
    wake: &Arc<Wakeup>,
) -> Vec<Waiting<'a>> {
    let mut waits = Vec::with_capacity(calls.len());
    for (&(connection, id), ended) in calls.iter().zip(ended) {
        if ended.is_some() {
            continue;
        }
        match enter(connection, id, wake) {
            Ok(Entered::Ended(outcome)) => *ended = Some(Ok(outcome)),
            Ok(Entered::Waiting(wait)) => waits.push(wait),
            Err(error) => *ended = Some(Err(error)),
        }
    }
    waits
}

enum Entered<'a> {
    Ended(Outcome),
    Waiting(Waiting<'a>),
}

fn enter<'a>(connection: &'a Connection, id: u64, wake: &Arc<Wakeup>) -> Result<Entered<'a>> {
    let mut state = connection.lock()?;
    if let Some(outcome) = state.calls().take(id) {
        end_wait(state, Some(id));
        return Ok(Entered::Ended(outcome));
    }
    if !state.calls().is_waiting(id) {
        end_wait(state, Some(id));
        return Err(Error::Closed {
            peer: connection.peer().to_owned(),
        });
    }
    let write = state.link.wants_write();
    let wait_for = WaitFor {
        id: Some(id),
        write,
    };
    let turn = begin_turn(connection.peer(), &mut state, wait_for, Some(wake))?;
    release(state);
    Ok(Entered::Waiting(Waiting {
        connection,
        id,
        turn,
        write,
        woken: Woken::default(),
    }))
}

/// Sleep until there is work, and note what for each turn.
fn sleep(
    waits: &mut [Waiting<'_>],
    wake: &Wakeup,
    patient: Instant,
    deadline: Option<Instant>,
    look: bool,
) -> Result<()> {
    if waits.iter().any(|wait| wait.turn.buffered) {
        for wait in waits {
            wait.woken.readable = true;
        }
        return Ok(());
    }
    let last = waits.len() - 1;
    let patient = (!is_past(Some(patient))).then_some(patient);
    let mut fds = Vec::with_capacity(2 * waits.len() + 1);
    fds.push(PollFd::from_borrowed_fd(wake.as_fd(), PollFlags::IN));
    let mut sockets = Vec::with_capacity(waits.len());
    let mut processes = Vec::with_capacity(waits.len());
    for (at, wait) in waits.iter().enumerate() {
        let mut interest = PollFlags::empty();
        let lead = wait.turn.lead.is_some();
        interest.set(PollFlags::IN, lead && (at == last || patient.is_none()));
        interest.set(PollFlags::OUT, wait.write);
        // poll(2) reports a hang-up even for an empty interest, so it would return at once, for ever.
        if !interest.is_empty() {
            sockets.push((at, fds.len()));
            fds.push(PollFd::new(&wait.turn.watch, interest));
        }
        if let Some(process) = &wait.turn.process {
            processes.push((at, fds.len()));
            fds.push(PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN));
        }
    }
    let until = [patient, deadline].into_iter().flatten().min();
    sleep_until(&mut fds, until, look)?;
    let seen: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
    drop(fds);
    if !seen[0].is_empty() {
        wake.clear();
    }
    for wait in waits.iter_mut() {
        // Reading an empty socket costs one system call, less than a second poll would.
        wait.woken.readable = true;
    }
    for (at, fd) in sockets {
        waits[at].woken.writable = seen[fd].intersects(PollFlags::OUT | PollFlags::HUP);
    }
    for (at, fd) in processes {
        waits[at].woken.peer_died = !seen[fd].is_empty();
    }
    Ok(())
}

fn sleep_until(fds: &mut [PollFd<'_>], until: Option<Instant>, look: bool) -> Result<()> {
    if look && find(fds) {
        return Ok(());
    }
    match signals::poll(fds, left(until)) {
        Ok(_) => Ok(()),
        Err(Errno::INTR) => Err(Error::Interrupted),
        Err(errno) => Err(Error::System {
            what: "poll".into(),
            errno,
        }),
    }
}

/// Spin for a while, unless that was of no use lately; returns whether something arrived.
fn find(fds: &mut [PollFd<'_>]) -> bool {
    let mut look = LOOK.get();
    let found = look.is_worth_it() && {
        let begun = Instant::now();
        let found = spin(fds, GATHER_LOOK_US);
        look.ended(found && begun.elapsed() < 2 * Duration::from_micros(GATHER_LOOK_US));
        found
    };
    LOOK.set(look);
    found
}
