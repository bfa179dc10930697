//! Requests that are handed to a worker while it still runs another one of their name.
//!
//! A worker that has to be told of each request sleeps and is woken once for each, which costs several times what
//! a short request takes. So a request may wait in the inbox of a worker instead of the lane's queue: it is
//! *handed*. It is claimed as any other, and begins when those before it have ended; the worker answers one
//! before it begins the next, so that at its death the first one without an answer is the only one that may
//! have begun.
//!
//! Waiting there must cost nobody anything. A request is handed only where nobody could take it at once (or whoever
//! could would have to share its core with those that run such short ones), for so
//! many runs as take `ahead_ms_max` by the mean of the lane; and what waits behind one run for longer than that
//! is *recalled* as soon as somebody else could run it: its worker gives it back, unless it has begun it, and it is
//! queued again. The span is longer than most runs that are worth handing, because on a loaded machine a worker gets
//! its core late, and what looks like a long run is none.
//! Only the worker knows which of the two came first, so nothing is taken back before it says so, or has died.
//! What comes back is in no list until that is committed: the number of its run is used again, and no change
//! that is still on its way may then be taken for one of the new run.

use crate::action::Action;
use crate::id::RequestId;
use crate::machine::Machine;
use crate::machine::entry::{Entry, Key, Reason, State};
use crate::machine::workers::{Stage, Worker};
use crate::op::Op;
use crate::request::{Lane, Millis, Slot};

impl Machine {
    /// A worker has given a run back that it had not begun, and will not begin it. Ignored where it is not that
    /// worker's.
    pub fn returned(&mut self, now: Millis, slot: Slot, id: RequestId, attempt: u32) {
        let Some(key) = self.register.key(id) else {
            return;
        };
        let mine = self.register.get(key).is_some_and(|entry| {
            let run = entry.run().filter(|run| run.slot == slot);
            run.is_some() && entry.attempts == attempt && entry.lane() != Lane::Async
        });
        if !mine {
            return;
        }
        let was_next = !self.is_handed(key);
        self.take_back(now, key, slot);
        if was_next {
            self.begin_next(now, slot);
        }
        self.after_run(now, slot);
        self.settle(now);
    }

    pub(in crate::machine) fn is_handed(&self, key: Key) -> bool {
        let run = self.register.get(key).and_then(|entry| entry.run());
        run.is_some_and(|run| run.handed)
    }

    /// The first request of a lane, and the worker that may be handed it: the one with the fewest.
    pub(in crate::machine) fn behind(&self, now: Millis, lane: Lane) -> Option<(Key, Slot)> {
        let queue = &self.lanes[lane as usize];
        let key = queue.ready.head(0)?;
        let entry = self.register.get(key)?;
        let ahead = entry.options().ahead;
        if ahead == 0 || lane == Lane::Async {
            return None;
        }
        // Those that start take as many.
        if self.workers.row(lane).starting as usize >= queue.ready.len() {
            return None;
        }
        let most = queue.burst.runs_within(self.policy.ahead_ms_max);
        let most = most.min(u64::from(ahead));
        let may = |(slot, worker): &(Slot, &Worker)| {
            worker.lane == lane
                && (worker.runs.len() as u64) <= most
                && self.takes_behind(now, entry.name, worker)
                && self.fits_behind(key, *slot)
        };
        let takers = self.workers.iter().filter(may);
        let (slot, _) = takers.min_by_key(|(_, worker)| worker.runs.len())?;
        Some((key, slot))
    }

    /// Each core has a worker of this lane that runs something short: one more that is woken would take a core from
    /// them, as one that is started would (`burst.rs`).
    pub(in crate::machine) fn is_crowded(&self, lane: Lane) -> bool {
        let short = self.lanes[lane as usize]
            .burst
            .is_short(self.policy.burst_run_ms_min);
        let busy = |worker: &Worker| worker.lane == lane && !worker.is_idle();
        let cores = self.policy.cores() as usize;
        short
            && self
                .workers
                .iter()
                .filter(|(_, worker)| busy(worker))
                .count()
                >= cores
    }

    /// It runs requests of this name alone, is to run more, and has not been at the first one for long.
    fn takes_behind(&self, now: Millis, name: u32, worker: &Worker) -> bool {
        let stays = worker.stage == Stage::Up && !worker.leaving && worker.expelled.is_none();
        if !stays || worker.uses >= self.policy.worker_uses_max || worker.runs.is_empty() {
            return false;
        }
        let mut entries = worker.runs.iter().map(|key| self.register.get(*key));
        let long = |began: Millis| now.saturating_sub(began) >= self.policy.ahead_ms_max;
        entries.all(|entry| {
            let run = entry
                .filter(|entry| entry.name == name)
                .and_then(Entry::run);
            run.is_some_and(|run| run.stop.is_none() && (run.handed || !long(run.began)))
        })
    }

