//! The operations that the threads of the fallback carry out, lane by lane, and the ends of batches. Sans-I/O.
//!
//! Lane 0 holds all batches that were handed over; each other lane holds the batch of a caller that waits.
//! A caller works on its lane alone, without a lock, before it brings it here, and takes it away when its batch has ended.
//!
//! # Invariants
//!
//! 1. A thread takes one operation at a time: one that never ends, as a read from a pipe may, holds up no other.
//! 2. A lane other than 0 is taken away when its batch has ended, so a thread with an operation finds its lane in index.
//! 3. The thread that ends a batch gets its [`Ended`], and acts on it once it has let go of the lock.
use std::fmt;
use std::sync::Arc;

use crate::batch::Batch;
use crate::clients::{Clients, Notice};
use crate::completion::Completions;
use crate::engines::threads::waiter::Waiter;
use crate::flight::{Detached, Done, Flight, Keeper};
use crate::quarantine::Quarantine;
use crate::sys::transfer::Transfer;

/// Operations that a batch issues before it is another one's turn.
const TURN: u32 = 8;
/// The lane of batches that were handed over.
pub(crate) const HANDED: usize = 0;
/// The ticket of a caller's batch, which has its lane for itself.
pub(crate) const ALONE: u64 = 0;

/// The end of a caller's batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    /// Not by itself, but because the pool was closed.
    pub(crate) detached: bool,
}

/// Batches that take turns.
pub(crate) struct Lane {
    pub(crate) flight: Flight,
    /// The waiter for its one batch; none in lane 0.
    pub(crate) waiter: Option<Arc<Waiter>>,
    /// Slots that the caller keeps aside for the threads.
    pub(crate) aside: Vec<u32>,
    /// How its one batch has ended.
    pub(crate) ended: Option<End>,
    /// The caller has gone.
    given_up: bool,
}

impl fmt::Debug for Lane {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Lane")
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

impl Lane {
    /// Room for `slots` operations at once.
    pub(crate) fn new(slots: u32, waiter: Option<Arc<Waiter>>) -> Self {
        Self {
            flight: Flight::new(slots, TURN),
            waiter,
            aside: Vec::with_capacity(slots as usize),
            ended: None,
            given_up: false,
        }
    }
}

/// An operation that a thread has taken.
pub(crate) struct Job {
    lane: usize,
    slot: u32,
    pub(crate) transfer: Transfer,
}

/// The end of a batch, to be acted on without the lock.
pub(crate) enum Ended {
    Notify(Notice),
    Wake(Arc<Waiter>),
    Drop(Keeper),
}

/// All lanes.
pub(crate) struct Lanes {
    all: Vec<Option<Lane>>,
    /// Which lane is asked next.
    turn: usize,
    clients: Clients,
    quarantine: Arc<Quarantine>,
    /// What has not ended by now never gives its memory back.
    leaking: bool,
}

impl Lanes {
    pub(crate) fn new(slots: u32, quarantine: Arc<Quarantine>) -> Self {
        Self {
            all: vec![Some(Lane::new(slots, None))],
            turn: 0,
            clients: Clients::default(),
            quarantine,
            leaking: false,
        }
    }

    /// Take in a batch that was handed over; its end will be sent to `done`.
    pub(crate) fn hand(
        &mut self,
        batch: Batch,
        keeper: Keeper,
        ticket: u64,
        done: &Arc<Completions>,
        ended: &mut Vec<Ended>,
    ) {
        self.clients.enter(ticket, done, batch.count());
        let lane = self.all[HANDED].as_mut().expect("lane 0 stays");
        lane.flight.admit(batch, None, ticket, Some(keeper));
        self.collect(HANDED, ended); // one without operations
    }

