//! The register of the unfinished requests, by id and by key.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::entry::Entry;
use super::submitters::Submitters;
use crate::id::RequestId;

/// The index of an unfinished request in the register.
pub(crate) type Key = u32;

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
    submitters: Submitters,
    entries: Vec<Option<Entry>>,
    free: Vec<Key>,
}

impl Register {
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    #[inline] // where a request enters: see `Entry::new`
    pub(crate) fn add(&mut self, entry: Entry) -> Key {
        let id = entry.id();
        self.submitters.add(&entry.submission().submitter);
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
        self.index.remove(&entry.id());
        self.submitters.remove(&entry.submission().submitter);
        self.free.push(key);
        Some(entry)
    }

    /// Unfinished requests of a submitter.
    pub(crate) fn len_of(&self, submitter: &str) -> u32 {
        self.submitters.count(submitter)
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
        self.get_mut(key).filter(|entry| entry.id() == id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &Entry)> {
        let keyed = self.entries.iter().enumerate();
        keyed.filter_map(|(key, entry)| Some((Key::try_from(key).ok()?, entry.as_ref()?)))
    }
}
