//! Pulls and pushes that were submitted together: which have ended, how, and which port or thread to notify.
//!
//! One batch holds the state of many operations, so that an operation costs no allocation of its own.
//! Its lock is held briefly, and may be taken while the link's is held (never the reverse).
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;

use super::error::StreamError;
use super::ready::ReadyList;
use crate::names::{Meaning, Unknown};
use crate::requester::{Outcome, Ticket};

/// The result of a look-up, per name.
pub type Meanings = Vec<Result<Meaning, Unknown>>;

/// The state of one operation of a batch.
#[derive(Clone, Debug)]
pub enum OperationState {
    /// It has not ended.
    Pending,
    /// It succeeded; the tensor's version.
    Done(u64),
    /// It failed.
    Failed(StreamError),
}

/// Pulls and pushes, or one look-up, and `M`, which keeps their memory while bytes may be moved there.
pub struct Batch<M> {
    /// Dropped with the last reference to the batch, of which each operation holds one.
    pub memory: M,
    count: usize,
    left: AtomicUsize,
    state: Mutex<State>,
    observers: Observers,
}

/// Which ports to notify of a batch.
struct Observers {
    /// The ready list of a port, and its ticket for the batch.
    port: Option<(Arc<ReadyList>, u64)>,
    /// The ready list of the port that drives the batch, which may be another port.
    driver: Option<Arc<ReadyList>>,
    /// Whether to notify at each end, rather than at the last one only.
    each: bool,
    /// It is on the port's ready list already.
    listed: AtomicBool,
}

#[derive(Default)]
struct State {
    tickets: Vec<Option<Ticket>>,
    versions: Vec<u64>,
    /// Ended operations, in the order of their ends.
    arrived: Vec<u32>,
    /// How many of these `take_arrived` has returned.
    taken: usize,
    failures: Vec<(u32, StreamError)>,
    meanings: Option<Meanings>,
    /// A sleeping thread, and whether to wake it at each end.
    waiter: Option<(Thread, bool)>,
}

/// Values in place of a version.
const PENDING: u64 = u64::MAX;
const FAILED: u64 = u64::MAX - 1;

impl<M> Batch<M> {
    /// A batch of `count` operations that notifies no port; a thread can wait for it.
    pub fn new(memory: M, count: usize) -> Arc<Self> {
        let none = Observers {
            port: None,
            driver: None,
            each: false,
            listed: AtomicBool::new(false),
        };
        Arc::new(Self::build(memory, count, none))
    }

    /// A batch of `count` operations that `driver` drives; `ready` gets the ticket at the last end, or at `each` end.
    pub(super) fn with_port(
        (memory, count): (M, usize),
        (ready, ticket): (&Arc<ReadyList>, u64),
        driver: &Arc<ReadyList>,
        each: bool,
    ) -> Arc<Self> {
        let observers = Observers {
            port: Some((Arc::clone(ready), ticket)),
            driver: Some(Arc::clone(driver)),
            each,
            listed: AtomicBool::new(false),
        };
        Arc::new(Self::build(memory, count, observers))
    }

    fn build(memory: M, count: usize, observers: Observers) -> Self {
        Self {
            memory,
            count,
            left: AtomicUsize::new(count),
            state: Mutex::new(State {
                tickets: vec![None; count],
                versions: vec![PENDING; count],
                arrived: Vec::with_capacity(count),
                ..State::default()
            }),
            observers,
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

    /// The state of operation `index`.
    ///
    /// # Panics
    ///
    /// If there is no such operation.
    pub fn state_of(&self, index: usize) -> OperationState {
        let state = self.lock();
        let failed = |(at, _): &&(u32, StreamError)| *at as usize == index;
        match state.versions[index] {
            PENDING => OperationState::Pending,
            FAILED => match state.failures.iter().find(failed) {
                Some((_, error)) => OperationState::Failed(error.clone()),
                None => OperationState::Pending,
            },
            version => OperationState::Done(version),
        }
    }

    /// The failed operation with the lowest index.
    pub fn first_failure(&self) -> Option<(usize, StreamError)> {
        let state = self.lock();
        let first = state.failures.iter().min_by_key(|(index, _)| *index)?;
        Some((first.0 as usize, first.1.clone()))
    }

    /// Pass on the versions of operations that succeeded, and 0 for the others.
    pub fn versions(&self, into: &mut dyn FnMut(usize, u64)) {
        for (index, &version) in self.lock().versions.iter().enumerate() {
            into(index, if version >= FAILED { 0 } else { version });
        }
    }

    /// Append the indices of operations that have ended since the last call, in the order of their ends.
    pub fn take_arrived(&self, into: &mut Vec<u32>) {
        let mut state = self.lock();
        self.observers.listed.store(false, Ordering::Release);
        into.extend_from_slice(&state.arrived[state.taken..]);
        state.taken = state.arrived.len();
    }

    /// The result of a look-up that succeeded; returned once.
    pub fn take_meanings(&self) -> Option<Meanings> {
        self.lock().meanings.take()
    }

    /// Whether operations have ended that `take_arrived` did not return.
    pub(super) fn has_arrivals(&self) -> bool {
        let state = self.lock();
        state.taken < state.arrived.len()
    }

    /// An operation was begun.
    pub(super) fn begin(&self, index: u32, ticket: Ticket) {
        self.lock().tickets[index as usize] = Some(ticket);
    }

    /// The operations that have not ended, for a cancel.
    pub(super) fn unfinished(&self) -> Vec<(u32, Ticket)> {
        let state = self.lock();
        let numbered = state.tickets.iter().zip(0u32..);
        numbered
            .filter_map(|(ticket, index)| ticket.map(|ticket| (index, ticket)))
            .collect()
    }

    /// End an operation; returns whether it was the last one. A second end is ignored.
    pub(super) fn end(&self, index: u32, result: Result<Outcome, StreamError>) -> bool {
        let mut state = self.lock();
        let at = index as usize;
        if state.versions[at] != PENDING {
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
        if (last || self.observers.each)
            && let Some((ready, ticket)) = &self.observers.port
            && !self.observers.listed.swap(true, Ordering::AcqRel)
        {
            ready.push(*ticket);
        }
        last
    }

    /// The ready list of the port that drives the batch, if one does.
    pub(super) fn driver(&self) -> Option<&Arc<ReadyList>> {
        self.observers.driver.as_ref()
    }

    /// Wake this thread at the last end, or at each end.
    pub(super) fn set_waiter(&self, waiter: Option<(Thread, bool)>) {
        self.lock().waiter = waiter;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One operation of a batch: the keeper that a requester holds.
pub(super) struct BatchEntry<M> {
    pub(super) batch: Arc<Batch<M>>,
    pub(super) index: u32,
}
