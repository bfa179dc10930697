//! Who waits for what comes from one source, such as a socket: the one reader, and the threads that follow it.
//!
//! Of the blocked threads one reads for all; an event loop that drives the source does so before them. Each of the others
//! sleeps on an eventfd of its own ([`Wakeup::of_thread`](crate::wakeup::Wakeup::of_thread)), which an answer to it raises:
//! a condition variable would do but for signals, since Python's main thread must return from its sleep to run handlers.
//!
//! A follower is promoted, not made the reader: it wakes, takes the lock and competes like any thread, so that no thread is
//! named the reader that has left by a signal or its deadline. Every wait ends with [`Waiters::end`], which promotes: one
//! that did not would leave followers asleep with nobody reading. The test `loom` checks every interleaving of two threads
//! and a source.
//!
//! Nothing here sleeps or locks; the owner holds its lock around each call, and none while it sleeps.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::wakeup::Wakeup;

/// Who reads the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reader {
    #[default]
    None,
    /// A blocked thread, on behalf of all blocked threads; the number of its turn.
    Thread(u64),
    /// An event loop or a reader thread that steps the source.
    Driver,
}

/// The reader, and those that it wakes.
#[derive(Debug, Default)]
pub struct Waiters {
    reader: Reader,
    /// The eventfds of blocked threads that do not read, by the number of what each waits for.
    followers: BTreeMap<u64, Arc<Wakeup>>,
    /// The eventfd that the reading thread sleeps on besides the source, if it waits for an answer.
    leader: Option<Arc<Wakeup>>,
    /// Turns of reading threads so far. The number tells a thread whether it is still the reader.
    leads: u64,
}

impl Waiters {
    /// Who reads.
    #[inline]
    pub fn reader(&self) -> Reader {
        self.reader
    }

    /// A driver reads from now on; false while another one does.
    pub fn attach(&mut self) -> bool {
        if self.reader == Reader::Driver {
            return false;
        }
        self.reader = Reader::Driver;
        // The reading thread sleeps on a source that it will find empty from now on.
        if let Some(wake) = self.leader.take() {
            wake.raise();
        }
        true
    }

    /// The driver stops reading.
    pub fn detach(&mut self) {
        if self.reader == Reader::Driver {
            self.reader = Reader::None;
            self.promote();
        }
    }

    /// A thread begins to sleep, to read if `leads`; what marks it as the reader then. `waits_for` is the number of what it
    /// waits for, with its wakeup.
    pub fn enter(&mut self, leads: bool, waits_for: Option<(u64, &Arc<Wakeup>)>) -> Option<Reader> {
        if let Some((id, wake)) = waits_for {
            if leads {
                self.leader = Some(wake.clone());
            } else {
                self.followers.insert(id, wake.clone());
            }
        }
        self.leads += u64::from(leads);
        let reading = Reader::Thread(self.leads);
        if leads {
            self.reader = reading;
        }
        leads.then_some(reading)
    }

    /// A thread that slept as `lead` stops being the reader; false if it no longer was.
    ///
    /// Compared by number: a driver may have attached and detached during the sleep, and another thread may read now.
    pub fn leave(&mut self, lead: Option<Reader>) -> bool {
        let leads = lead.is_some_and(|reading| self.reader == reading);
        if leads {
            self.reader = Reader::None;
            self.leader = None;
        }
        leads
    }

    /// A wait is over, for what has this number if for anything: another thread becomes the reader where there is none.
    #[inline]
    pub fn end(&mut self, id: Option<u64>) {
        if let Some(id) = id {
            self.forget(id);
        }
        self.promote();
    }

    /// Wake the next blocked thread to read, if there is no reader.
    #[inline]
    fn promote(&mut self) {
        if self.reader == Reader::None
            && let Some(wake) = self.followers.values().next()
        {
            wake.raise();
        }
    }

    /// Wake the thread that follows for this.
    #[inline]
    pub fn wake(&mut self, id: u64) {
        if let Some(wake) = self.followers.remove(&id) {
            wake.raise();
        }
    }

    /// Wake the thread that follows for this, and the one that reads.
    pub fn wake_with_leader(&mut self, id: u64) {
        self.wake(id);
        if let Some(wake) = &self.leader {
            wake.raise();
        }
    }

    /// The thread that follows for this needs no waking.
    #[inline]
    pub fn forget(&mut self, id: u64) {
        self.followers.remove(&id);
    }

    /// Whether a thread follows for this.
    pub fn follows(&self, id: u64) -> bool {
        self.followers.contains_key(&id)
    }

    /// Wake every thread: nothing more comes.
    pub fn wake_all(&mut self) {
        for wake in std::mem::take(&mut self.followers).values() {
            wake.raise();
        }
        if let Some(wake) = &self.leader {
            wake.raise();
        }
    }
}
