//! A pool on its client's side, under the lock: what is asked of it, and what the keeper reports.
//!
//! The machine decides which caller gets which service; the entries say what is known of each service; a word in the
//! page that the keeper shares decides between a caller and a deadline. This is the one place where the three change
//! together, and where that is noted in the journal and wakes the waiters. Getting a service is in `ask`, a lease in `lease`.
//!
//! Methods that `Client` has by the same name are documented there.

mod ask;
mod lease;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_base::Queue;

use super::entry::{Entries, Entry};
use super::journal::{Journal, Note};
use super::link::{Handover, Link};
use super::ready_set::{ReadySet, ReadySource, look};
use super::start_times::StartTimes;
use super::waiters::Waiters;
use super::{Policy, ServiceInfo, Stats, Wake};
use crate::clock::now_ms;
use crate::death::{Cause, Death};
use crate::error::{Error, Result};
use crate::machine::{Action, Machine};
use crate::transition::Transition;
use crate::wire::{Event, Handle, KeeperRequest, Launch};
use crate::word::{Stamp, State as Word};

/// What `Client` keeps under its lock.
#[derive(Debug)]
pub struct ClientState {
    policy: Policy,
    machine: Machine,
    entries: Entries,
    link: Link,
    ready: Arc<ReadySet>,
    waiters: Waiters,
    journal: Journal,
    start_times: StartTimes,
    stats: Stats,
    deaths: BTreeMap<&'static str, u64>,
    closed: bool,
}

impl ClientState {
    pub fn new(policy: Policy, ready: Arc<ReadySet>) -> Result<Self> {
        Ok(Self {
            policy,
            machine: Machine::new(policy.max_size, policy.max_running),
            entries: Entries::default(),
            link: Link::new()?,
            ready,
            waiters: Waiters::new(),
            journal: Journal::default(),
            start_times: StartTimes::default(),
            stats: Stats::default(),
            deaths: BTreeMap::new(),
            closed: false,
        })
    }

    pub const fn is_closed(&self) -> bool {
        self.closed
    }

    /// End every service and the keeper; its process is returned to be waited for.
    pub fn close(&mut self) -> Option<OwnedFd> {
        self.closed = true;
        self.ready.close();
        self.waiters.wake_all();
        self.link.detach()
    }

    /// Take what was known of the services, after `close`.
    pub fn take_entries(&mut self) -> Entries {
        std::mem::take(&mut self.entries)
    }

    /// In a forked child: let go of what belongs to the parent.
    pub fn forked(&mut self) {
        self.closed = true;
        self.link.forget();
        self.entries.forget();
    }

    pub fn handover(&mut self) -> Result<Option<Handover>> {
        self.link.handover()
    }

    pub fn attach(&mut self, keeper: OwnedFd) -> Result<u64> {
        let epoch = self.link.attach(keeper);
        if let Some(control) = self.link.control() {
            self.ready.watch(control, ReadySource::Keeper)?;
            self.link.resend_kept()?;
        }
        Ok(epoch)
    }

    pub fn epoch(&self) -> u64 {
        self.link.epoch()
    }

    pub fn describe(
        &mut self,
        template: u32,
        launch: Launch,
        setup: Vec<u8>,
        spares: u32,
    ) -> Result<()> {
        self.link.describe(template, launch, setup, spares)
    }

    pub fn stats(&mut self) -> Result<Stats> {
        self.drive()?;
        let lent_in = |wanted| {
            let lent = |slot: &u32| self.entries.get(*slot).is_some_and(Entry::is_lent);
            let of = |slot: &u32| Stamp::load(&self.link.cell(*slot).word).state == wanted;
            self.machine.occupied().filter(lent).filter(of).count()
        };
        Ok(Stats {
            live: self.machine.live(),
            idle: self.machine.idle(),
            settling: self.machine.settling(),
            waiters: self.machine.waiters(),
            leased: lent_in(Word::Leased),
            starting: lent_in(Word::Starting),
            ..self.stats
        })
    }

    pub fn deaths(&self) -> Vec<(&'static str, u64)> {
        let by_cause = self.deaths.iter();
        by_cause.map(|(&cause, &count)| (cause, count)).collect()
    }

