//! What the holder of a lease asks about its service while it runs.

use std::sync::Arc;

use forebay_base::Queue;

use super::{Client, State, Wake};
use crate::death::Cause;
use crate::error::Result;
use crate::wire::{Handle, KeeperRequest};

/// How many bytes a service has written in all, and the newest of them.
pub type Written = (u64, Vec<u8>);

impl Client {
    /// The directory of a lent service; empty until the keeper has reported it.
    pub fn directory(&self, handle: Handle) -> Result<Vec<u8>> {
        let mut state = self.enter()?;
        Ok(state.entry(handle)?.directory.clone())
    }

    /// How many services have more private memory than the pool keeps, and go when they come back.
    pub fn heavy(&self) -> Result<usize> {
        let mut state = self.enter()?;
        self.drive_with(&mut state)?;
        Ok(state.entries.iter().filter(|entry| entry.heavy).count())
    }

    /// Have a lent service ended while its holder keeps the lease: its calls end with its death.
    pub fn end(&self, handle: Handle, cause: Cause) -> Result<()> {
        let mut state = self.enter()?;
        state.entry(handle)?;
        state.link.send(&KeeperRequest::Kill { handle, cause }, &[])
    }

    /// Ask the keeper for what a lent service writes beyond so many bytes; the answer comes to `written`.
    pub fn follow(&self, handle: Handle, beyond: u64) -> Result<()> {
        let mut state = self.enter()?;
        let entry = state.entry(handle)?;
        entry.written.take_if(|(total, _)| *total <= beyond);
        if entry.written.is_some() {
            return Ok(()); // another follower has received it
        }
        state
            .link
            .send(&KeeperRequest::Follow { handle, beyond }, &[])
    }

    /// What a lent service has written, once it is more than so many bytes in all; it stays there for others who
    /// follow the same service. Until then `WATCH` is pushed to `queue` when there may be more.
    pub fn written(
        &self,
        handle: Handle,
        beyond: u64,
        queue: Option<&Arc<Queue<Wake>>>,
    ) -> Result<Option<Written>> {
        let mut state = self.enter()?;
        self.drive_with(&mut state)?;
        let written = state.entry(handle)?.written.clone();
        let written = written.filter(|(total, _)| *total > beyond);
        if written.is_none() {
            state.watch(queue);
        }
        Ok(written)
    }
}

impl State {
    /// Push to a queue when something happens. Queues without a waiter are removed, so that a caller that asks again and
    /// again leaves nothing behind.
    pub fn watch(&mut self, queue: Option<&Arc<Queue<Wake>>>) {
        let Some(queue) = queue else {
            return;
        };
        self.watchers
            .retain(|known| Arc::strong_count(known) > 1 && !Arc::ptr_eq(known, queue));
        self.watchers.push(Arc::clone(queue));
    }
}
