//! What happened to the services, for the programs that read it.
//!
//! Invariants: events are numbered from 0 and kept in order, the newest `NOTES_MAX`; notes are taken from the pool only
//! while a program reads; a reader that waits has read everything.

use std::collections::VecDeque;
use std::sync::Arc;

use forebay_base::Queue;

use super::BorrowerId;
use super::borrowers::Borrowers;
use super::kinds::Kinds;
use crate::client::{Client, Note, Wake};
use crate::error::Result;
use crate::limit::{NOTES_MAX, READERS_MAX, ROWS_MAX};
use crate::wire::shared::{QuestionId, Reply, ServiceEvent};

/// A question that waits for the next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventReader {
    pub program: BorrowerId,
    pub ticket: QuestionId,
    /// The number of the event that it wants.
    pub from: u64,
}

/// The newest events, and who reads them.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    kept: VecDeque<Note>,
    /// The number of the event after the newest.
    next: u64,
    /// Programs that have asked for events.
    subscribers: Vec<BorrowerId>,
    waiting: Vec<EventReader>,
}

impl EventLog {
    /// A program reads from now on: its question waits; false where too many of it wait.
    pub fn ask(
        &mut self,
        pool: &Client,
        queue: &Arc<Queue<Wake>>,
        reader: EventReader,
    ) -> Result<bool> {
        let waiting = self
            .waiting
            .iter()
            .filter(|other| other.program == reader.program);
        if waiting.count() >= READERS_MAX {
            return Ok(false);
        }
        if self.subscribers.is_empty() {
            pool.keep_notes(true)?;
        }
        if !self.subscribers.contains(&reader.program) {
            self.subscribers.push(reader.program);
        }
        self.take(pool, queue)?; // what has happened before this question has its number
        self.waiting.push(reader);
        Ok(true)
    }

    /// Take what has happened, and answer the readers for whom there is something.
    pub fn tell(
        &mut self,
        pool: &Client,
        queue: &Arc<Queue<Wake>>,
        kinds: &Kinds,
        borrowers: &mut Borrowers,
    ) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.take(pool, queue)?;
        for reader in std::mem::take(&mut self.waiting) {
            match self.read(kinds, reader) {
                Some(reply) => borrowers.reply(reader.program, &reply, &[]),
                None => self.waiting.push(reader),
            }
        }
        Ok(())
    }

    /// A question was given up.
    pub fn leave(&mut self, program: BorrowerId, ticket: QuestionId) {
        self.waiting
            .retain(|reader| (reader.program, reader.ticket) != (program, ticket));
    }

    /// A program reads no longer; with the last one that reads no notes are kept.
    pub fn end(&mut self, pool: &Client, program: BorrowerId) -> Result<()> {
        self.waiting.retain(|reader| reader.program != program);
        let before = self.subscribers.len();
        self.subscribers.retain(|&subscriber| subscriber != program);
        if before > 0 && self.subscribers.is_empty() {
            pool.keep_notes(false)?;
        }
        Ok(())
    }

    /// Whether a reader waits.
    pub fn is_awaited(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn take(&mut self, pool: &Client, queue: &Arc<Queue<Wake>>) -> Result<()> {
        loop {
            let notes = pool.take_notes(Some(queue))?;
            if notes.is_empty() {
                return Ok(());
            }
            self.extend(notes);
        }
    }

    fn extend(&mut self, notes: Vec<Note>) {
        self.next += notes.len() as u64;
        self.kept.extend(notes);
        let excess = self.kept.len().saturating_sub(NOTES_MAX);
        self.kept.drain(..excess);
    }

    /// The answer to a reader: at most `ROWS_MAX` events, the oldest ones where those that it wants are not kept any more;
    /// none where its number was not given out yet. `None` where it waits.
    fn read(&self, kinds: &Kinds, reader: EventReader) -> Option<Reply> {
        if reader.from == self.next {
            return None;
        }
        let oldest = self.next - self.kept.len() as u64;
        let skipped = reader.from.min(self.next).saturating_sub(oldest);
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        let event = |note: &Note| ServiceEvent {
            at_ms: note.at_ms,
            transition: note.transition,
            name: kinds.get(note.key).name.clone(),
            pid: note.pid,
            handle: note.handle,
        };
        let events: Vec<_> = self
            .kept
            .iter()
            .skip(skipped)
            .take(ROWS_MAX)
            .map(event)
            .collect();
        Some(Reply::Events {
            ticket: reader.ticket,
            next: oldest + (skipped + events.len()) as u64,
            events,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transition::Transition;
    use crate::wire::Handle;
    use crate::wire::shared::Kind;

    fn notes(count: u64) -> Vec<Note> {
        let note = |at_ms| Note {
            at_ms,
            transition: Transition::Lease,
            handle: Handle {
                slot: 0,
                generation: 0,
            },
            key: 0,
            pid: 0,
        };
        (0..count).map(note).collect()
    }

    fn read(events: &EventLog, from: u64) -> Option<(Vec<u64>, u64)> {
        let mut kinds = Kinds::default();
        kinds
            .intern(1, Kind::default(), |_| false)
            .expect("the first");
        let reader = EventReader {
            program: 1,
            ticket: 5,
            from,
        };
        let Reply::Events { next, events, .. } = events.read(&kinds, reader)? else {
            unreachable!("it answers with events")
        };
        Some((events.iter().map(|event| event.at_ms).collect(), next))
    }

    #[test]
    fn a_reader_gets_each_event_once_and_then_waits() {
        let mut events = EventLog::default();
        assert_eq!(read(&events, u64::MAX), Some((vec![], 0)));
        assert_eq!(read(&events, 0), None);
        events.extend(notes(3));
        assert_eq!(read(&events, 0), Some((vec![0, 1, 2], 3)));
        assert_eq!(read(&events, 2), Some((vec![2], 3)));
        assert_eq!(read(&events, 3), None);
        assert_eq!(read(&events, u64::MAX), Some((vec![], 3)));
    }

    #[test]
    fn who_reads_late_gets_the_oldest_that_are_kept_in_pieces() {
        let mut events = EventLog::default();
        events.extend(notes(10));
        events.extend(notes(NOTES_MAX as u64));
        let (mut got, mut from) = (Vec::new(), 0);
        while let Some((some, next)) = read(&events, from) {
            assert!(!some.is_empty() && some.len() <= ROWS_MAX);
            got.extend(some);
            from = next;
        }
        assert_eq!(got, (0..NOTES_MAX as u64).collect::<Vec<_>>());
        assert_eq!(from, 10 + NOTES_MAX as u64);
    }
}
