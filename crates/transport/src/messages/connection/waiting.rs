//! How threads wait on a connection of messages.

use std::sync::atomic::Ordering;
use std::time::Instant;

use forebay_base::signals;
use forebay_base::time::left;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::{Guard, Messages, release, signals_room_as_input};
use crate::drive::blocking::is_past;
use crate::error::{Delivered, Error, Result};
use crate::messages::frames::Message;
use crate::stream::socket::{Watch, Wire};

impl Messages {
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

    /// Wait until the peer is admitted.
    ///
    /// # Errors
    /// `Deadline`, `Interrupted`, what ended the connection.
    pub fn handshake(&self, deadline: Option<Instant>) -> Result<()> {
        self.wait(deadline, |state| match state.end() {
            Some(fault) => Err(fault.to_error(&self.peer, Delivered::No)),
            None => Ok(state.has_opened().then_some(())),
        })
    }

    /// Wait until the kernel has the stream up to `end`.
    ///
    /// # Errors
    /// `Deadline`, `Interrupted`, `Broken` with "maybe", `Closed`.
    pub fn drain(&self, end: u64, deadline: Option<Instant>) -> Result<()> {
        self.wait(deadline, |state| {
            if state.kernel_offset() >= end {
                return Ok(Some(()));
            }
            match state.fault() {
                Some(fault) => Err(fault.to_error(&self.peer, Delivered::Maybe)),
                None => Ok(None),
            }
        })
    }

    /// Step and sleep until `look` finds what it wants.
    fn wait<R>(
        &self,
        deadline: Option<Instant>,
        mut look: impl FnMut(&mut Guard<'_>) -> Result<Option<R>>,
    ) -> Result<R> {
        let mut woken = false;
        let mut lead = None;
        loop {
            let mut version = self.queue.version();
            let mut state = self.lock()?;
            if std::mem::take(&mut woken) {
                state.woken();
            }
            state.flush();
            let mut found = look(&mut state);
            if matches!(found, Ok(None)) {
                state = self.receive(state)?;
                found = look(&mut state);
            }
            let more = state.may_have_more();
            let interest = interest_of(&mut state);
            let watch = state.stream().map(Wire::watch);
            release(state);
            if lead.take().is_some() {
                version += 1; // counted by dropping our own lead, which is no news
            }
            if let Some(found) = found? {
                return Ok(found);
            }
            if is_past(deadline) {
                return Err(Error::Deadline {
                    peer: self.peer.clone(),
                });
            }
            match watch {
                None => {}
                _ if more => {}
                Some(watch @ Watch::Socket(_)) => sleep(&watch, interest, deadline)?,
                Some(watch @ Watch::Shared(_)) => {
                    lead = self.queue.lead(version, deadline);
                    if lead.is_none() {
                        return Err(Error::Interrupted); // the caller checks for signals, which do not wake a follower
                    }
                    sleep(&watch, interest, deadline)?;
                    woken = true;
                }
            }
        }
    }
}

fn interest_of(state: &mut Guard<'_>) -> PollFlags {
    let mut interest = PollFlags::empty();
    interest.set(
        PollFlags::IN,
        state.wants_read() || signals_room_as_input(state),
    );
    interest.set(PollFlags::OUT, state.wants_write());
    interest
}

fn sleep(socket: &Watch, interest: PollFlags, deadline: Option<Instant>) -> Result<()> {
    match signals::poll(&mut [PollFd::new(socket, interest)], left(deadline)) {
        Ok(_) => Ok(()),
        Err(Errno::INTR) => Err(Error::Interrupted),
        Err(errno) => Err(Error::System {
            what: "poll".into(),
            errno,
        }),
    }
}