    /// Bring a caller's lane; returns its index.
    pub(crate) fn insert(&mut self, lane: Lane) -> usize {
        let free = self.all.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.all.push(None);
            self.all.len() - 1
        });
        self.all[index] = Some(lane);
        index
    }

    /// Take a caller's lane away, if its batch has ended.
    pub(crate) fn remove_ended(&mut self, index: usize) -> Option<Lane> {
        let ended = self.all[index]
            .as_ref()
            .is_some_and(|lane| lane.ended.is_some());
        if ended { self.all[index].take() } else { None }
    }

    /// Whether there may be an operation to take.
    pub(crate) fn can_issue(&self) -> bool {
        self.all
            .iter()
            .flatten()
            .any(|lane| lane.flight.can_issue())
    }

    /// The next operation to carry out.
    pub(crate) fn next(&mut self, ended: &mut Vec<Ended>) -> Option<Job> {
        let count = self.all.len();
        for step in 0..count {
            let index = (self.turn + step) % count;
            let Some(lane) = &mut self.all[index] else {
                continue;
            };
            let issue = lane.flight.next();
            let job = issue.map(|issue| Job {
                lane: index,
                slot: issue.slot,
                transfer: Transfer::of(&issue),
            });
            // Some end without being carried out: an fsync after a failed write.
            self.collect(index, ended);
            if job.is_some() {
                self.turn = index + 1;
                return job;
            }
        }
        None
    }

    /// What a job came to.
    pub(crate) fn complete(&mut self, job: &Job, result: i32, ended: &mut Vec<Ended>) {
        let lane = self.all[job.lane].as_mut();
        let lane = lane.expect("a lane stays while an operation of it is carried out");
        lane.flight.complete(job.slot, result);
        self.collect(job.lane, ended);
    }

    /// The caller of a batch that was handed over stops waiting.
    pub(crate) fn detach(&mut self, ticket: u64, ended: &mut Vec<Ended>) {
        self.detach_in(HANDED, ticket, None);
        self.collect(HANDED, ended);
    }

    /// The caller of a lane whose batch has not ended goes; `keeper` owns the memory now. Returns what is left in flight.
    pub(crate) fn give_up(&mut self, index: usize, keeper: Keeper, ended: &mut Vec<Ended>) -> u32 {
        let lane = self.all[index].as_mut().expect("its batch is in it");
        lane.given_up = true;
        let left = self.detach_in(index, ALONE, Some(keeper));
        self.collect(index, ended);
        left
    }

    /// Issue nothing more of anything.
    pub(crate) fn detach_all(&mut self, ended: &mut Vec<Ended>) {
        for index in 0..self.all.len() {
            let Some(lane) = &self.all[index] else {
                continue;
            };
            let tickets: Vec<_> = lane.flight.tickets().collect();
            for ticket in tickets {
                self.detach_in(index, ticket, None);
            }
            self.collect(index, ended);
        }
    }

    /// Never give back the memory of what has not ended. Returns the operations, and whether this is the first time.
    pub(crate) fn leak(&mut self) -> (u32, bool) {
        let lanes = self.all.iter().flatten();
        let left = lanes.map(|lane| lane.flight.flying()).sum();
        (left, !std::mem::replace(&mut self.leaking, true))
    }

    fn detach_in(&mut self, index: usize, ticket: u64, keeper: Option<Keeper>) -> u32 {
        let lane = self.all[index].as_mut().expect("looked at by the caller");
        let Some(Detached { left, bytes }) = lane.flight.detach(ticket, keeper) else {
            return 0;
        };
        self.quarantine.enter(bytes);
        left
    }

    /// Take back a batch of which nothing was issued, because there is no thread: its lane, if it has one, and its keeper.
    ///
    /// The lock was not let go of since that was found: a thread would carry out what it has taken.
    pub(crate) fn refuse(&mut self, index: usize, ticket: u64) -> (Option<Lane>, Option<Keeper>) {
        let lane = self.all[index].as_mut().expect("its batch is in it");
        let detached = lane.flight.detach(ticket, None);
        debug_assert!(
            detached.is_none_or(|detached| detached.left == 0),
            "a thread has an operation of it"
        );
        let keeper = lane.flight.take_done().and_then(|done| done.keeper);
        if index == HANDED {
            self.clients.forget(ticket);
            return (None, keeper);
        }
        (self.all[index].take(), keeper)
    }

    /// Collect the ends of a lane's batches.
    fn collect(&mut self, index: usize, ended: &mut Vec<Ended>) {
        while let Some(lane) = &mut self.all[index]
            && let Some(done) = lane.flight.take_done()
        {
            let Done {
                ticket,
                keeper,
                detached,
                bytes,
            } = done;
            if detached {
                self.quarantine.leave(bytes);
            }
            let keeper = if self.leaking {
                std::mem::forget(keeper);
                None
            } else {
                keeper
            };
            if index == HANDED {
                ended.extend(self.clients.leave(ticket, keeper).map(Ended::Notify));
            } else if lane.given_up {
                ended.extend(keeper.map(Ended::Drop));
                self.all[index] = None;
            } else {
                lane.ended = Some(End { detached });
                ended.extend(lane.waiter.clone().map(Ended::Wake));
            }
        }
    }
}

#[cfg(test)]
mod tests;
