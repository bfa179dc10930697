//! The fallback where `io_uring` is forbidden: batches carried out by threads, each with one system call at a time.
//!
//! # Reads that need no waiting
//!
//! A caller that waits for its batch first reads what is in the page cache by itself (`preadv2` with `RWF_NOWAIT`).
//! It does so on a lane of its own, so without a lock, and no thread can take an operation from it meanwhile.
//! What would have to wait is put aside, at most one operation for each thread;
//! then, or at the end, the lane goes to the threads, and the caller waits for one wake-up.
//! Asked for each operation again, or of the threads, a read from the page cache would cost a third more.
//!
//! Direct I/O, writes and syncs always wait, and go to the threads at once.

mod lane;
mod pool;
mod sync;
mod waiter;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use forebay_base::process;

use crate::batch::Batch;
use crate::completion::{Completions, GivingUp, OPERATIONS_UNASKED};
use crate::engines::ring::driver::Counts;
use crate::engines::threads::lane::{ALONE, End, HANDED, Lane};
use crate::engines::threads::pool::Pool;
use crate::engines::threads::waiter::{Waited, Waiter};
use crate::error::Error;
use crate::flight::Keeper;
use crate::operation::Kind;
use crate::shared::{Shared, close_deadline};
use crate::sys::transfer::Transfer;

/// Threads that carry out batches.
#[derive(Debug)]
pub(crate) struct Threads {
    pool: Arc<Pool>,
    /// Lanes that callers have used, for the next ones.
    spare: Mutex<Vec<Lane>>,
    epoch: u64,
}

impl Threads {
    /// Nothing is started before it is needed.
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self {
            pool: Arc::new(Pool::new(shared)),
            spare: Mutex::default(),
            epoch: process::epoch(),
        }
    }

    /// Carry out a batch; it is done when this returns, unless it was given up.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`], [`Error::Closed`], or [`Error::System`] if there is no thread.
    pub(crate) fn run(&self, batch: Batch, giving_up: &mut dyn GivingUp) -> Result<(), Error> {
        let operations = batch.count() as u64;
        let mut lane = self.lane();
        lane.flight.admit(batch, None, ALONE, None);
        let interrupted = pass(&mut lane, giving_up);
        if interrupted {
            // The kernel has nothing of it.
            lane.flight.detach(ALONE, None);
        }
        if lane.flight.take_done().is_none() {
            lane = self.hand_over(lane, giving_up)?;
        }
        self.spare(lane);
        if interrupted {
            return Err(Error::Interrupted { left: 0 });
        }
        self.pool.shared.count(Counts::of(operations));
        Ok(())
    }

    /// Have the threads carry out what the caller did not, and wait for the end.
    fn hand_over(&self, mut lane: Lane, giving_up: &mut dyn GivingUp) -> Result<Lane, Error> {
        let waiter = lane.waiter.clone().expect("a caller's lane has one");
        waiter.reset();
        let ready = lane.flight.retracted();
        let mut state = self.pool.lock();
        if state.stopping {
            // What was not read yet says so in its results.
            lane.flight.detach(ALONE, None);
            return Err(Error::Closed);
        }
        let index = state.lanes.insert(lane);
        self.pool
            .call(state, ready)
            .map_err(|refused| refused.take_back(index, ALONE))?;
        while waiter.wait() == Waited::Interrupted {
            if giving_up.interrupted() {
                return Err(self.give_up(index, giving_up.keeper()));
            }
        }
        let taken = self.pool.lock().lanes.remove_ended(index);
        let mut lane = taken.expect("its batch has ended");
        match lane.ended.take() {
            Some(End { detached: true }) => Err(Error::Closed),
            _ => Ok(lane),
        }
    }

    /// Leave a batch behind; `keeper` owns its memory until the threads have let go of it.
    fn give_up(&self, index: usize, keeper: Keeper) -> Error {
        let mut ended = Vec::new();
        let mut state = self.pool.lock();
        // It may have ended while the caller was asked; its waiter may be woken yet, so it is not used again.
        let lane = state.lanes.remove_ended(index);
        let left = if lane.is_some() {
            0
        } else {
            state.lanes.give_up(index, keeper, &mut ended)
        };
        drop(state);
        self.pool.notify(&mut ended);
        Error::Interrupted { left }
    }

    /// Hand a batch over; its end comes to `done` under `ticket`.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], or [`Error::System`] if there is no thread; nothing was carried out then, and `keeper` is dropped.
    pub(crate) fn submit(
        &self,
        batch: Batch,
        keeper: Keeper,
        ticket: u64,
        done: &Arc<Completions>,
    ) -> Result<(), Error> {
        let operations = batch.count();
        let mut ended = Vec::new();
        let mut state = self.pool.lock();
        if state.stopping {
            return Err(Error::Closed);
        }
        state.lanes.hand(batch, keeper, ticket, done, &mut ended);
        self.pool
            .call(state, operations)
            .map_err(|refused| refused.take_back(HANDED, ticket))?;
        self.pool.notify(&mut ended);
        Ok(())
    }

    /// The caller of a batch that was handed over stops waiting; its end is sent all the same.
    pub(crate) fn detach(&self, ticket: u64) {
        let mut ended = Vec::new();
        self.pool.lock().lanes.detach(ticket, &mut ended);
        self.pool.notify(&mut ended);
    }

    /// Refuse further batches, issue nothing more, and wait until the threads have ended. Idempotent.
    ///
    /// Returns the operations that have not ended at the deadline; the owners of their memory are leaked.
    pub(crate) fn close(&self, deadline: Instant) -> u64 {
        let left = self.pool.close(deadline);
        u64::from(left)
    }

    fn lane(&self) -> Lane {
        let spare = self
            .spare
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        spare.unwrap_or_else(|| {
            let slots = self.pool.shared.config.threads;
            Lane::new(slots, Some(Arc::new(Waiter::default())))
        })
    }

    fn spare(&self, lane: Lane) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        spare.push(lane); // at most one for each caller at a time
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if self.epoch == process::epoch() {
            self.pool.close(close_deadline());
        } else {
            self.pool.abandon();
        }
    }
}

/// Carry out what needs no waiting; returns whether the caller was interrupted.
///
/// Afterwards the batch has ended, or its lane is for the threads.
fn pass(lane: &mut Lane, giving_up: &mut dyn GivingUp) -> bool {
    let Lane { flight, aside, .. } = lane;
    let mut reads = 0;
    let mut interrupted = false;
    while !interrupted && let Some(issue) = flight.next() {
        let (slot, transfer) = (issue.slot, Transfer::of(&issue));
        let waits = issue.kind != Kind::Read || issue.file.is_direct();
        let read = if waits { None } else { transfer.read_now() };
        let Some(result) = read else {
            aside.push(slot);
            continue;
        };
        flight.complete(slot, result);
        reads += 1;
        if reads % OPERATIONS_UNASKED == 0 {
            interrupted = giving_up.interrupted();
        }
    }
    // Backwards, because each goes to the front.
    while let Some(slot) = aside.pop() {
        flight.retract(slot);
    }
    interrupted
}
