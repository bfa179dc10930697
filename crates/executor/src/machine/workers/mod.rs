//! The workers: the stage of each, what it runs, which of a lane have room.
//!
//! The counts of a lane and its lists of workers with room agree with the workers after each method. When workers start
//! and end is decided in `staff`. What memory they have is the admission's to know.

mod burst;
mod staff;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::register::Key;
use crate::request::{Lane, Millis, Slot};
use burst::Burst;
use staff::Starts;

/// The stage of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Starting,
    /// It can run requests, and may be running some.
    Up,
    /// It was told to end, and takes nothing more.
    Stopping,
}

/// One worker, from the decision to start it until its death is known.
#[derive(Debug)]
pub(crate) struct Worker {
    lane: Lane,
    /// The code that its template had imported.
    code: Arc<str>,
    stage: Stage,
    burst: bool,
    born: Millis,
    /// When it last became idle.
    idle_since: Millis,
    uses: u64,
    /// Requests that it runs, was handed, or is reserved for while their row is being committed.
    runs: Vec<Key>,
    /// Of them, those that wait for their children.
    waiting: u32,
    /// It takes nothing more and no longer counts; it is ended once its runs have ended.
    leaving: bool,
    /// Why the guard ended it.
    expelled: Option<Expelled>,
}

/// The peak at which the guard ended a worker; `within`: it had not outgrown its estimate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expelled {
    pub peak_bytes: u64,
    pub limit_bytes: u64,
    pub within: bool,
}

impl Worker {
    fn new(lane: Lane, code: Arc<str>, burst: bool, now: Millis) -> Self {
        Self {
            lane,
            code,
            stage: Stage::Starting,
            burst,
            born: now,
            idle_since: now,
            uses: 0,
            runs: Vec::new(),
            waiting: 0,
            leaving: false,
            expelled: None,
        }
    }

    pub(crate) fn lane(&self) -> Lane {
        self.lane
    }

    pub(crate) fn stage(&self) -> Stage {
        self.stage
    }

    /// It was started on demand, and ends when it has been idle for a while.
    pub(crate) fn is_burst(&self) -> bool {
        self.burst
    }

    pub(crate) fn born(&self) -> Millis {
        self.born
    }

    /// Runs that it was given.
    pub(crate) fn uses(&self) -> u64 {
        self.uses
    }

    /// Requests that it runs, was handed, or is reserved for while their row is being committed.
    pub(crate) fn runs(&self) -> &[Key] {
        &self.runs
    }

    /// It takes nothing more, and is ended once its runs have ended.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// Why the guard ended it.
    pub(crate) fn expelled(&self) -> Option<Expelled> {
        self.expelled
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.runs.is_empty()
    }

    /// Whether what it runs waits for its children: it takes nothing more until then, and its place is another's.
    pub(crate) fn waits(&self) -> bool {
        self.waiting > 0 && self.lane != Lane::Async
    }

    /// Whether it counts among the workers of its lane.
    fn counts(&self) -> bool {
        !self.leaving && !self.waits()
    }

    fn has_room(&self, at_once: u32) -> bool {
        self.stage == Stage::Up
            && !self.leaving
            && match self.lane {
                Lane::Async => self.runs.len() - (self.waiting as usize) < at_once as usize,
                Lane::Short | Lane::Long => self.is_idle(),
            }
    }
}

/// One lane's workers.
#[derive(Debug, Default)]
pub(crate) struct LaneWorkers {
    /// Workers with room for a request, guaranteed ones and burst ones apart. Dispatch takes the last, so that the
    /// first have been idle longest and can end.
    open: [VecDeque<Slot>; 2],
    starting: u32,
    starting_burst: u32,
    /// Workers that are not leaving, nor wait for the children of what they run.
    alive: u32,
    guaranteed: u32,
    /// The lane has a definition or had a request: it keeps its guaranteed workers, and a slot of its own.
    in_use: bool,
    /// Requests that have a worker, without those that wait for their children.
    running: u32,
    /// Those that do.
    waiting: u32,
    burst: Burst,
}

impl LaneWorkers {
    /// Workers that are being started.
    pub(crate) fn starting(&self) -> u32 {
        self.starting
    }

