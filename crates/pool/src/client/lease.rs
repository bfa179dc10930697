//! A lease from its beginning to its end, and what its holder may ask.

use std::os::fd::RawFd;
use std::sync::Arc;

use forebay_base::Queue;

use super::{Client, Transition, Wake};
use crate::clock::now_ms;
use crate::death::{Cause, Death};
use crate::error::Result;
use crate::machine::Key;
use crate::wire::{Handle, KeeperRequest};
use crate::word::State as Word;

impl Client {
    /// A service that the caller started is ready: it is lent. Its process id, or None where the keeper has not
    /// reported it yet, or has ended it.
    pub fn lend(&self, handle: Handle, key: Key) -> Result<Option<i32>> {
        let mut state = self.enter()?;
        self.drive_with(&mut state)?;
        state.lend(handle, key)
    }

    /// The process of a lent service, and its pidfd for a caller that waits for an answer from it.
    pub fn process(&self, handle: Handle) -> Result<Option<(i32, RawFd)>> {
        let mut state = self.enter()?;
        Ok(state.entry(handle)?.process())
    }

    /// Give a service back: at once, or, with a deadline, once it has answered the reset that the caller sent.
    pub fn release(&self, handle: Handle, reset_ms: Option<u64>) -> Result<()> {
        let mut state = self.enter()?;
        let settled = reset_ms.is_none();
        state.entry(handle)?; // stale handles end here
        state.entry_of(handle.slot).lent = false;
        let now = now_ms();
        if let Some(cause) = state.worn(handle.slot, now) {
            self.drop_service(&mut state, handle.slot, cause);
            return Ok(());
        }
        let cell = state.link.cell(handle.slot);
        cell.since_ms
            .store(now, std::sync::atomic::Ordering::Release);
        let to = if settled { Word::Idle } else { Word::Resetting };
        if state.entry_of(handle.slot).death.is_some()
            || !state.machine.is_lendable(handle.slot)
            || !state.shift(handle, Word::Leased, to)
        {
            self.drop_service(&mut state, handle.slot, Cause::Discarded);
            return Ok(());
        }
        let transition = if settled {
            Transition::Release
        } else {
            Transition::Reset
        };
        state.note(handle.slot, transition);
        if let Some(deadline_ms) = reset_ms {
            let request = KeeperRequest::Reset {
                handle,
                deadline_ms,
            };
            if state.link.send(&request, &[]).is_err() {
                // Without a keeper, nothing would end it if it hung.
                self.drop_service(&mut state, handle.slot, Cause::Discarded);
                return Ok(());
            }
            state.stats.resets += 1;
            self.watch_socket(&state, handle.slot)?;
        }
        let mut actions = Vec::new();
        state.machine.release(handle.slot, settled, &mut actions);
        self.act(&mut state, &mut actions);
        Ok(())
    }

    /// Leave a start to the next caller; the service settles by itself.
    ///
    /// `answered`: the caller has read that it is ready, so that nothing will come to its socket.
    pub fn abandon(&self, handle: Handle, answered: bool) -> Result<()> {
        let mut state = self.enter()?;
        state.entry(handle)?;
        state.entry_of(handle.slot).lent = false;
        let cell = state.link.cell(handle.slot);
        cell.since_ms
            .store(now_ms(), std::sync::atomic::Ordering::Release);
        // An answered one is idle. Another goes on under its start deadline, which fits only the
        // generation that it was started with: a later caller that leaves it too gives the service up.
        let goes_on = if answered {
            state.shift(handle, Word::Starting, Word::Idle)
                || state.shift(handle, Word::Leased, Word::Idle)
        } else {
            state.shift(handle, Word::Starting, Word::Starting)
        };
        if state.entry_of(handle.slot).death.is_some() || !goes_on {
            self.drop_service(&mut state, handle.slot, Cause::Discarded);
            return Ok(());
        }
        let mut actions = Vec::new();
        state.machine.release(handle.slot, false, &mut actions);
        if answered {
            state.machine.readable(handle.slot, &mut actions);
        } else {
            self.watch_socket(&state, handle.slot)?;
        }
        self.act(&mut state, &mut actions);
        Ok(())
    }

    /// End a lent service; its successor may start at once.
    pub fn discard(&self, handle: Handle, cause: Cause) -> Result<()> {
        let mut state = self.enter()?;
        state.entry(handle)?;
        state.entry_of(handle.slot).lent = false;
        self.drop_service(&mut state, handle.slot, cause);
        Ok(())
    }

    /// How a lent service ended, if it has; otherwise `WATCH` is pushed to `queue` when that may have changed.
    pub fn death(&self, handle: Handle, queue: Option<&Arc<Queue<Wake>>>) -> Result<Option<Death>> {
        let mut state = self.enter()?;
        self.drive_with(&mut state)?;
        let death = state.entry(handle)?.death.clone();
        if death.is_none() {
            state.watch(queue);
        }
        Ok(death)
    }

    /// Ask the keeper for what a lent service wrote; the answer comes to `output`.
    pub fn ask_output(&self, handle: Handle) -> Result<()> {
        let mut state = self.enter()?;
        state.entry(handle)?.output = None;
        state.link.send(&KeeperRequest::Output { handle }, &[])
    }

    /// What a lent service wrote, once the keeper has answered.
    pub fn output(
        &self,
        handle: Handle,
        queue: Option<&Arc<Queue<Wake>>>,
    ) -> Result<Option<Vec<u8>>> {
        let mut state = self.enter()?;
        self.drive_with(&mut state)?;
        let output = state.entry(handle)?.output.take();
        if output.is_none() {
            state.watch(queue);
        }
        Ok(output)
    }
}
