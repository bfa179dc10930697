//! What the client knows of each service, by slot.
//!
//! ```text
//!   free -> begin -> asked -> started -> lent <-> given back -> ended -> free
//! ```
//! Each step is a method of the entry. A lease is looked up by its handle, and found only while its holder has not given
//! it back; its generation is the one that was given to that holder.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use forebay_base::time::timespec;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Pid;

use crate::clock::now_ms;
use crate::death::{Cause, Death};
use crate::error::{Error, Result};
use crate::sys::kill_group;
use crate::wire::Handle;

/// How many bytes a service has written in all, and the newest of them.
pub type Written = (u64, Vec<u8>);

/// Descriptors of a lent service for a holder in another process.
#[derive(Debug)]
pub struct HandedOut {
    /// The holder's end of the service's socket.
    pub socket: OwnedFd,
    /// Process id and pidfd, once the keeper has reported them.
    pub process: Option<(i32, OwnedFd)>,
}

/// The entries of all slots.
#[derive(Debug, Default)]
pub struct Entries {
    by_slot: Vec<Entry>,
    /// Services that ended, or were given up, while they were idle.
    dead_idle: Vec<Handle>,
}

/// A service, by its slot.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // each is a fact of its own, not a mode
pub struct Entry {
    /// Of the lease that is out, or of the last one.
    generation: u64,
    /// A caller holds it, and will ask how it ended.
    lent: bool,
    /// Its process; 0 until the keeper reports it.
    pid: i32,
    pidfd: Option<OwnedFd>,
    /// A duplicate of the client's end of its socket; None until the keeper was asked for it.
    socket: Option<OwnedFd>,
    /// How it ended.
    death: Option<Death>,
    /// What it wrote, once the keeper has answered.
    output: Option<Vec<u8>>,
    /// The newest update, where a caller follows what it writes.
    written: Option<Written>,
    /// It has more private memory than its pool keeps, and is not lent again.
    heavy: bool,
    /// It is not ended for how often it was lent: it holds state.
    stateful: bool,
    /// Its own directory.
    directory: Vec<u8>,
    /// Why it is being ended before it could be lent.
    refused: Option<Vec<u8>>,
    /// It has been noted as one that ended while it was idle.
    dead_idle: bool,
    begun_ms: u64,
    /// When it is too old to be lent again; 0: never.
    expires_ms: u64,
    /// Leases so far.
    uses: u32,
    /// When the lease that is out began.
    leased_ms: u64,
}

impl Entries {
    /// The entry of a slot, made on first use.
    pub fn at(&mut self, slot: u32) -> &mut Entry {
        let index = slot as usize;
        if self.by_slot.len() <= index {
            self.by_slot.resize_with(index + 1, Entry::default);
        }
        &mut self.by_slot[index]
    }

    /// The entry of a slot, if it was ever used.
    pub fn get(&self, slot: u32) -> Option<&Entry> {
        self.by_slot.get(slot as usize)
    }

    /// The entry of a lease, unless that has ended.
    pub fn lease(&mut self, handle: Handle) -> Result<&mut Entry> {
        let Handle { slot, generation } = handle;
        let entry = self.by_slot.get_mut(slot as usize);
        entry
            .filter(|entry| entry.lent && entry.generation == generation)
            .ok_or(Error::Stale { slot, generation })
    }

    /// How many services have more private memory than the pool keeps.
    pub fn heavy(&self) -> usize {
        self.by_slot.iter().filter(|entry| entry.heavy).count()
    }

    /// A service ends; remember it if it is idle.
    pub fn note_dead_idle(&mut self, slot: u32) {
        let entry = self.at(slot);
        if !entry.lent && !entry.dead_idle && entry.socket.is_some() {
            entry.dead_idle = true;
            let handle = entry.handle(slot);
            self.dead_idle.push(handle);
        }
    }

    /// Last leases of services that ended while they were idle, each returned once.
    pub fn take_dead_idle(&mut self) -> Vec<Handle> {
        std::mem::take(&mut self.dead_idle)
    }

    /// Kill the groups of those whose end was not reported, without the keeper.
    pub fn kill_living(&self) {
        for entry in self.by_slot.iter().filter(|entry| !entry.is_dead()) {
            entry.kill();
        }
    }

    /// In a forked child: let go of the descriptors.
    pub fn forget(&mut self) {
        self.by_slot.clear();
    }
}

