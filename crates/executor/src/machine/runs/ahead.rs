//! Prefetching: a request is handed to a worker that still runs another one of its name.
//!
//! A worker that receives each request singly sleeps and is woken once for each, which costs several times what a short
//! request takes. So a request may wait in the inbox of a worker instead of the lane's queue: it is *handed*. It is
//! claimed as any other, and begins when those before it have ended; the worker answers one before it begins the next,
//! so that at its death the first one without an answer is the only one that may have begun.
//!
//! Waiting there must not delay a request. It is handed only if no worker could take it at once (or if one that could
//! would have to share its core with workers that run such short requests), and only as much as takes `ahead_ms_max` by
//! the mean of the lane. What waits behind one run for longer than that is *recalled* as soon as another worker could
//! run it: its worker returns it, unless it has begun it, and it is queued again. The span is longer than most runs
//! that are worth handing, because on a loaded machine a worker gets its core late, and what looks like a long run is
//! none.
//!
//! Only the worker knows whether the recall or the beginning came first, so nothing is taken back before the worker
//! says so or has died. A returned request is in no list until that is committed: its attempt number is used again, and
//! no change still on its way may then count for the new run.

use crate::action::Action;
use crate::machine::entry::Entry;
use crate::machine::parts::Parts;
use crate::machine::register::Key;
use crate::machine::workers::{Stage, Worker};
use crate::request::{Lane, Millis, Slot};

impl Parts {
    /// The first request of a lane with the worker to hand it to: the one with the fewest.
    pub(super) fn behind(&self, now: Millis, lane: Lane) -> Option<(Key, Slot)> {
        // Only the first in turn: prefetching must not overtake.
        let key = self.queues.head(lane, 0)?;
        let entry = self.register.get(key)?;
        let ahead = entry.options().ahead;
        if ahead == 0 || lane == Lane::Async {
            return None;
        }
        let lane_workers = self.workers.of_lane(lane);
        // Starting workers will take as many.
        if lane_workers.starting() as usize >= self.queues.ready(lane) {
            return None;
        }
        let most = lane_workers.burst().runs_within(self.policy.ahead_ms_max);
        let most = most.min(u64::from(ahead));
        let may = |(slot, worker): &(Slot, &Worker)| {
            worker.lane() == lane
                && (worker.runs().len() as u64) <= most
                && self.takes_behind(now, entry.name(), worker)
                && self.admission.fits_behind(&self.policy, entry, *slot)
        };
        let takers = self.workers.iter().filter(may);
        let (slot, _) = takers.min_by_key(|(_, worker)| worker.runs().len())?;
        Some((key, slot))
    }

    /// Whether a worker runs requests of this name alone, stays, and began its current run recently.
    fn takes_behind(&self, now: Millis, name: u32, worker: &Worker) -> bool {
        let stays =
            worker.stage() == Stage::Up && !worker.is_leaving() && worker.expelled().is_none();
        if worker.waits()
            || !stays
            || worker.uses() >= self.policy.worker_uses_max
            || worker.is_idle()
        {
            return false;
        }
        let mut entries = worker.runs().iter().map(|key| self.register.get(*key));
        let long = |began: Millis| now.saturating_sub(began) >= self.policy.ahead_ms_max;
        entries.all(|entry| {
            let run = entry
                .filter(|entry| entry.name() == name)
                .and_then(Entry::run);
            run.is_some_and(|run| run.stop.is_none() && (run.handed || !long(run.began)))
        })
    }

    /// Begins the first handed request of a worker: those before it have ended.
    pub(super) fn begin_next(&mut self, now: Millis, slot: Slot) {
        let worker = self.workers.get(slot);
        let Some(key) = worker.and_then(|worker| worker.runs().first().copied()) else {
            return;
        };
        let Some(entry) = self.register.get_mut(key).filter(|entry| entry.is_handed()) else {
            return;
        };
        let waits = entry.begin_handed(now);
        self.workers.run_began(entry.lane(), now);
        self.admission.promise_next(&self.policy, entry, slot);
        let stop = entry.run().and_then(|run| run.stop);
        if let Some(stop) = stop {
            self.step(now, key, stop.step); // it was cancelled, and its worker did not return it
        } else {
            let timeout = entry.options().timeout_ms;
            let due = timeout.map(|span| now.saturating_add(span));
            self.queues.set_due(key, entry, due);
        }
        if waits {
            self.begin_wait(now, key);
        }
    }

    /// Recalls a handed request, once.
    pub(super) fn recall(&mut self, key: Key) {
        if let Some(entry) = self.register.get_mut(key)
            && let Some(slot) = entry.recall()
        {
            let (id, attempt) = (entry.id(), entry.attempts());
            self.actions.push(Action::Recall { slot, id, attempt });
        }
    }

    /// Recalls everything that was handed to a worker.
    pub(in crate::machine) fn recall_behind(&mut self, slot: Slot) {
        let runs = self.workers.get(slot).map(|worker| worker.runs().to_vec());
        for key in runs.into_iter().flatten() {
            self.recall(key);
        }
    }

    pub(in crate::machine) fn recall_all(&mut self) {
        let slots: Vec<Slot> = self.handing().map(|(slot, _)| slot).collect();
        for slot in slots {
            self.recall_behind(slot);
        }
    }

    /// Recalls what waits behind a long run, if another worker could run it.
    pub(in crate::machine) fn recall_late(&mut self, now: Millis) {
        let late = self.helped().filter(|(_, due)| *due <= now);
        let late: Vec<Slot> = late.map(|(slot, _)| slot).collect();
        for slot in late {
            self.recall_behind(slot);
        }
    }

    /// Whether a worker that runs one request at a time is idle.
    pub(in crate::machine) fn is_open(&self) -> bool {
        let sync = [Lane::Short, Lane::Long];
        sync.iter().any(|lane| self.workers.open(*lane).is_some())
    }

    pub(in crate::machine) fn recall_due(&self) -> Option<Millis> {
        self.helped().map(|(_, due)| due).min()
    }

    /// Of the handing workers, those whose lane has a free worker, or may have one more.
    fn helped(&self) -> impl Iterator<Item = (Slot, Millis)> + '_ {
        let more = self.policy.burst && self.workers.alive() < self.policy.workers_max;
        self.handing().filter(move |(slot, _)| {
            let lane = self.workers.get(*slot).map(Worker::lane);
            more || lane.is_some_and(|lane| self.workers.open(lane).is_some())
        })
    }

    /// Workers with handed requests, and when those are to be recalled.
    fn handing(&self) -> impl Iterator<Item = (Slot, Millis)> + '_ {
        let sync = self
            .workers
            .iter()
            .filter(|(_, worker)| worker.lane() != Lane::Async && worker.runs().len() > 1);
        sync.filter_map(|(slot, worker)| {
            let run = |key: &Key| self.register.get(*key)?.run();
            let mut behind = worker.runs()[1..].iter().rev().filter_map(run);
            let first = worker.runs().first().and_then(run)?;
            let due = first.began.saturating_add(self.policy.ahead_ms_max);
            // A run is recalled once; its worker answers when it can.
            behind.any(|run| !run.recalled).then_some((slot, due))
        })
    }
}
