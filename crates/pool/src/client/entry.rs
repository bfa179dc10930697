//! What the client knows of one service.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use forebay_base::time::timespec;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Pid;

use super::drive::notify;
use super::{Answer, State, Transition, WATCH};
use crate::clock::now_ms;
use crate::death::{Cause, Death};
use crate::error::{Error, Result};
use crate::machine::Key;
use crate::sys::kill_group;
use crate::wire::Handle;
use crate::word::{Stamp, State as Word};

/// A service, by its slot.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // each is a fact of its own, not a mode
pub struct Entry {
    /// Of the lease that is out, or of the last one.
    pub generation: u64,
    /// A caller holds it, and will ask how it ended.
    pub lent: bool,
    /// Its process; 0 until the keeper reports it.
    pub pid: i32,
    /// A duplicate of the client's end of its socket.
    pub socket: Option<OwnedFd>,
    /// How it ended.
    pub death: Option<Death>,
    /// What it wrote, once the keeper has answered.
    pub output: Option<Vec<u8>>,
    /// It has more private memory than its pool keeps, and is not lent again.
    pub heavy: bool,
    /// It is not ended for how often it was lent: it holds state.
    pub stateful: bool,
    /// Its own directory.
    pub directory: Vec<u8>,
    /// The newest that it wrote, and how many bytes there were in all; where a caller follows it.
    pub written: Option<(u64, Vec<u8>)>,
    /// Why it is being ended before it could be lent.
    pub refused: Option<Vec<u8>>,
    dead_idle: bool,
    pub pidfd: Option<OwnedFd>,
    begun_ms: u64,
    /// When it is too old to be lent again; 0: never.
    pub expires_ms: u64,
    /// Leases so far.
    uses: u32,
    /// When the lease that is out began.
    pub leased_ms: u64,
}

impl Entry {
    /// Its handle.
    pub const fn handle(&self, slot: u32) -> Handle {
        Handle {
            slot,
            generation: self.generation,
        }
    }

    /// Process id and pidfd, once the keeper has reported them.
    pub fn process(&self) -> Option<(i32, RawFd)> {
        self.pidfd
            .as_ref()
            .map(|pidfd| (self.pid, pidfd.as_raw_fd()))
    }

    /// Kill its group without the keeper.
    pub fn kill(&self) {
        if let (Some(pidfd), Some(pid)) = (&self.pidfd, Pid::from_raw(self.pid)) {
            kill_group(pidfd, pid);
        }
    }

    /// One poll finds a process that ended, and a socket that was closed or has unexpected bytes.
    fn is_silent(&self, settled: bool) -> bool {
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
}

impl State {
    /// The entry of a slot, made on first use.
    pub fn entry_of(&mut self, slot: u32) -> &mut Entry {
        let index = slot as usize;
        if self.entries.len() <= index {
            self.entries.resize_with(index + 1, Entry::default);
        }
        &mut self.entries[index]
    }

    /// The entry of a lease, unless that has ended.
    pub fn entry(&mut self, handle: Handle) -> Result<&mut Entry> {
        let Handle { slot, generation } = handle;
        let entry = self.entries.get_mut(slot as usize);
        entry
            .filter(|entry| entry.lent && entry.generation == generation)
            .ok_or(Error::Stale { slot, generation })
    }

    /// Room that was granted under a keeper that is lost is counted as a death: nothing may be started in it by the
    /// next keeper.
    pub fn expect_keeper_of(&mut self, handle: Handle) -> Result<()> {
        match self.entry(handle)?.death {
            Some(_) => Err(Error::KeeperLost),
            None => Ok(()),
        }
    }

    /// Room was granted: the caller starts a service here.
    pub fn begin(&mut self, slot: u32) -> Handle {
        let generation = self.next_generation(slot);
        *self.entry_of(slot) = Entry {
            generation,
            lent: true,
            begun_ms: now_ms(),
            leased_ms: now_ms(),
            ..Entry::default()
        };
        let cell = self.link.cell(slot);
        cell.since_ms.store(0, std::sync::atomic::Ordering::Release); // its caller waits
        Stamp::new(Word::Starting, generation).store(&cell.word);
        self.stats.starts += 1;
        self.note(slot, Transition::Start);
        Handle { slot, generation }
    }

    /// Why a service that comes back is not to be lent again, if so.
    pub fn worn(&mut self, slot: u32, now: u64) -> Option<Cause> {
        let max_uses = self.policy.max_uses;
        let entry = self.entry_of(slot);
        if max_uses > 0 && !entry.stateful && entry.uses >= max_uses {
            return Some(Cause::Uses);
        }
        if entry.heavy {
            return Some(Cause::Memory);
        }
        (entry.expires_ms > 0 && now >= entry.expires_ms).then_some(Cause::Lifetime)
    }

