//! The unfinished requests, each with its state.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use super::why::Notes;
use crate::action::Step;
use crate::id::RequestId;
use crate::request::{Ending, Lane, Millis, Options, Request, Slot};

/// The index of an unfinished request in the register.
pub(crate) type Key = u32;

/// Why a run is being ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Cancel,
    Time,
}

/// How far the end of a run has gone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stop {
    pub reason: Reason,
    pub step: Step,
}

/// One run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub slot: Slot,
    pub began: Millis,
    /// It waits in its worker's inbox behind another run, and has not begun (`ahead.rs`).
    pub handed: bool,
    /// Its worker was asked to return it.
    pub recalled: bool,
    pub stop: Option<Stop>,
    /// The most private memory of its worker that was measured during it.
    pub peak: Option<u64>,
}

/// The state of a request. Each state is left by the event that it names.
#[derive(Clone, Debug)]
pub(crate) enum State {
    /// Its row is being committed; `slot` is the worker reserved for it if one was idle.
    Accepting {
        slot: Option<Slot>,
    },
    /// Its row is on disk; the claim that was written with it is not.
    Claiming {
        slot: Slot,
    },
    /// An operator's retry is being committed.
    Retrying,
    /// Its worker has not begun it and will not: the withdrawal of its claim is being committed.
    Unclaiming,
    /// It waits for other requests.
    After,
    /// It waits for a time: its back-off or its `not_before`.
    Until,
    /// It waits until fewer requests hold its key.
    Keyed,
    /// It waits until fewer requests of its name run.
    Named,
    /// It waits for a worker, in its lane's queue.
    Ready,
    Running(Run),
    /// Its end is being committed.
    Ending(Arc<Ending>),
}

/// One unfinished request.
#[derive(Debug)]
pub(crate) struct Entry {
    pub request: Arc<Request>,
    pub state: State,
    /// Runs that began or were claimed.
    pub attempts: u32,
    /// Of them, those before an operator's retry, which count no more.
    pub forgiven: u32,
    pub deaths: u32,
    /// The index of its name.
    pub name: u32,
    /// How many requests must succeed before it.
    pub waits_for: u32,
    /// Requests that wait for this one.
    pub dependents: Vec<RequestId>,
    pub not_before: Option<Millis>,
    /// Its entry among the timers.
    pub due: Option<Millis>,
    /// Since when it is in its lane's queue.
    pub ready_at: Millis,
    /// Cancelled while its row was being committed.
    pub cancelled: bool,
    /// It is one of the holders of its key.
    pub holds_key: bool,
    pub notes: Notes,
}

impl Entry {
    pub(crate) fn options(&self) -> &Options {
        &self.request.submission.options
    }

    pub(crate) fn lane(&self) -> Lane {
        self.options().lane
    }

    /// Whether it may run twice, so that its claim need not be on disk before its run begins.
    pub(crate) fn is_repeatable(&self) -> bool {
        self.options().retries > 0 || self.options().idempotent
    }

    /// Whether runs are left after the one that failed.
    pub(crate) fn has_retries(&self) -> bool {
        // The first run is not a retry: with two retries the third run is the last.
        self.attempts - self.forgiven <= self.options().retries
    }

    /// The worker that has it, or that is reserved for it.
    pub(crate) fn slot(&self) -> Option<Slot> {
        match &self.state {
            State::Accepting { slot } => *slot,
            State::Claiming { slot } => Some(*slot),
            State::Running(run) => Some(run.slot),
            _ => None,
        }
    }

    pub(crate) fn run(&self) -> Option<&Run> {
        match &self.state {
            State::Running(run) => Some(run),
            _ => None,
        }
    }

    pub(crate) fn run_mut(&mut self) -> Option<&mut Run> {
        match &mut self.state {
            State::Running(run) => Some(run),
            _ => None,
        }
    }
}

/// Ids differ in their low bits, and this process generates them: one multiplication spreads them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The map takes its index from the low bits, which the multiplication mixes least.
        self.0 = mixed ^ (mixed >> 32);
    }
}

pub(crate) type IdMap<V> = HashMap<RequestId, V, BuildHasherDefault<IdHasher>>;

/// Every unfinished request, by id and by key.
///
/// Lists hold the 32-bit key, not the id: it indexes an array, so that a step of a request costs no hash. Keys are
/// reused. A request leaves every list before the register, and answers of the store, which may come later, name the id
/// as well (`same`).
#[derive(Debug, Default)]
pub(crate) struct Register {
    index: IdMap<Key>,
    entries: Vec<Option<Entry>>,
    free: Vec<Key>,
}

impl Register {
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    pub(crate) fn add(&mut self, entry: Entry) -> Key {
        let id = entry.request.id;
        let key = if let Some(key) = self.free.pop() {
            self.entries[key as usize] = Some(entry);
            key
        } else {
            self.entries.push(Some(entry));
            Key::try_from(self.entries.len() - 1).unwrap_or(Key::MAX)
        };
        let before = self.index.insert(id, key);
        debug_assert!(before.is_none(), "{id} is here already");
        key
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<Entry> {
        let entry = self.entries.get_mut(key as usize)?.take()?;
        self.index.remove(&entry.request.id);
        self.free.push(key);
        Some(entry)
    }

    pub(crate) fn key(&self, id: RequestId) -> Option<Key> {
        self.index.get(&id).copied()
    }

    pub(crate) fn get(&self, key: Key) -> Option<&Entry> {
        self.entries.get(key as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut Entry> {
        self.entries.get_mut(key as usize)?.as_mut()
    }

    pub(crate) fn by_id(&self, id: RequestId) -> Option<&Entry> {
        self.get(self.key(id)?)
    }

    /// The entry at a key, if it is still the request of that id.
    pub(crate) fn same(&mut self, key: Key, id: RequestId) -> Option<&mut Entry> {
        self.get_mut(key).filter(|entry| entry.request.id == id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &Entry)> {
        let keyed = self.entries.iter().enumerate();
        keyed.filter_map(|(key, entry)| Some((Key::try_from(key).ok()?, entry.as_ref()?)))
    }
}