    pub fn services(&self) -> Vec<ServiceInfo> {
        let now = now_ms();
        let occupied = self.machine.occupied();
        let known = occupied.filter_map(|slot| self.entries.get(slot).zip(Some(slot)));
        let seen = known.map(|(entry, slot)| ServiceInfo {
            handle: entry.handle(slot),
            key: self.machine.key_of(slot),
            pid: entry.pid(),
            lent: entry.is_lent(),
            held_ms: entry.held_ms(now),
        });
        seen.collect()
    }

    pub fn heavy(&mut self) -> Result<usize> {
        self.drive()?;
        Ok(self.entries.heavy())
    }

    pub fn take_dead_idle(&mut self) -> Vec<Handle> {
        self.entries.take_dead_idle()
    }

    pub fn keep_notes(&mut self, wanted: bool) {
        self.journal.keep(wanted);
    }

    pub fn take_notes(&mut self, queue: Option<&Arc<Queue<Wake>>>) -> Result<Vec<Note>> {
        self.drive()?;
        let notes = self.journal.take();
        if notes.is_empty() {
            self.waiters.watch(queue);
        }
        Ok(notes)
    }

    /// Handle whatever has happened; never waits.
    pub fn drive(&mut self) -> Result<()> {
        let set = self.ready.descriptor()?;
        while let Some(sources) = look(&set)? {
            for source in sources {
                match source {
                    ReadySource::Slot(slot) => {
                        self.unwatch(slot);
                        self.decide(|machine, actions| machine.readable(slot, actions));
                    }
                    ReadySource::Keeper => self.take_events()?,
                }
            }
        }
        Ok(())
    }

    fn take_events(&mut self) -> Result<()> {
        while let Some((event, descriptor)) = self.link.receive()? {
            match event {
                Some(Event::Started {
                    handle,
                    pid,
                    directory,
                }) => {
                    let is_missing = descriptor.is_none(); // the kernel dropped what this process could not have
                    let entry = self.entries.at(handle.slot);
                    entry.started(pid, descriptor, directory);
                    if is_missing {
                        self.refuse(handle);
                    }
                }
                Some(Event::Died { slot, death }) => self.died(slot, death),
                Some(Event::Output { handle, text }) => {
                    if let Ok(entry) = self.entries.lease(handle) {
                        entry.note_output(text);
                    }
                }
                Some(Event::Heavy { slot }) => self.entries.at(slot).note_heavy(),
                Some(Event::Written {
                    handle,
                    total,
                    text,
                }) => {
                    if let Ok(entry) = self.entries.lease(handle) {
                        entry.note_written((total, text));
                    }
                }
                None => {
                    self.keeper_lost();
                    break;
                }
            }
        }
        self.waiters.wake_watchers();
        Ok(())
    }

    /// Have a service ended that this process cannot watch, because it has no descriptor left for it.
    fn refuse(&mut self, handle: Handle) {
        let reason = Error::descriptors("receiving the pidfd of a service").to_string();
        self.entries.at(handle.slot).refuse(reason.into_bytes());
        let cause = Cause::NotStarted;
        // Where the keeper is gone, its loss is handled by the next drive.
        let _ = self.link.send(&KeeperRequest::Kill { handle, cause }, &[]);
    }

    fn died(&mut self, slot: u32, death: Death) {
        *self.deaths.entry(death.cause.name()).or_default() += 1;
        self.note(slot, Transition::Death(death.cause));
        let mut actions = Vec::new();
        self.unwatch(slot);
        self.machine.lose(slot, &mut actions);
        self.entries.at(slot).end(death);
        self.entries.note_dead_idle(slot);
        self.free_slot(slot);
        self.act(actions);
    }

    /// The keeper is gone: kill every group it owned, and count their services as dead.
    fn keeper_lost(&mut self) {
        if let Some(control) = self.link.control() {
            self.ready.unwatch(control);
        }
        self.link.lose();
        let occupied: Vec<u32> = self.machine.occupied().collect();
        for slot in occupied {
            let entry = self.entries.at(slot);
            entry.kill();
            let death = Death {
                cause: Cause::KeeperLost,
                pid: entry.pid(),
                text: b"the keeper of the pool was killed".to_vec(),
                ..Death::default()
            };
            self.died(slot, death);
        }
    }

