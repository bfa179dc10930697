//! Asking for a service: at once, or by a ticket that waits its turn.

use std::sync::Arc;

use forebay_base::Queue;

use super::drive::notify;
use super::{Answer, Client, State, Wake};
use crate::clock::now_ms;
use crate::death::Cause;
use crate::error::{Error, Result};
use crate::machine::{Grant, Key, Ticket};
use crate::wire::{Handle, KeeperRequest};

impl Client {
    /// An idle service of a key that is settled, where there is one: nothing to wait for.
    pub fn take(&self, key: Key) -> Result<Option<Handle>> {
        let mut state = self.enter()?;
        let now = now_ms();
        while let Some(slot) = state.machine.top(key) {
            if state.is_quiet(slot, now) {
                return Ok(None); // `ask` says so
            }
            state.machine.take(key);
            if let Some(handle) = state.claim(slot, true, now) {
                if state.shares {
                    self.open_slot(&mut state, slot);
                }
                return Ok(Some(handle));
            }
            self.drop_service(&mut state, slot, Cause::Discarded);
        }
        Ok(None)
    }

    /// Ask for a service of a key.
    pub fn ask(&self, key: Key) -> Result<Answer> {
        let mut state = self.enter()?;
        if !state.machine.has_idle(key) {
            self.drive_with(&mut state)?;
        }
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        let mut actions = Vec::new();
        let mut grant = state.machine.ask(ticket, key, &mut actions);
        self.act(&mut state, &mut actions);
        while let Some(granted) = grant {
            if let Some(answer) = self.answer(&mut state, granted) {
                return Ok(answer);
            }
            if let Grant::Join { slot } = granted {
                state.machine.unjoin(slot);
            }
            self.drop_service(&mut state, granted.slot(), Cause::Discarded);
            grant = state.machine.ask(ticket, key, &mut actions);
            self.act(&mut state, &mut actions);
        }
        // Where no start has ended yet, what settles was started earlier than anything that could be
        // started now: no grace ends the wait for it.
        let known = state.start_ms.get(&key).map_or(0, |&known| known.max(1));
        let settling = state.machine.settling_of(key) > 0;
        state.stats.waits += 1;
        Ok(Answer::Wait {
            ticket,
            grace_ms: if settling { known } else { 0 },
        })
    }

    /// Set the queue that a waiting ticket is pushed to; it is pushed at once if it has been granted already.
    pub fn await_on(&self, ticket: Ticket, queue: &Arc<Queue<Wake>>) -> Result<()> {
        let mut state = self.enter()?;
        if state.machine.granted(ticket).is_some() {
            notify(queue, ticket);
        } else {
            state.wakers.insert(ticket, Arc::clone(queue));
        }
        Ok(())
    }

    /// What a ticket got, or None where it still waits.
    pub fn collect(&self, ticket: Ticket) -> Result<Option<Answer>> {
        let mut state = self.enter()?;
        while let Some(grant) = state.machine.granted(ticket) {
            if let Some(answer) = self.answer(&mut state, grant) {
                state.machine.collect(ticket);
                return Ok(Some(answer));
            }
            // The ticket goes back to the head of the queue, and may be granted again at once.
            self.drop_service(&mut state, grant.slot(), Cause::Discarded);
        }
        Ok(None)
    }

    /// What a grant comes to; None where its service has ended meanwhile.
    fn answer(&self, state: &mut State, grant: Grant) -> Option<Answer> {
        match grant {
            Grant::Start { slot } => Some(Answer::Start {
                handle: state.begin(slot),
            }),
            Grant::Join { slot } => state.join(slot),
            Grant::Take { slot, settled } => self.lend_granted(state, slot, settled),
        }
    }

    fn lend_granted(&self, state: &mut State, slot: u32, settled: bool) -> Option<Answer> {
        let now = now_ms();
        let quiet = settled && state.is_quiet(slot, now);
        let handle = state.claim(slot, settled, now)?;
        self.unwatch(state, slot);
        if settled && !quiet {
            self.open_slot(state, slot);
        }
        Some(Answer::Lent {
            handle,
            settled,
            quiet,
        })
    }

    /// One service of a key may have so many leases at once.
    pub fn share(&self, key: Key, leases: u32) -> Result<()> {
        let mut state = self.enter()?;
        state.machine.share(key, leases);
        state.shares |= leases > 1;
        Ok(())
    }

    /// A lent service has settled: others may join it, where its key is shared.
    pub fn open(&self, handle: Handle) -> Result<()> {
        let mut state = self.enter()?;
        state.entry(handle)?;
        self.open_slot(&mut state, handle.slot);
        Ok(())
    }

    fn open_slot(&self, state: &mut State, slot: u32) {
        if state.worn(slot, now_ms()).is_some() {
            return; // it ends with the lease that it has
        }
        let mut actions = Vec::new();
        state.machine.open(slot, &mut actions);
        self.act(state, &mut actions);
    }

    /// One of several leases of a service ends; false where it is the last, which is to be released or discarded.
    /// With `closed` the service takes no further leases, and ends with its last one.
    pub fn release_shared(&self, handle: Handle, closed: bool) -> Result<bool> {
        let mut state = self.enter()?;
        state.entry(handle)?;
        let mut actions = Vec::new();
        let parted = state
            .machine
            .release_shared(handle.slot, closed, &mut actions);
        self.act(&mut state, &mut actions);
        Ok(parted)
    }

    /// Room for one more idle service of a key, which the caller starts and leaves to settle.
    pub fn refill(&self, key: Key) -> Result<Option<Handle>> {
        let mut state = self.enter()?;
        self.drive_with(&mut state)?;
        let min_idle = state.keep.get(&key).copied().unwrap_or(0) as usize;
        let slot = state.machine.refill(key, min_idle);
        Ok(slot.map(|slot| state.begin(slot)))
    }

    /// Keep so many idle services of a key.
    pub fn keep(&self, key: Key, min_idle: u32) -> Result<()> {
        let mut state = self.enter()?;
        state.keep.insert(key, min_idle);
        if state.link.control().is_some() {
            match state.link.send(&KeeperRequest::Keep { key, min_idle }, &[]) {
                Ok(()) | Err(Error::KeeperLost) => {} // the next keeper is sent all of them
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// A waiting ticket would rather have a service started than wait for a reset.
    pub fn hurry(&self, ticket: Ticket) -> Result<()> {
        let mut state = self.enter()?;
        let mut actions = Vec::new();
        state.machine.hurry(ticket, &mut actions);
        self.act(&mut state, &mut actions);
        Ok(())
    }

    /// A ticket gives up; what it was granted meanwhile goes to the next.
    pub fn leave(&self, ticket: Ticket) -> Result<()> {
        let mut state = self.enter()?;
        state.wakers.remove(&ticket);
        let mut actions = Vec::new();
        state.machine.leave(ticket, &mut actions);
        self.act(&mut state, &mut actions);
        Ok(())
    }
}
