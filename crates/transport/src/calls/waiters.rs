//! Who waits on a connection: the one reader, and the threads that sleep until a frame concerns them.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use forebay_base::wakeup::Wakeup;

use crate::drive::look::Look;

/// Who reads the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reader {
    #[default]
    None,
    /// A blocked thread, on behalf of all blocked threads; the number of its turn.
    Thread(u64),
    /// An event loop or a reader thread that steps the connection.
    Driver,
}

/// The reader, and those that it wakes.
#[derive(Debug, Default)]
pub struct Waiters {
    reader: Reader,
    /// The eventfds of blocked threads that do not read, by the call that each waits for.
    followers: BTreeMap<u64, Arc<Wakeup>>,
    /// The eventfd that the reading thread sleeps on besides the socket, if it waits for a reply.
    leader: Option<Arc<Wakeup>>,
    /// Turns of reading threads so far. The number tells a thread whether it is still the reader.
    leads: u64,
    /// Whether a blocked thread spins before it sleeps.
    look: Look,
    /// The peer's process, if it is known: every sleep watches it.
    process: Option<Arc<OwnedFd>>,
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
        // The reading thread sleeps on a socket that it will find empty from now on.
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

    /// A thread begins to sleep, to read if `leads`; what marks it as the reader then. `call` has the wakeup of the call
    /// that it waits for.
    pub fn enter(&mut self, leads: bool, call: Option<(u64, &Arc<Wakeup>)>) -> Option<Reader> {
        if let Some((id, wake)) = call {
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

    /// Wake the next blocked thread to read, if there is no reader.
    #[inline]
    pub fn promote(&mut self) {
        if self.reader == Reader::None
            && let Some(wake) = self.followers.values().next()
        {
            wake.raise();
        }
    }

    /// Wake the thread that follows for this call.
    #[inline]
    pub fn wake(&mut self, id: u64) {
        if let Some(wake) = self.followers.remove(&id) {
            wake.raise();
        }
    }

    /// Wake the thread that follows for this call, and the one that reads.
    pub fn wake_with_leader(&mut self, id: u64) {
        self.wake(id);
        if let Some(wake) = &self.leader {
            wake.raise();
        }
    }

    /// The thread that follows for this call needs no waking.
    #[inline]
    pub fn forget(&mut self, id: u64) {
        self.followers.remove(&id);
    }

    /// Whether a thread follows for this call.
    #[cfg(test)]
    pub fn follows(&self, id: u64) -> bool {
        self.followers.contains_key(&id)
    }

    /// Wake every thread that follows.
    pub fn wake_all(&mut self) {
        for wake in std::mem::take(&mut self.followers).values() {
            wake.raise();
        }
    }

    /// Whether a blocked thread spins before it sleeps.
    #[inline]
    pub fn look(&self) -> Look {
        self.look
    }

    /// What the reading thread has learned of spinning.
    #[inline]
    pub fn learn(&mut self, look: Look) {
        self.look = look;
    }

    /// Sleep without spinning from now on.
    pub fn disable_spin(&mut self) {
        self.look.turn_off();
    }

    /// The peer's process.
    #[inline]
    pub fn process(&self) -> Option<&Arc<OwnedFd>> {
        self.process.as_ref()
    }

    /// From now on watch the peer's process, or none.
    pub fn watch(&mut self, process: Option<OwnedFd>) {
        self.process = process.map(Arc::new);
    }
}
