//! What happened to the services of a pool, in order, for a caller that asked for it.
//!
//! Nothing is kept unless a caller asked for notes; then the newest `NOTES_MAX` wait to be taken.

use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::limit::NOTES_MAX;
use crate::machine::Key;
use crate::transition::Transition;
use crate::wire::Handle;

/// One thing that happened.
#[derive(Clone, Copy, Debug)]
pub struct Note {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// What happened.
    pub transition: Transition,
    /// To which service, under which lease.
    pub handle: Handle,
    /// What it is interchangeable with.
    pub key: Key,
    /// Its process; 0 where it is not known yet.
    pub pid: i32,
}

/// What happened and was not taken yet, if notes are kept.
#[derive(Debug, Default)]
pub struct Journal(Option<VecDeque<Note>>);

impl Journal {
    /// Keep notes from now on, or no longer.
    pub fn keep(&mut self, wanted: bool) {
        if wanted != self.is_kept() {
            self.0 = wanted.then(VecDeque::new);
        }
    }

    /// Whether notes are kept.
    pub const fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    /// Note what happens to a service now, if notes are kept.
    pub fn note(&mut self, transition: Transition, handle: Handle, key: Key, pid: i32) {
        let Some(notes) = &mut self.0 else {
            return;
        };
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let at_ms = since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(0));
        if notes.len() == NOTES_MAX {
            notes.pop_front();
        }
        notes.push_back(Note {
            at_ms,
            transition,
            handle,
            key,
            pid,
        });
    }

    /// Take the notes.
    pub fn take(&mut self) -> Vec<Note> {
        self.0
            .iter_mut()
            .flat_map(|notes| notes.drain(..))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(journal: &mut Journal, generation: u64) {
        let handle = Handle {
            slot: 0,
            generation,
        };
        journal.note(Transition::Lease, handle, 1, 0);
    }

    #[test]
    fn the_newest_notes_are_kept_and_only_where_a_caller_wants_them() {
        let mut journal = Journal::default();
        note(&mut journal, 1);
        journal.keep(true);
        let count = NOTES_MAX as u64 + 1;
        (0..count).for_each(|generation| note(&mut journal, generation));
        journal.keep(true); // keeps what is there
        let notes = journal.take();
        assert_eq!(notes.len(), NOTES_MAX);
        assert_eq!(notes[0].handle.generation, 1);
        assert!(journal.take().is_empty());
    }
}
