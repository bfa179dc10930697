//! What an event loop waits on: an epoll set whose events name a slot and a generation.
//!
//! An event that names a descriptor by its number may arrive after another file got the number. So
//! the kernel is given the token of a slot ([`table`]); the token of a removed entry resolves to
//! nothing.
//!
//! Two more traps of epoll(7) are handled here:
//! - **Fork.** The child shares the set, and what it removes is removed for the parent. A selector
//!   remembers its process: in another one it changes only its own table, until it is asked to wait
//!   or to watch something; then it makes a set of its own.
//! - **A file that outlives its descriptor** (a duplicate in a child, say) keeps its registration,
//!   which no number names any more. It would wake the loop for ever. Such a token resolves to
//!   nothing, and [`Selector::rebuild`] moves the living entries to a fresh set.

mod interest;
mod table;
mod timeout;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use forebay_base::process;
use forebay_base::slots::Key;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData};
use rustix::io::Result as SystemResult;

pub use rustix::event::epoll::Event;
pub use rustix::io::Errno;

pub use interest::Interest;
pub use table::{Entry, WatchKind};
pub use timeout::Timeout;

pub use crate::sys::events::Events;

use crate::sys::descriptor;
use table::WatchTable;

/// Why a descriptor is not watched as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchError {
    /// It is watched already.
    Taken,
    /// It is not watched.
    Missing,
    /// The kernel says no.
    System(Errno),
}

impl From<Errno> for WatchError {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

/// The kernel's side of a selector: waits are made on a clone of it, without holding the selector.
#[derive(Clone, Debug)]
pub struct Set(Arc<OwnedFd>);

impl Set {
    fn new() -> SystemResult<Self> {
        epoll::create(CreateFlags::CLOEXEC).map(|set| Self(Arc::new(set)))
    }

    /// Replace `events` by what is ready, as far as there is room; waits as `timeout` says.
    ///
    /// # Errors
    /// `INTR` when a signal came first; others when the set is unusable.
    pub fn wait(&self, events: &mut Events, timeout: Timeout) -> SystemResult<usize> {
        let time = timeout.remaining();
        epoll::wait(&*self.0, spare_capacity(events.room()), time.as_ref())
    }

    fn add(&self, fd: BorrowedFd<'_>, token: Key, interest: Interest) -> SystemResult<()> {
        epoll::add(
            &*self.0,
            fd,
            EventData::new_u64(token.to_bits()),
            interest.flags(),
        )
    }
}

/// Descriptors and what to do when they are ready.
#[derive(Debug)]
pub struct Selector<T> {
    set: Set,
    process: u64,
    table: WatchTable<T>,
}

impl<T> Selector<T> {
    /// Make one that watches nothing.
    ///
    /// # Errors
    /// Those of `epoll_create1`: no descriptor or no memory left.
    pub fn new() -> SystemResult<Self> {
        Ok(Self {
            set: Set::new()?,
            process: process::epoch(),
            table: WatchTable::new(),
        })
    }

    /// Watch `fd`; returns what was stale under its number.
    ///
    /// An attached entry whose file was closed unseen gives way. A registered one does not: its
    /// owner looks it up by number and expects to find it.
    ///
    /// # Errors
    /// `Taken`, or what the kernel says (`BADF`, `PERM` for regular files, `NOSPC`).
    pub fn insert(
        &mut self,
        fd: RawFd,
        kind: WatchKind,
        interest: Interest,
        payload: T,
    ) -> Result<Option<T>, WatchError> {
        self.own()?;
        let present = self.table.get(fd).map(|entry| entry.kind);
        if present == Some(WatchKind::Registered) {
            return Err(WatchError::Taken);
        }
        let borrowed = descriptor::borrow(fd).ok_or(Errno::BADF)?;
        if present.is_some() && self.is_watched(borrowed) {
            return Err(WatchError::Taken);
        }
        let stale = self.table.remove(fd).map(|entry| entry.payload);
        let token = self.table.insert(fd, kind, interest, payload);
        if interest != Interest::NONE
            && let Err(errno) = self.set.add(borrowed, token, interest)
        {
            self.table.remove(fd);
            return Err(errno.into());
        }
        Ok(stale)
    }