    /// Retire a service and have it ended.
    fn drop_service(&mut self, slot: u32, cause: Cause) {
        self.unwatch(slot);
        let mut actions = Vec::new();
        self.machine.lose(slot, &mut actions);
        Stamp::retire(&self.link.cell(slot).word);
        if !self.entries.at(slot).is_dead() {
            self.note(slot, Transition::End(cause));
        }
        let entry = self.entries.at(slot);
        entry.give_up();
        let handle = entry.handle(slot);
        if !entry.is_dead() {
            // Where the keeper is gone, its loss is handled by the next drive.
            let _ = self.link.send(&KeeperRequest::Kill { handle, cause }, &[]);
        }
        self.entries.note_dead_idle(slot);
        self.free_slot(slot);
        self.act(actions);
    }

    /// Free the slot of a service that is dead and not lent.
    fn free_slot(&mut self, slot: u32) {
        if let Some(generation) = self.entries.at(slot).free() {
            Stamp::new(Word::Free, generation).store(&self.link.cell(slot).word);
            self.machine.free_slot(slot);
        }
    }

    /// Have the machine decide, and do what follows from it.
    fn decide<D>(&mut self, decision: impl FnOnce(&mut Machine, &mut Vec<Action>) -> D) -> D {
        let mut actions = Vec::new();
        let decided = decision(&mut self.machine, &mut actions);
        self.act(actions);
        decided
    }

    fn act(&mut self, mut actions: Vec<Action>) {
        while let Some(action) = actions.pop() {
            match action {
                Action::Wake(ticket, _) => self.waiters.wake(ticket),
                Action::Evict(slot) => {
                    self.entries.at(slot).give_back();
                    self.drop_service(slot, Cause::Evicted);
                }
            }
        }
    }

    /// Note what happened to a service, if notes are kept.
    fn note(&mut self, slot: u32, transition: Transition) {
        if self.journal.is_kept() {
            let key = self.machine.key_of(slot);
            let entry = self.entries.at(slot);
            self.journal
                .note(transition, entry.handle(slot), key, entry.pid());
            self.waiters.wake_watchers();
        }
    }

    /// Room was granted: the caller starts a service here.
    fn begin(&mut self, slot: u32) -> Handle {
        let generation = self.entries.at(slot).begin();
        let cell = self.link.cell(slot);
        cell.since_ms.store(0, Ordering::Release); // its caller waits
        Stamp::new(Word::Starting, generation).store(&cell.word);
        self.stats.starts += 1;
        self.note(slot, Transition::Start);
        Handle { slot, generation }
    }

    /// A service was granted: take it from the keeper, if it lives.
    fn claim(&mut self, slot: u32, settled: bool, now: u64) -> Option<Handle> {
        let entry = self.entries.at(slot);
        if !entry.is_silent(settled) {
            return None;
        }
        if !Stamp::claim(&self.link.cell(slot).word, entry.next_generation()) {
            return None;
        }
        entry.claim(now);
        let handle = entry.handle(slot);
        self.note_lease(slot);
        Some(handle)
    }

    /// A lease has begun.
    fn note_lease(&mut self, slot: u32) {
        self.stats.leases += 1;
        self.note(slot, Transition::Lease);
    }

    /// Why a service that comes back is not to be lent again, if so.
    fn worn(&mut self, slot: u32, now: u64) -> Option<Cause> {
        let max_uses = self.policy.max_uses;
        self.entries.at(slot).worn(max_uses, now)
    }

    /// Change the state of a word, unless the keeper has changed it since.
    fn shift(&self, handle: Handle, from: Word, to: Word) -> bool {
        let word = &self.link.cell(handle.slot).word;
        Stamp::new(from, handle.generation).swap(word, Stamp::new(to, handle.generation))
    }

    /// Watch for the answer of a service that is about to settle. A service that cannot be watched is ended: its
    /// waiters would not be woken.
    fn watch(&mut self, slot: u32) -> Result<()> {
        let watched = match self.entries.get(slot).and_then(Entry::socket) {
            Some(socket) => self.ready.watch(socket, ReadySource::Slot(slot)),
            None => Ok(()),
        };
        if watched.is_err() {
            self.drop_service(slot, Cause::Discarded);
        }
        watched
    }

    fn unwatch(&self, slot: u32) {
        if let Some(socket) = self.entries.get(slot).and_then(Entry::socket) {
            self.ready.unwatch(socket);
        }
    }
}