impl Entry {
    /// Room was granted: a caller starts a service here. Returns the generation of its lease to be.
    pub fn begin(&mut self) -> u64 {
        let now = now_ms();
        *self = Self {
            generation: self.next_generation(),
            lent: true,
            begun_ms: now,
            leased_ms: now,
            ..Self::default()
        };
        self.generation
    }

    /// The keeper was asked for it. `lifetime_ms`: how long it may live; 0: for ever.
    pub fn asked(&mut self, socket: OwnedFd, stateful: bool, lifetime_ms: u64) {
        self.socket = Some(socket);
        self.stateful = stateful;
        if lifetime_ms > 0 {
            self.expires_ms = now_ms() + lifetime_ms;
        }
    }

    /// The keeper has reported its process.
    pub fn started(&mut self, pid: i32, pidfd: Option<OwnedFd>, directory: Vec<u8>) {
        self.pid = pid;
        self.pidfd = pidfd;
        self.directory = directory;
    }

    /// It is being ended before it could be lent; `reason` becomes the text of its death.
    pub fn refuse(&mut self, reason: Vec<u8>) {
        self.refused = Some(reason);
    }

    /// It is ready, and lent to the caller that started it. Returns how long the start took, in milliseconds.
    pub fn lend(&mut self) -> u64 {
        let now = now_ms();
        self.uses += 1;
        self.leased_ms = now;
        now.saturating_sub(self.begun_ms)
    }

    /// A lease of the next generation begins.
    pub fn claim(&mut self, now: u64) {
        self.generation = self.next_generation();
        self.lent = true;
        self.uses += 1;
        self.leased_ms = now;
    }

    /// A further lease of the same generation begins.
    pub fn join(&mut self) {
        self.uses += 1;
    }

    /// Its lease, or its start, is over.
    pub fn give_back(&mut self) {
        self.lent = false;
    }

    /// It has ended.
    pub fn end(&mut self, mut death: Death) {
        if let Some(reason) = self.refused.take() {
            death.text = reason;
        }
        self.death = Some(death);
    }

    /// It is given up. The keeper reports no death of a service that it was never asked for.
    pub fn give_up(&mut self) {
        if self.socket.is_none() {
            self.death.get_or_insert_with(|| Death {
                cause: Cause::NotStarted,
                pid: 0,
                text: b"it was never asked for".to_vec(),
                ..Death::default()
            });
        }
    }

    /// Free its slot, where it is dead and not lent. Returns the generation that the slot keeps.
    pub fn free(&mut self) -> Option<u64> {
        if self.lent || self.death.is_none() {
            return None;
        }
        let generation = self.generation;
        *self = Self {
            generation,
            ..Self::default()
        };
        Some(generation)
    }

    /// It has more private memory than its pool keeps.
    pub fn note_heavy(&mut self) {
        self.heavy = true;
    }

    /// Its handle.
    pub const fn handle(&self, slot: u32) -> Handle {
        Handle {
            slot,
            generation: self.generation,
        }
    }

    /// The generation of its next lease.
    pub const fn next_generation(&self) -> u64 {
        self.generation + 1
    }

    /// Whether a caller holds it.
    pub const fn is_lent(&self) -> bool {
        self.lent
    }

    /// Whether its end was reported.
    pub const fn is_dead(&self) -> bool {
        self.death.is_some()
    }

    /// How it ended.
    pub const fn death(&self) -> Option<&Death> {
        self.death.as_ref()
    }

    /// Its process; 0 until the keeper reports it.
    pub const fn pid(&self) -> i32 {
        self.pid
    }

    /// Process id and pidfd, once the keeper has reported them.
    pub fn process(&self) -> Option<(i32, RawFd)> {
        self.pidfd
            .as_ref()
            .map(|pidfd| (self.pid, pidfd.as_raw_fd()))
    }

    /// The client's end of its socket, once the keeper was asked for it.
    pub const fn socket(&self) -> Option<&OwnedFd> {
        self.socket.as_ref()
    }

    /// Its directory; empty until the keeper has reported it.
    pub fn directory(&self) -> &[u8] {
        &self.directory
    }

    /// For how long the lease that is out has been so, in milliseconds.
    pub const fn held_ms(&self, now: u64) -> u64 {
        now.saturating_sub(self.leased_ms)
    }