    /// The first of those that a worker was handed begins: those before it have ended.
    pub(in crate::machine) fn begin_next(&mut self, now: Millis, slot: Slot) {
        let first = self
            .workers
            .get(slot)
            .and_then(|worker| worker.runs.first());
        let Some(key) = first.copied().filter(|key| self.is_handed(*key)) else {
            return;
        };
        let Some(entry) = self.register.get_mut(key) else {
            return;
        };
        let (lane, timeout) = (entry.lane(), entry.options().timeout_ms);
        let Some(run) = entry.run_mut() else {
            return;
        };
        run.handed = false;
        run.began = now;
        let stop = run.stop;
        self.lanes[lane as usize].burst.began(now);
        self.promise_next(key, slot);
        if let Some(stop) = stop {
            self.step(now, key, stop.step); // it was cancelled, and its worker did not give it back
        } else if let Some(entry) = self.register.get_mut(key) {
            let due = timeout.map(|span| now.saturating_add(span));
            self.timers.set(key, &mut entry.due, due);
        }
    }

    /// Its worker will not run it: it is queued again, or ends where that is what it was recalled for.
    pub(in crate::machine) fn take_back(&mut self, now: Millis, key: Key, slot: Slot) {
        self.release(now, key, slot);
        self.workers.change(slot, |worker| worker.uses -= 1);
        let Some(entry) = self.register.get_mut(key) else {
            return;
        };
        let stop = entry.run().and_then(|run| run.stop);
        entry.cancelled |= stop.is_some_and(|stop| stop.reason == Reason::Cancel);
        entry.state = State::Unclaiming;
        self.timers.set(key, &mut entry.due, None);
        let (id, attempt) = (entry.request.id, entry.attempts);
        // Nobody began that run: its number is used again.
        entry.attempts -= 1;
        let text = format!("worker {slot} gave it back before it began");
        entry.notes.add(now, text);
        self.write(now, key, Op::Unclaim { id, attempt });
    }

    /// Asks for a handed request back, once.
    pub(in crate::machine) fn recall(&mut self, key: Key) {
        let Some(entry) = self.register.get_mut(key) else {
            return;
        };
        let (id, attempt) = (entry.request.id, entry.attempts);
        if let Some(run) = entry.run_mut()
            && run.handed
            && !std::mem::replace(&mut run.recalled, true)
        {
            let slot = run.slot;
            self.actions.push(Action::Recall { slot, id, attempt });
        }
    }

    /// Asks for everything back that was handed to a worker.
    fn recall_behind(&mut self, slot: Slot) {
        let runs = self.workers.get(slot).map(|worker| worker.runs.clone());
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

    /// Asks for what waits behind a run that takes long, where somebody else could run it.
    pub(in crate::machine) fn recall_late(&mut self, now: Millis) {
        let late = self.helped().filter(|(_, due)| *due <= now);
        let late: Vec<Slot> = late.map(|(slot, _)| slot).collect();
        for slot in late {
            self.recall_behind(slot);
        }
    }

    /// Some worker that runs one request at a time has nothing to do.
    pub(in crate::machine) fn is_open(&self) -> bool {
        let sync = [Lane::Short, Lane::Long];
        sync.iter().any(|lane| self.workers.open(*lane).is_some())
    }

    pub(in crate::machine) fn recall_due(&self) -> Option<Millis> {
        self.helped().map(|(_, due)| due).min()
    }

    /// Of the workers that hold requests those of whose lane another one is free, or may be started.
    fn helped(&self) -> impl Iterator<Item = (Slot, Millis)> + '_ {
        let more = self.policy.burst && self.workers.alive() < self.policy.workers_max;
        self.handing().filter(move |(slot, _)| {
            let lane = self.workers.get(*slot).map(|worker| worker.lane);
            more || lane.is_some_and(|lane| self.workers.open(lane).is_some())
        })
    }

    /// Workers that hold requests behind the one that they run, and when those are to be recalled.
    fn handing(&self) -> impl Iterator<Item = (Slot, Millis)> + '_ {
        let sync = self
            .workers
            .iter()
            .filter(|(_, worker)| worker.lane != Lane::Async && worker.runs.len() > 1);
        sync.filter_map(|(slot, worker)| {
            let run = |key: &Key| self.register.get(*key)?.run();
            let mut behind = worker.runs[1..].iter().rev().filter_map(run);
            let first = worker.runs.first().and_then(run)?;
            let due = first.began.saturating_add(self.policy.ahead_ms_max);
            behind.any(|run| !run.recalled).then_some((slot, due))
        })
    }
}
