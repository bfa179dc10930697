//! Pulls and pushes that were asked for together: which have ended, how, and who is to hear of it.
//!
//! A batch is made once for many of them, so that none costs an allocation of its own.
//! Its lock is held for moments, and taken inside of its link's.
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;

use super::error::Error;
use super::port::Bell;
use crate::names::{Meaning, Unknown};
use crate::requester::{Outcome, Ticket};

/// What the names of a look-up mean.
pub type Meanings = Vec<Result<Meaning, Unknown>>;

/// How one of a batch stands.
#[derive(Clone, Debug)]
pub enum Ended {
    /// It goes on.
    No,
    /// It went well; the tensor's version.
    Well(u64),
    /// It did not.
    Failed(Error),
}

/// Pulls and pushes, or one look-up, and `M`, which keeps their memory until nobody moves bytes there any more.
pub struct Batch<M> {
    /// Dropped with the last reference to the batch, of which each operation holds one.
    pub memory: M,
    count: usize,
    left: AtomicUsize,
    state: Mutex<State>,
    told: Told,
}

/// Who hears of a batch.
struct Told {
    /// A port, and the number by which it knows the batch.
    port: Option<(Arc<Bell>, u64)>,
    /// Of the port that drives it, which may be another one.
    driver: Option<Arc<Bell>>,
    /// Whether each end is news, rather than the last one alone.
    each: bool,
    /// It is on the port's list already.
    listed: AtomicBool,
}

#[derive(Default)]
struct State {
    tickets: Vec<Option<Ticket>>,
    versions: Vec<u64>,
    /// In the order of their ends.
    arrived: Vec<u32>,
    /// How many of these its owner has been told of.
    taken: usize,
    failures: Vec<(u32, Error)>,
    meanings: Option<Meanings>,
    /// A thread that sleeps, and whether it wants to hear of each end.
    waiter: Option<(Thread, bool)>,
}

/// In place of a version.
const GOES_ON: u64 = u64::MAX;
const FAILED: u64 = u64::MAX - 1;

impl<M> Batch<M> {
    /// For `count` operations, of which nobody is told but who waits.
    pub fn new(memory: M, count: usize) -> Arc<Self> {
        let nobody = Told {
            port: None,
            driver: None,
            each: false,
            listed: AtomicBool::new(false),
        };
        Arc::new(Self::made(memory, count, nobody))
    }

    /// For `count` operations that `driver` drives; the bell hears of the last end, or of each, under a number.
    pub(super) fn ported(
        (memory, count): (M, usize),
        (bell, ticket): (&Arc<Bell>, u64),
        driver: &Arc<Bell>,
        each: bool,
    ) -> Arc<Self> {
        let told = Told {
            port: Some((Arc::clone(bell), ticket)),
            driver: Some(Arc::clone(driver)),
            each,
            listed: AtomicBool::new(false),
        };
        Arc::new(Self::made(memory, count, told))
    }

    fn made(memory: M, count: usize, told: Told) -> Self {
        Self {
            memory,
            count,
            left: AtomicUsize::new(count),
            state: Mutex::new(State {
                tickets: vec![None; count],
                versions: vec![GOES_ON; count],
                arrived: Vec::with_capacity(count),
                ..State::default()
            }),
            told,
        }
    }

    /// How many operations it has.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether all have ended.
    pub fn is_done(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    /// How operation `index` stands.
    ///
    /// # Panics
    ///
    /// Where there is no such operation.
    pub fn ended(&self, index: usize) -> Ended {
        let state = self.state();
        let failed = |(at, _): &&(u32, Error)| *at as usize == index;
        match state.versions[index] {
            GOES_ON => Ended::No,
            FAILED => match state.failures.iter().find(failed) {
                Some((_, error)) => Ended::Failed(error.clone()),
                None => Ended::No,
            },
            version => Ended::Well(version),
        }
    }

    /// The first operation, by its index, that failed.
    pub fn first_failure(&self) -> Option<(usize, Error)> {
        let state = self.state();
        let first = state.failures.iter().min_by_key(|(index, _)| *index)?;
        Some((first.0 as usize, first.1.clone()))
    }

    /// Copy the versions of those that went well, and zeros for the others.
    pub fn versions(&self, into: &mut dyn FnMut(usize, u64)) {
        for (index, &version) in self.state().versions.iter().enumerate() {
            into(index, if version >= FAILED { 0 } else { version });
        }
    }

    /// Append the indices of those that have ended since this was asked for last, in the order of their ends.
    pub fn take_arrived(&self, into: &mut Vec<u32>) {
        let mut state = self.state();
        self.told.listed.store(false, Ordering::Release);
        into.extend_from_slice(&state.arrived[state.taken..]);
        state.taken = state.arrived.len();
    }

    /// What the names mean, once, of a look-up that went well.
    pub fn take_meanings(&self) -> Option<Meanings> {
        self.state().meanings.take()
    }

    /// Whether there are ends of which its owner was not told.
    pub(super) fn has_news(&self) -> bool {
        let state = self.state();
        state.taken < state.arrived.len()
    }

    /// An operation was begun.
    pub(super) fn begin(&self, index: u32, ticket: Ticket) {
        self.state().tickets[index as usize] = Some(ticket);
    }

    /// What has not ended, for a cancel.
    pub(super) fn unfinished(&self) -> Vec<(u32, Ticket)> {
        let state = self.state();
        let numbered = state.tickets.iter().zip(0u32..);
        numbered
            .filter_map(|(ticket, index)| ticket.map(|ticket| (index, ticket)))
            .collect()
    }

    /// An operation has ended; whether it was the last one. A second end of one changes nothing.
    pub(super) fn end(&self, index: u32, result: Result<Outcome, Error>) -> bool {
        let mut state = self.state();
        let at = index as usize;
        if state.versions[at] != GOES_ON {
            return false;
        }
        state.tickets[at] = None;
        state.versions[at] = match result {
            Ok(Outcome::Moved { version }) => version.min(FAILED - 1),
            Ok(Outcome::Names(meanings)) => {
                state.meanings = Some(meanings);
                0
            }
            Err(error) => {
                state.failures.push((index, error));
                FAILED
            }
        };
        state.arrived.push(index);
        let last = self.left.fetch_sub(1, Ordering::AcqRel) == 1;
        if let Some((waiter, each)) = &state.waiter
            && (last || *each)
        {
            waiter.unpark();
        }
        drop(state);
        if (last || self.told.each)
            && let Some((bell, ticket)) = &self.told.port
            && !self.told.listed.swap(true, Ordering::AcqRel)
        {
            bell.tell(*ticket);
        }
        last
    }

    /// Of the port that drives it, if one does.
    pub(super) fn driver(&self) -> Option<&Arc<Bell>> {
        self.told.driver.as_ref()
    }

    /// Wake this thread at the last end, or at each.
    pub(super) fn wake(&self, waiter: Option<(Thread, bool)>) {
        self.state().waiter = waiter;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One operation of a batch: what a requester keeps of it.
pub(super) struct Job<M> {
    pub(super) batch: Arc<Batch<M>>,
    pub(super) index: u32,
}