    /// Why it is not to be lent again when it comes back, if so.
    pub fn worn(&self, max_uses: u32, now: u64) -> Option<Cause> {
        if max_uses > 0 && !self.stateful && self.uses >= max_uses {
            return Some(Cause::Uses);
        }
        if self.heavy {
            return Some(Cause::Memory);
        }
        (self.expires_ms > 0 && now >= self.expires_ms).then_some(Cause::Lifetime)
    }

    /// One poll finds a process that ended, and a socket that was closed or has unexpected bytes.
    pub fn is_silent(&self, settled: bool) -> bool {
        let (Some(pidfd), Some(socket)) = (&self.pidfd, &self.socket) else {
            return !settled;
        };
        let events = if settled {
            PollFlags::IN | PollFlags::RDHUP
        } else {
            PollFlags::RDHUP
        };
        let mut set = [
            PollFd::new(pidfd, PollFlags::IN),
            PollFd::new(socket, events),
        ];
        matches!(poll(&mut set, Some(&timespec(Duration::ZERO))), Ok(0))
    }

    /// The keeper is asked for what it wrote.
    pub fn forget_output(&mut self) {
        self.output = None;
    }

    /// The keeper has sent what it wrote.
    pub fn note_output(&mut self, text: Vec<u8>) {
        self.output = Some(text);
    }

    /// What it wrote, once.
    pub const fn take_output(&mut self) -> Option<Vec<u8>> {
        self.output.take()
    }

    /// The keeper has sent what it has written since.
    pub fn note_written(&mut self, written: Written) {
        self.written = Some(written);
    }

    /// Whether an update with more than `beyond` bytes has come. One with no more is dropped: its follower has them.
    pub fn has_written(&mut self, beyond: u64) -> bool {
        self.written.take_if(|(total, _)| *total <= beyond);
        self.written.is_some()
    }

    /// What it has written, where that is more than so many bytes in all.
    pub fn written(&self, beyond: u64) -> Option<Written> {
        let written = self.written.as_ref();
        written.filter(|(total, _)| *total > beyond).cloned()
    }

    /// What another process needs to use it.
    pub fn hand_out(&self) -> Result<HandedOut> {
        let duplicate = |descriptor: &OwnedFd| {
            descriptor.try_clone().map_err(|source| Error::System {
                what: "dup for another process".into(),
                source,
            })
        };
        let socket = self.socket.as_ref().ok_or(Error::KeeperLost)?;
        let pidfd = self.pidfd.as_ref().map(duplicate).transpose()?;
        Ok(HandedOut {
            socket: duplicate(socket)?,
            process: pidfd.map(|pidfd| (self.pid, pidfd)),
        })
    }

    /// Kill its group without the keeper.
    pub fn kill(&self) {
        if let (Some(pidfd), Some(pid)) = (&self.pidfd, Pid::from_raw(self.pid)) {
            kill_group(pidfd, pid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(entries: &mut Entries) -> Handle {
        entries.at(3).begin();
        entries.at(3).handle(3)
    }

    #[test]
    fn a_lease_is_found_until_it_is_given_back_and_not_by_an_earlier_handle() {
        let mut entries = Entries::default();
        let handle = begun(&mut entries);
        entries.lease(handle).expect("its own").give_back();
        assert!(entries.lease(handle).is_err());
        entries.at(3).claim(now_ms());
        assert!(entries.lease(handle).is_err());
        let next = entries.at(3).handle(3);
        assert_eq!(next.generation, handle.generation + 1);
        assert!(entries.lease(next).is_ok());
    }

    #[test]
    fn a_slot_is_free_once_its_service_is_dead_and_not_lent() {
        let mut entries = Entries::default();
        let handle = begun(&mut entries);
        assert_eq!(entries.at(3).free(), None);
        entries.at(3).end(Death::default());
        assert_eq!(entries.at(3).free(), None, "its holder asks how it ended");
        entries.at(3).give_back();
        assert_eq!(entries.at(3).free(), Some(handle.generation));
        assert_eq!(entries.at(3).free(), None);
    }

    #[test]
    fn a_service_that_was_never_asked_for_is_dead_when_it_is_given_up() {
        let mut entries = Entries::default();
        begun(&mut entries);
        entries.at(3).give_up();
        let death = entries.at(3).death().expect("no one else reports it");
        assert_eq!(death.cause, Cause::NotStarted);
        entries.at(3).give_back();
        entries.note_dead_idle(3);
        assert_eq!(entries.take_dead_idle(), [], "it was never idle");
    }
}
