//! Limits on how many requests of a key, or of a name, run at once.
//!
//! A request takes its key before it enters its lane's queue, so that the queue holds no request that cannot run.
//! Submitters take turns within a key as they do in a lane's queue; one submitter's own come in their order. A name's
//! limit is checked at dispatch, so that a submitter's long queue does not occupy it.

use std::collections::HashMap;
use std::sync::Arc;

use super::queue::{FairQueue, Rank};
use crate::machine::register::Key;
use crate::request::{Options, Submission};

#[derive(Debug, Default)]
struct KeyUse {
    holders: u32,
    waiting: FairQueue,
}

/// The concurrency keys that requests hold or wait for.
#[derive(Debug, Default)]
pub(crate) struct Keys(HashMap<Arc<str>, KeyUse>);

impl Keys {
    /// Takes the submission's key, or waits for it.
    pub(crate) fn take(&mut self, submission: &Submission, rank: Rank) -> bool {
        let options = &submission.options;
        let Some(name) = &options.key else {
            return true;
        };
        let used = self.0.entry(Arc::clone(name)).or_default();
        // The limit is that of the submission at hand: a newer code may have changed it.
        if used.holders < options.key_at_once.max(1) {
            used.holders += 1;
            return true;
        }
        used.waiting.push(&submission.submitter, rank);
        false
    }

    /// Stops waiting.
    pub(crate) fn leave(&mut self, submission: &Submission, rank: Rank) {
        let key = submission.options.key.as_ref();
        if let Some(used) = key.and_then(|name| self.0.get_mut(name)) {
            used.waiting.remove(&submission.submitter, rank);
        }
    }

    /// Releases a key; the first request of the submitter whose turn it is may try again.
    pub(crate) fn give(&mut self, options: &Options) -> Option<Key> {
        let name = options.key.as_ref()?;
        let used = self.0.get_mut(name)?;
        used.holders -= 1;
        // The key is not passed on: the next request takes it when it advances, by its own limit.
        let next = used.waiting.take(0);
        // Keys are arbitrary texts of submitters: unused ones must not accumulate.
        if next.is_none() && used.holders == 0 {
            self.0.remove(name);
        }
        next
    }

    /// How many requests hold this key.
    pub(crate) fn holders(&self, options: &Options) -> u32 {
        let used = options.key.as_ref().and_then(|name| self.0.get(name));
        used.map_or(0, |used| used.holders)
    }
}

/// What is known of one name.
#[derive(Debug)]
pub(crate) struct Name {
    text: Arc<str>,
    /// The most that run at once.
    limit: Option<u32>,
    running: u32,
    /// Requests that were turned back at dispatch.
    waiting: FairQueue,
}

impl Name {
    pub(crate) fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// The most that run at once.
    pub(crate) fn limit(&self) -> Option<u32> {
        self.limit
    }

    pub(crate) fn running(&self) -> u32 {
        self.running
    }

    /// How many requests were turned back at dispatch and wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.limit.is_some_and(|limit| self.running >= limit)
    }
}

/// The names that were ever submitted or defined: as many as the application has.
#[derive(Debug, Default)]
pub(crate) struct Names {
    index: HashMap<Arc<str>, u32>,
    names: Vec<Name>,
}

impl Names {
    pub(crate) fn index(&mut self, name: &Arc<str>) -> u32 {
        if let Some(index) = self.index.get(name) {
            return *index;
        }
        let index = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push(Name {
            text: Arc::clone(name),
            limit: None,
            running: 0,
            waiting: FairQueue::default(),
        });
        self.index.insert(Arc::clone(name), index);
        index
    }

    pub(crate) fn get(&self, index: u32) -> &Name {
        &self.names[index as usize]
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, &Name)> {
        (0..).zip(self.names.iter())
    }

    /// Lifts the limits of all names: those of a new code follow.
    pub(crate) fn lift_limits(&mut self) {
        for name in &mut self.names {
            name.limit = None;
        }
    }

    pub(crate) fn limit(&mut self, index: u32, limit: Option<u32>) {
        self.names[index as usize].limit = limit;
    }

    /// A request of this name has a worker.
    pub(crate) fn occupy(&mut self, index: u32) {
        self.names[index as usize].running += 1;
    }

    /// A request of this name has left its worker. The next one that waits for the name may be given.
    pub(crate) fn release(&mut self, index: u32) -> Option<Key> {
        self.names[index as usize].running -= 1;
        self.next(index)
    }

    /// The next request that waits for this name, if the name has room.
    pub(crate) fn next(&mut self, index: u32) -> Option<Key> {
        let name = &mut self.names[index as usize];
        if name.is_full() {
            return None;
        }
        name.waiting.take(0)
    }

    /// The next request that waits for this name, whether it has room or not.
    pub(crate) fn take(&mut self, index: u32) -> Option<Key> {
        self.names[index as usize].waiting.take(0)
    }

    /// A request waits until fewer of its name run.
    pub(crate) fn wait(&mut self, index: u32, submitter: &Arc<str>, rank: Rank) {
        self.names[index as usize].waiting.push(submitter, rank);
    }

    /// Stops waiting.
    pub(crate) fn leave(&mut self, index: u32, submitter: &Arc<str>, rank: Rank) {
        self.names[index as usize].waiting.remove(submitter, rank);
    }
}
