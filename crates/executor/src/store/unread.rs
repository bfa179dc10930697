//! Results on disk that a connected client was notified of, but has not read.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::id::RequestId;
use crate::limit::UNREAD_RESULTS_MAX;

/// These results by request. The dispatcher's thread adds and removes them; the reading thread decides what is removed.
#[derive(Debug, Default)]
pub struct Unread(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    results: HashMap<RequestId, Result>,
    total: usize,
}

#[derive(Debug, Default)]
struct Result {
    /// Clients that have not read it.
    clients: u32,
    /// The retention removes it all the same.
    lost: bool,
}

impl Unread {
    /// A client has not read this result. False: too many are protected, so this one is not.
    pub fn add(&self, id: RequestId) -> bool {
        let mut counts = self.lock();
        if counts.total >= UNREAD_RESULTS_MAX {
            return false;
        }
        counts.total += 1;
        counts.results.entry(id).or_default().clients += 1;
        true
    }

    /// A client for which it was added has read it, or no longer wants it.
    pub fn remove(&self, id: RequestId) {
        let mut counts = self.lock();
        let Some(result) = counts.results.get_mut(&id) else {
            return;
        };
        result.clients -= 1;
        if result.clients == 0 {
            counts.results.remove(&id);
        }
        counts.total -= 1;
    }

    /// Whether a missing result was removed before it was read, so that the answer can say so.
    pub fn is_lost(&self, id: RequestId) -> bool {
        let counts = self.lock();
        counts.results.get(&id).is_some_and(|result| result.lost)
    }

    /// The retention removes this one after all.
    pub(super) fn lose(&self, id: RequestId) {
        if let Some(result) = self.lock().results.get_mut(&id) {
            result.lost = true;
        }
    }

    pub(super) fn has(&self, id: RequestId) -> bool {
        self.lock().results.contains_key(&id)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().total == 0
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        // No code of a caller runs under the lock, so a panic cannot leave it inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_unread_until_the_last_client_has_read_it() {
        let (unread, id) = (Unread::default(), RequestId(5));
        assert!(unread.add(id) && unread.add(id));
        unread.remove(id);
        assert!(unread.has(id) && !unread.is_empty());
        unread.remove(id);
        assert!(!unread.has(id) && unread.is_empty());
        unread.remove(id);
        assert!(unread.add(id) && unread.has(id));
        unread.lose(id);
        assert!(unread.is_lost(id));
        unread.remove(id);
        assert!(!unread.is_lost(id));
    }

    #[test]
    fn what_is_too_much_is_not_spared_and_makes_room_for_nothing() {
        let unread = Unread::default();
        let most = UNREAD_RESULTS_MAX as u64;
        assert!((0..most).all(|id| unread.add(RequestId(id))));
        assert!(!unread.add(RequestId(most)) && !unread.has(RequestId(most)));
        unread.remove(RequestId(0));
        assert!(unread.add(RequestId(most)) && unread.has(RequestId(most)));
    }
}
