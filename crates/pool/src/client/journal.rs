//! What happened to the services of a pool, in order, for a caller that asked for it.
//!
//! Nothing is kept unless a caller asked for notes; then the newest `NOTES_MAX` wait to be taken.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use forebay_base::Queue;

use super::{Client, State, Wake};
use crate::death::Cause;
use crate::error::Result;
use crate::limit::NOTES_MAX;
use crate::machine::Key;
use crate::wire::Handle;

/// What happened to a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// A start began.
    Start,
    /// It was lent.
    Lease,
    /// It came back and is idle.
    Release,
    /// It came back and is being reset.
    Reset,
    /// It is being ended by us.
    End(Cause),
    /// It ended.
    Death(Cause),
}

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

impl Transition {
    /// The word that users see, and the cause of an end.
    pub const fn words(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Start => ("start", None),
            Self::Lease => ("lease", None),
            Self::Release => ("release", None),
            Self::Reset => ("reset", None),
            Self::End(cause) => ("end", Some(cause.name())),
            Self::Death(cause) => ("death", Some(cause.name())),
        }
    }
}

impl State {
    /// Note what happened to a service, if notes are kept.
    pub fn note(&mut self, slot: u32, transition: Transition) {
        if self.journal.is_none() {
            return;
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let at_ms = since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(0));
        let key = self.machine.key_of(slot);
        let entry = self.entry_of(slot);
        let note = Note {
            at_ms,
            transition,
            handle: entry.handle(slot),
            key,
            pid: entry.pid,
        };
        if let Some(journal) = &mut self.journal {
            if journal.len() == NOTES_MAX {
                journal.pop_front();
            }
            journal.push_back(note);
        }
        self.notify_watchers();
    }
}

impl Client {
    /// Keep notes from now on, or no longer.
    pub fn keep_notes(&self, wanted: bool) -> Result<()> {
        let mut state = self.enter()?;
        if wanted != state.journal.is_some() {
            state.journal = wanted.then(VecDeque::new);
        }
        Ok(())
    }

    /// Take the notes. Where there are none, `WATCH` is pushed to `queue` when there may be.
    pub fn take_notes(&self, queue: Option<&Arc<Queue<Wake>>>) -> Result<Vec<Note>> {
        let mut state = self.enter()?;
        self.drive_with(&mut state)?;
        let notes: Vec<Note> = state.journal.iter_mut().flat_map(|j| j.drain(..)).collect();
        if notes.is_empty() {
            state.watchers.extend(queue.cloned());
        }
        Ok(notes)
    }
}
