//! How a region gets a further chunk, or a further registrar: one thread at a time, which has the *turn*.
//!
//! The turn is a note under the region's lock, not a lock: its holder maps memory and calls registrars with nothing held,
//! so that blocks of the chunks that are there come and go meanwhile.
//! It makes three things true.
//!
//! - A registrar is notified of each chunk once: none is added to the list while a chunk is announced, and vice versa.
//! - No block of a chunk is handed out before all registrars were notified, because the allocator gets it only then.
//! - What the limit left when the turn began is there at its end: only its holder takes room.
//!
//! Chunks that are given up for room are unmapped before the new one is mapped:
//! a limit of the system on locked memory, such as the limit of the arena, counts only one of them.
use std::sync::{Arc, MutexGuard};
use std::thread;

use crate::block::Block;
use crate::chunk::Fresh;
use crate::config::REGISTRARS_MAX;
use crate::error::Error;
use crate::region::Inner;
use crate::registrar::Registrar;
use crate::state::State;

/// Ends the turn when it is dropped, by a panic too.
struct Turn<'a>(&'a Inner);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // Poisoned or forked: all calls refuse.
        if let Ok(mut state) = self.0.lock() {
            state.turn = None;
        }
        self.0.turns.notify_all();
    }
}

/// Whether a turn is for an open region alone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Open,
    Any,
}

impl Inner {
    /// Map a chunk with room for a block of `length` bytes, unless another thread has made room, and make the block.
    pub(crate) fn grow(&self, length: u64) -> Result<Arc<Block>, Error> {
        let (_turn, mut state) = self.take_turn(Of::Open)?;
        if let Some(block) = state.allocate(&self.identity, length)? {
            return Ok(block);
        }
        // Before memory is taken from the machine, or refused, the shelves of all threads are collected.
        state.collect();
        if let Some(block) = state.allocate(&self.identity, length)? {
            return Ok(block);
        }
        let (room, gone) = state.make_room(&self.identity, length);
        let registrars = state.registrars.clone();
        let chunk = state.next_chunk();
        drop(state);
        drop(gone);
        let fresh = Fresh::new(self.identity.config(), self.identity.id(), chunk, room?)?;
        for registrar in registrars.iter() {
            fresh.mapping.announce(registrar);
        }
        // Closed meanwhile: the chunk goes, and the registrars are notified.
        let mut state = self.lock_open()?;
        Ok(state.settle(&self.identity, fresh, length))
    }

    pub(crate) fn attach(&self, registrar: Arc<dyn Registrar>) -> Result<(), Error> {
        let (_turn, mut state) = self.take_turn(Of::Open)?;
        if state.registrars.contains(&registrar) {
            return Ok(());
        }
        if state.registrars.len() == REGISTRARS_MAX {
            return Err(Error::Registrars {
                arena: self.identity.name().to_owned(),
                limit: REGISTRARS_MAX,
            });
        }
        let attached = Arc::clone(&registrar);
        state.registrars.add(registrar);
        let mappings = state.mappings();
        drop(state);
        for mapping in mappings {
            mapping.announce(&attached);
        }
        Ok(())
    }

    pub(crate) fn detach(&self, registrar: &Arc<dyn Registrar>) -> Result<(), Error> {
        let (_turn, mut state) = self.take_turn(Of::Any)?;
        let gone = state.registrars.remove(registrar);
        let mappings = state.mappings();
        drop(state);
        for mapping in mappings {
            mapping.withdraw(registrar);
        }
        drop(gone);
        Ok(())
    }

    /// Wait until no other thread has the turn, and take it. The guard goes before the turn does.
    fn take_turn(&self, of: Of) -> Result<(Turn<'_>, MutexGuard<'_, State>), Error> {
        let me = thread::current().id();
        let mut state = self.lock()?;
        loop {
            if of == Of::Open {
                self.check_open(&state)?;
            }
            match state.turn {
                None => break,
                Some(holder) if holder == me => {
                    return Err(Error::Nested {
                        arena: self.identity.name().to_owned(),
                    });
                }
                Some(_) => state = self.turns.wait(state).map_err(|_| self.poisoned())?,
            }
        }
        state.turn = Some(me);
        Ok((Turn(self), state))
    }
}