    /// Watch `fd` for something else; without interest it stays attached, and silent.
    ///
    /// # Errors
    /// `Missing`, or what the kernel says (`NOENT` when its file was closed unseen).
    pub fn change(&mut self, fd: RawFd, interest: Interest) -> Result<(), WatchError> {
        self.own()?;
        let (token, entry) = self.table.find_mut(fd).ok_or(WatchError::Missing)?;
        let before = std::mem::replace(&mut entry.interest, interest);
        if before == interest {
            return Ok(());
        }
        let borrowed = descriptor::borrow(fd).ok_or(Errno::BADF)?;
        let data = EventData::new_u64(token.to_bits());
        let set = &*self.set.0;
        let done = match (before, interest) {
            (_, Interest::NONE) => epoll::delete(set, borrowed),
            (Interest::NONE, _) => epoll::add(set, borrowed, data, interest.flags()),
            _ => epoll::modify(set, borrowed, data, interest.flags()),
        };
        if done.is_err() {
            entry.interest = before;
        }
        done.map_err(WatchError::from)
    }

    /// Give an entry another payload; returns the one before, or this one if there is no entry.
    pub fn replace(&mut self, fd: RawFd, payload: T) -> T {
        match self.table.find_mut(fd) {
            Some((_, entry)) => std::mem::replace(&mut entry.payload, payload),
            None => payload,
        }
    }

    /// Stop watching `fd`; a closed one is no error. Works in a forked child for its table alone.
    pub fn remove(&mut self, fd: RawFd) -> Option<Entry<T>> {
        let entry = self.table.remove(fd)?;
        if entry.interest != Interest::NONE
            && self.is_own()
            && let Some(borrowed) = descriptor::borrow(fd)
        {
            // A file that was closed unseen is not there any more, or is a ghost: see `rebuild`.
            let _ = epoll::delete(&*self.set.0, borrowed);
        }
        Some(entry)
    }

    /// The entry of `fd`.
    pub fn get(&self, fd: RawFd) -> Option<&Entry<T>> {
        self.table.get(fd)
    }

    /// The entry that an event is about; `None` once it was removed.
    pub fn resolve(&self, event: &Event) -> Option<(&Entry<T>, Interest)> {
        let entry = self.table.resolve(Key::from_bits(event.data.u64()))?;
        Some((entry, entry.interest.ready(event.flags)))
    }

    /// All entries, in no order.
    pub fn entries(&self) -> impl Iterator<Item = &Entry<T>> {
        self.table.entries()
    }

    /// The set to wait on, and how many events one wait can bring.
    ///
    /// # Errors
    /// In a forked child, those of making a set of its own.
    pub fn waiting(&mut self) -> SystemResult<(Set, usize)> {
        self.own()?;
        Ok((self.set.clone(), self.table.len()))
    }

    /// The descriptor of the set.
    pub fn descriptor(&self) -> RawFd {
        self.set.0.as_raw_fd()
    }

    /// Leave registrations behind that no descriptor names any more: move to a fresh set.
    ///
    /// # Errors
    /// Those of making one; the old set stays in use.
    pub fn rebuild(&mut self) -> SystemResult<()> {
        let fresh = Set::new()?;
        for (token, entry) in self.table.tokens() {
            let inherited = self.process == process::epoch() || entry.kind == WatchKind::Registered;
            if entry.interest == Interest::NONE || !inherited {
                continue;
            }
            if let Some(fd) = descriptor::borrow(entry.descriptor) {
                // Closed unseen: the kernel had forgotten it too.
                let _ = fresh.add(fd, token, entry.interest);
            }
        }
        self.set = fresh;
        Ok(())
    }

    /// Whether the kernel has this file in the set under this number.
    fn is_watched(&self, fd: BorrowedFd<'_>) -> bool {
        let Some((token, entry)) = self.table.find(fd.as_fd().as_raw_fd()) else {
            return false;
        };
        if entry.interest == Interest::NONE {
            return true; // the kernel knows nothing of it, so the table decides
        }
        let data = EventData::new_u64(token.to_bits());
        epoll::modify(&*self.set.0, fd, data, entry.interest.flags()).is_ok()
    }

    fn is_own(&self) -> bool {
        self.process == process::epoch()
    }

    /// In a forked child: a set of its own. What was attached stays the parent's and is silent.
    fn own(&mut self) -> SystemResult<()> {
        if self.is_own() {
            return Ok(());
        }
        self.rebuild()?;
        for entry in self.table.entries_mut() {
            if entry.kind == WatchKind::Attached {
                entry.interest = Interest::NONE;
            }
        }
        self.process = process::epoch();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