    /// Burst workers that are being started.
    pub(crate) fn starting_burst(&self) -> u32 {
        self.starting_burst
    }

    /// Workers that are not leaving, nor wait for the children of what they run.
    pub(crate) fn alive(&self) -> u32 {
        self.alive
    }

    /// The lane has a definition or had a request.
    pub(crate) fn is_in_use(&self) -> bool {
        self.in_use
    }

    /// Requests that have a worker, without those that wait for their children.
    pub(crate) fn running(&self) -> u32 {
        self.running
    }

    /// Requests that wait for their children.
    pub(crate) fn waiting(&self) -> u32 {
        self.waiting
    }

    /// What its runs were like lately.
    pub(crate) fn burst(&self) -> &Burst {
        &self.burst
    }
}

/// All workers by slot.
#[derive(Debug, Default)]
pub(crate) struct WorkerSet {
    slots: Vec<Option<Worker>>,
    free: BTreeSet<Slot>,
    by_lane: [LaneWorkers; 3],
    async_at_once: u32,
    /// The code that new workers import.
    code: Arc<str>,
    starts: Starts,
}

impl WorkerSet {
    pub(crate) fn new(async_at_once: u32) -> Self {
        Self {
            async_at_once,
            ..Self::default()
        }
    }

    pub(crate) fn of_lane(&self, lane: Lane) -> &LaneWorkers {
        &self.by_lane[lane as usize]
    }

    /// Workers that are not ending.
    pub(crate) fn alive(&self) -> u32 {
        self.by_lane
            .iter()
            .map(|lane_workers| lane_workers.alive)
            .sum()
    }

    /// Whether no request has a worker.
    pub(crate) fn runs_nothing(&self) -> bool {
        self.by_lane
            .iter()
            .all(|lane_workers| lane_workers.running + lane_workers.waiting == 0)
    }

    pub(crate) fn get(&self, slot: Slot) -> Option<&Worker> {
        self.slots.get(slot as usize)?.as_ref()
    }