    /// Whether a service has been idle for so long that it should be asked whether it answers.
    pub fn is_quiet(&self, slot: u32, now: u64) -> bool {
        let since = &self.link.cell(slot).since_ms;
        let idle = now.saturating_sub(since.load(std::sync::atomic::Ordering::Acquire));
        self.policy.ping_after_ms > 0 && idle > self.policy.ping_after_ms
    }

    /// A service was granted: take it from the keeper, if it lives.
    pub fn claim(&mut self, slot: u32, settled: bool, now: u64) -> Option<Handle> {
        let generation = self.next_generation(slot);
        if !self.entry_of(slot).is_silent(settled) {
            return None;
        }
        if !Stamp::claim(&self.link.cell(slot).word, generation) {
            return None;
        }
        let entry = self.entry_of(slot);
        entry.generation = generation;
        entry.lent = true;
        entry.uses += 1;
        entry.leased_ms = now;
        self.stats.leases += 1;
        self.note(slot, Transition::Lease);
        Some(Handle { slot, generation })
    }

    /// A further lease of a shared service, if it lives.
    pub fn join(&mut self, slot: u32) -> Option<Answer> {
        let entry = self.entry_of(slot);
        if !entry.lent || entry.death.is_some() || !entry.is_silent(false) {
            return None;
        }
        let handle = entry.handle(slot);
        entry.uses += 1;
        if self.worn(slot, now_ms()).is_some() {
            self.machine.close(slot);
        }
        self.stats.leases += 1;
        self.note(slot, Transition::Lease);
        Some(Answer::Lent {
            handle,
            settled: true,
            quiet: false,
        })
    }

    /// A service that was started is ready.
    pub fn lend(&mut self, handle: Handle, key: Key) -> Result<Option<i32>> {
        let entry = self.entry(handle)?;
        if entry.process().is_none() {
            return Ok(None);
        }
        let pid = entry.pid;
        let leased = Stamp::new(Word::Leased, handle.generation);
        // At its deadline the keeper has seen that it had answered, and made it idle; it is still this caller's.
        if self.shift(handle, Word::Starting, Word::Leased)
            || self.shift(handle, Word::Idle, Word::Leased)
        {
            self.stats.leases += 1;
            let entry = self.entry_of(handle.slot);
            entry.uses += 1;
            entry.leased_ms = now_ms();
            self.learn_start(handle, key);
            self.note(handle.slot, Transition::Lease);
        } else if Stamp::load(&self.link.cell(handle.slot).word) != leased {
            return Ok(None); // its deadline came first; the keeper will report its death
        }
        Ok(Some(pid))
    }

    /// Remember how long a start of this key takes, unless its caller left it meanwhile.
    fn learn_start(&mut self, handle: Handle, key: Key) {
        let took = now_ms().saturating_sub(self.entry_of(handle.slot).begun_ms);
        let known = self.start_ms.entry(key).or_insert(took);
        *known = (3 * *known + took) / 4;
    }

    /// Change the state of a word, unless the keeper has changed it since.
    pub fn shift(&self, handle: Handle, from: Word, to: Word) -> bool {
        let word = &self.link.cell(handle.slot).word;
        Stamp::new(from, handle.generation).swap(word, Stamp::new(to, handle.generation))
    }

    /// Never lend this service again.
    pub fn retire(&self, slot: u32) {
        Stamp::retire(&self.link.cell(slot).word);
    }

    /// The keeper has reported the process of a service.
    pub fn started(&mut self, handle: Handle, pid: i32, pidfd: Option<OwnedFd>) {
        let entry = self.entry_of(handle.slot);
        entry.pid = pid;
        entry.pidfd = pidfd;
    }

    /// Remember that a service ends while it is idle.
    pub fn note_dead_idle(&mut self, slot: u32) {
        let entry = self.entry_of(slot);
        if !entry.lent && !entry.dead_idle && entry.socket.is_some() {
            entry.dead_idle = true;
            let handle = entry.handle(slot);
            self.dead_idle.push(handle);
        }
    }

    /// Free the slot of a service that is dead and not lent.
    pub fn free_slot(&mut self, slot: u32) {
        let entry = self.entry_of(slot);
        if entry.lent || entry.death.is_none() {
            return;
        }
        let generation = entry.generation;
        *entry = Entry {
            generation,
            ..Entry::default()
        };
        Stamp::new(Word::Free, generation).store(&self.link.cell(slot).word);
        self.machine.free_slot(slot);
    }

    /// Something happened: wake the watchers, which look again.
    pub fn notify_watchers(&mut self) {
        for queue in self.watchers.drain(..) {
            notify(&queue, WATCH);
        }
    }

    fn next_generation(&mut self, slot: u32) -> u64 {
        self.entry_of(slot).generation + 1
    }
}
