//! Values by key, served while the program puts and deletes them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Bytes of a value, which any number of answers read at the same time.
pub type Shared = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// A value: one frame or several.
pub type Value = Arc<[Shared]>;

/// What a store has counted and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounters {
    pub values: usize,
    pub hits: u64,
    pub misses: u64,
}

/// The values. The lock is held for one look-up or one insertion; no value is freed under it.
///
/// The program that fills it bounds its size; peers only read.
#[derive(Default)]
pub struct Store {
    values: RwLock<HashMap<Box<[u8]>, Value>>,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Store {
    /// Serve `value` under `key` from now on; returns the one before. Answers on their way keep theirs.
    pub fn put(&self, key: &[u8], value: Vec<Shared>) -> Option<Value> {
        let mut values = self.values.write().unwrap_or_else(PoisonError::into_inner);
        values.insert(key.into(), value.into())
    }

    /// Serve a key no more; returns its value.
    pub fn delete(&self, key: &[u8]) -> Option<Value> {
        let mut values = self.values.write().unwrap_or_else(PoisonError::into_inner);
        values.remove(key)
    }

    /// The value of a key, counted as a hit or a miss.
    pub fn get(&self, key: &[u8]) -> Option<Value> {
        let values = self.values.read().unwrap_or_else(PoisonError::into_inner);
        let found = values.get(key).cloned();
        let counter = if found.is_some() {
            &self.hits
        } else {
            &self.misses
        };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// Whether there is a value; not counted.
    pub fn contains(&self, key: &[u8]) -> bool {
        let values = self.values.read().unwrap_or_else(PoisonError::into_inner);
        values.contains_key(key)
    }

    /// What was counted.
    pub fn counters(&self) -> StoreCounters {
        let values = self.values.read().unwrap_or_else(PoisonError::into_inner);
        StoreCounters {
            values: values.len(),
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
        }
    }
}