    fn get_mut(&mut self, slot: Slot) -> Option<&mut Worker> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Slot, &Worker)> + Clone {
        let numbered = (0..).zip(self.slots.iter());
        numbered.filter_map(|(slot, worker)| Some((slot, worker.as_ref()?)))
    }

    /// Puts a worker that is being started into the first free slot.
    fn add(&mut self, worker: Worker) -> Slot {
        let lane_workers = &mut self.by_lane[worker.lane as usize];
        lane_workers.starting += 1;
        lane_workers.starting_burst += u32::from(worker.burst);
        lane_workers.alive += 1;
        lane_workers.guaranteed += u32::from(!worker.burst);
        // The lowest slot first, so that tables by slot stay short after a burst.
        if let Some(slot) = self.free.pop_first() {
            self.slots[slot as usize] = Some(worker);
            return slot;
        }
        self.slots.push(Some(worker));
        Slot::try_from(self.slots.len() - 1).unwrap_or(Slot::MAX)
    }

    /// Adds a worker of another server, which takes nothing more.
    pub(crate) fn adopt(&mut self, now: Millis, lane: Lane) -> Slot {
        let slot = self.add(Worker::new(lane, Arc::default(), true, now));
        self.up(slot, now);
        self.leave(slot);
        slot
    }

    /// Its process is ready.
    fn up(&mut self, slot: Slot, now: Millis) {
        let Some(worker) = self
            .get_mut(slot)
            .filter(|worker| worker.stage == Stage::Starting)
        else {
            return;
        };
        worker.stage = Stage::Up;
        worker.idle_since = now;
        // A worker that was given up while it started was uncounted then.
        if !worker.leaving {
            let lane = worker.lane;
            let burst = worker.burst;
            let lane_workers = &mut self.by_lane[lane as usize];
            lane_workers.starting -= 1;
            lane_workers.starting_burst -= u32::from(burst);
            self.opened(slot);
        }
    }

    /// Counts a request as a worker's, before its run begins. `true`: it is behind another one in a worker that runs
    /// one at a time.
    pub(crate) fn occupy(&mut self, lane: Lane, slot: Slot, key: Key) -> bool {
        self.by_lane[lane as usize].running += 1;
        let behind = self.change(slot, |worker| {
            worker.runs.push(key);
            lane != Lane::Async && worker.runs.len() > 1
        });
        behind == Some(true)
    }

    /// Takes a request from its worker, which has room for the next one unless it is leaving.
    pub(crate) fn release(&mut self, lane: Lane, slot: Slot, key: Key, now: Millis) {
        self.by_lane[lane as usize].running -= 1;
        self.change(slot, |worker| {
            match worker.runs.iter().rposition(|one| *one == key) {
                // Elsewhere the order is that in which the runs begin; here thousands begin at once.
                Some(index) if lane == Lane::Async => {
                    worker.runs.swap_remove(index);
                }
                Some(index) => {
                    worker.runs.remove(index);
                }
                None => {}
            }
            worker.idle_since = now;
        });
    }

    /// A run of a worker waits for its children: its place is free for another one.
    pub(crate) fn give_place(&mut self, lane: Lane, slot: Slot) {
        let lane_workers = &mut self.by_lane[lane as usize];
        lane_workers.running -= 1;
        lane_workers.waiting += 1;
        let Some(worker) = self.get(slot) else {
            return;
        };
        let before = worker.counts();
        self.change(slot, |worker| worker.waiting += 1);
        let after = self.get(slot).is_some_and(Worker::counts);
        self.by_lane[lane as usize].alive -= u32::from(before && !after);
    }

    /// Such a run goes on or ends: its worker counts again, beside the one that has its place.
    pub(crate) fn take_place(&mut self, lane: Lane, slot: Slot) {
        let lane_workers = &mut self.by_lane[lane as usize];
        lane_workers.waiting -= 1;
        lane_workers.running += 1;
        let counts_again = self.change(slot, |worker| {
            let before = worker.counts();
            worker.waiting -= 1;
            !before && worker.counts()
        });
        self.by_lane[lane as usize].alive += u32::from(counts_again == Some(true));
    }

    /// A worker was given a run.
    pub(crate) fn use_once(&mut self, slot: Slot) {
        if let Some(worker) = self.get_mut(slot) {
            worker.uses += 1;
        }
    }

    /// A worker has returned a run that it had not begun.
    pub(crate) fn unuse(&mut self, slot: Slot) {
        if let Some(worker) = self.get_mut(slot) {
            worker.uses -= 1;
        }
    }

    /// A run of a lane begins.
    pub(crate) fn run_began(&mut self, lane: Lane, now: Millis) {
        self.by_lane[lane as usize].burst.began(now);
    }

    /// A run of a lane has ended and took this long; `while_ms` is the greatest mean that any caller asks about.
    pub(crate) fn run_ended(&mut self, lane: Lane, now: Millis, took: u64, while_ms: u64) {
        self.by_lane[lane as usize].burst.ended(now, took, while_ms);
    }

    /// A worker with room for a request; guaranteed ones first, so that burst ones become idle.
    pub(crate) fn open(&self, lane: Lane) -> Option<Slot> {
        let [guaranteed, burst] = &self.of_lane(lane).open;
        guaranteed.back().or(burst.back()).copied()
    }

    /// Idle burst workers and since when, about the longest idle first.
    pub(crate) fn idle(&self, lane: Lane) -> impl Iterator<Item = (Slot, Millis)> + '_ {
        let burst = self.of_lane(lane).open[1].iter();
        let idle = burst.filter_map(|slot| Some((*slot, self.get(*slot)?)));
        let idle = idle.filter(|(_, worker)| worker.is_idle());
        idle.map(|(slot, worker)| (slot, worker.idle_since))
    }

    fn opened(&mut self, slot: Slot) {
        if let Some(worker) = self.get(slot) {
            let open = &mut self.by_lane[worker.lane as usize].open[usize::from(worker.burst)];
            open.push_back(slot);
        }
    }

    fn closed(&mut self, slot: Slot) {
        let Some(worker) = self.slots.get(slot as usize).and_then(Option::as_ref) else {
            return;
        };
        let open = &mut self.by_lane[worker.lane as usize].open[usize::from(worker.burst)];
        // Dispatch takes the last one, so the search usually ends at once.
        if let Some(index) = open.iter().rposition(|one| *one == slot) {
            open.remove(index);
        }
    }

    /// Changes a worker, and keeps the lists of workers with room correct.
    fn change<T>(&mut self, slot: Slot, change: impl FnOnce(&mut Worker) -> T) -> Option<T> {
        let at_once = self.async_at_once;
        let worker = self.get_mut(slot)?;
        let before = worker.has_room(at_once);
        let result = change(worker);
        let after = worker.has_room(at_once);
        match (before, after) {
            (true, false) => self.closed(slot),
            (false, true) => self.opened(slot),
            _ => {}
        }
        Some(result)
    }

    /// It takes nothing more, and another one may be started instead.
    pub(crate) fn leave(&mut self, slot: Slot) {
        let Some(worker) = self.get(slot).filter(|worker| !worker.leaving) else {
            return;
        };
        let (lane, burst, stage, counts) =
            (worker.lane, worker.burst, worker.stage, worker.counts());
        self.uncount(lane, burst, stage);
        self.by_lane[lane as usize].alive -= u32::from(counts);
        self.change(slot, |worker| worker.leaving = true);
    }

    /// The guard ends it: it is given nothing more until its death is known.
    pub(crate) fn expel(&mut self, slot: Slot, expelled: Expelled) {
        self.leave(slot);
        if let Some(worker) = self.get_mut(slot) {
            worker.expelled = Some(expelled);
        }
    }

    /// It was told to end: its slot stays taken until its death is known.
    fn stopping(&mut self, slot: Slot) {
        self.leave(slot);
        self.change(slot, |worker| worker.stage = Stage::Stopping);
    }

    fn uncount(&mut self, lane: Lane, burst: bool, stage: Stage) {
        let lane_workers = &mut self.by_lane[lane as usize];
        lane_workers.guaranteed -= u32::from(!burst);
        lane_workers.starting -= u32::from(stage == Stage::Starting);
        lane_workers.starting_burst -= u32::from(stage == Stage::Starting && burst);
    }

    /// Its death is known: its slot is free.
    pub(crate) fn remove(&mut self, slot: Slot) {
        // Its death may precede any decision to end it.
        self.leave(slot);
        let worker = self.slots.get_mut(slot as usize).and_then(Option::take);
        if worker.is_some() {
            self.free.insert(slot);
        }
    }

    /// Recounts a lane's workers.
    pub(crate) fn audit(&self, lane: Lane) -> Result<(), String> {
        let mine = || self.iter().filter(|(_, worker)| worker.lane == lane);
        let count = |which: &dyn Fn(&Worker) -> bool| {
            let staying = mine().filter(|(_, worker)| !worker.leaving && which(worker));
            u32::try_from(staying.count()).unwrap_or(u32::MAX)
        };
        let lane_workers = self.of_lane(lane);
        let counted = [
            count(&Worker::counts),
            count(&|worker| !worker.burst),
            count(&|worker| worker.stage == Stage::Starting),
            count(&|worker| worker.stage == Stage::Starting && worker.burst),
        ];
        let recorded = [
            lane_workers.alive,
            lane_workers.guaranteed,
            lane_workers.starting,
            lane_workers.starting_burst,
        ];
        if counted != recorded {
            return Err(format!(
                "{lane:?} workers are {counted:?}, recorded {recorded:?}"
            ));
        }
        let waiting: u32 = mine().map(|(_, worker)| worker.waiting).sum();
        if waiting != lane_workers.waiting {
            let recorded = lane_workers.waiting;
            return Err(format!(
                "{waiting} {lane:?} runs wait for their children, recorded {recorded}"
            ));
        }
        let mut open: Vec<Slot> = lane_workers.open.iter().flatten().copied().collect();
        open.sort_unstable();
        let room = mine().filter(|(_, worker)| worker.has_room(self.async_at_once));
        let with_room: Vec<Slot> = room.map(|(slot, _)| slot).collect();
        if open != with_room {
            return Err(format!(
                "{lane:?} workers with room are {with_room:?}, listed {open:?}"
            ));
        }
        Ok(())
    }
}
