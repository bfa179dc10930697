//! Starts workers on demand, ends those that are idle, worn or of old code.

use std::sync::Arc;

use super::{Stage, Worker};
use crate::action::Action;
use crate::machine::Machine;
use crate::machine::entry::Key;
use crate::machine::policy::LANES;
use crate::machine::runs::dispatch::LOOKAHEAD;
use crate::machine::why::seconds;
use crate::request::{Death, Lane, Millis, Slot};

/// Doublings of the time between two attempts to start a worker.
const DOUBLINGS_MAX: u32 = 16;

/// How starts of workers have gone.
#[derive(Debug, Default)]
pub(in crate::machine) struct Starts {
    /// Failures in a row.
    failures: u32,
    /// No start before then.
    due: Option<Millis>,
    why: Option<Arc<str>>,
}

impl Starts {
    pub(in crate::machine) fn recovered(&mut self) {
        *self = Self::default();
    }

    pub(in crate::machine) fn reason(&self, now: Millis) -> Option<(String, String)> {
        let why = self.why.as_deref()?;
        let wait = seconds(self.due.unwrap_or(now).saturating_sub(now));
        let text = format!(
            "workers do not start ({} times): {why}; the next try is in {wait}",
            self.failures
        );
        Some((
            text,
            "see the server's log; the application may not import in a worker".into(),
        ))
    }
}

impl Machine {
    /// A worker can take requests.
    pub fn worker_ready(&mut self, now: Millis, slot: Slot) {
        let Some(worker) = self
            .workers
            .get(slot)
            .filter(|worker| worker.stage == Stage::Starting)
        else {
            return;
        };
        let leaving = worker.leaving;
        // One success ends the back-off: the application can be imported.
        self.starts.recovered();
        // The need of the request that it was started for, which is promised again when that begins.
        self.set_promise(slot, 0);
        self.workers.up(slot, now);
        if leaving {
            self.stop(slot);
        }
        self.settle(now);
    }

    /// A worker could not be started, and there is no process.
    pub fn worker_failed(&mut self, now: Millis, slot: Slot, why: Arc<str>) {
        let stage = self.workers.get(slot).map(|worker| worker.stage);
        if stage != Some(Stage::Starting) {
            return;
        }
        self.start_failed(now, why);
        self.forget_worker(slot);
        self.settle(now);
    }

    /// The next attempt waits longer each time, so that a broken application does not occupy a core.
    fn start_failed(&mut self, now: Millis, why: Arc<str>) {
        if self.starts.due.is_some_and(|due| due > now) {
            return; // one of several that died together
        }
        self.starts.failures = self.starts.failures.saturating_add(1);
        let failed = self.starts.failures.min(DOUBLINGS_MAX);
        let (first, most) = (
            self.policy.start_backoff_ms,
            self.policy.start_backoff_max_ms,
        );
        let wait = self.jitter.backoff(first, most, failed);
        self.starts.due = Some(now.saturating_add(wait));
        self.starts.why = Some(why);
    }

    /// Counts the death of a worker that ran nothing as a failed start.
    pub(in crate::machine) fn start_ended(&mut self, now: Millis, slot: Slot, death: &Death) {
        let Some(worker) = self.workers.get(slot) else {
            return;
        };
        let wanted = worker.stage == Stage::Stopping || worker.leaving;
        if worker.uses == 0 && !wanted {
            let code = death.exit_code.map(|code| format!(", exit code {code}"));
            let signal = death.signal.map(|signal| format!(", signal {signal}"));
            let how = code.or(signal).unwrap_or_default();
            let why = format!(
                "it died at once ({}{how}) {}",
                death.cause, death.last_output
            );
            self.start_failed(now, why.trim_end().into());
        }
    }

    pub(in crate::machine) fn forget_worker(&mut self, slot: Slot) {
        self.set_promise(slot, 0);
        if let Some(worker) = self.workers.remove(slot) {
            self.room.gone(slot, worker.private);
        }
    }

    pub(in crate::machine) fn starts_due(&self) -> Option<Millis> {
        // A lane with a queue may be allowed another worker by the passing of time alone.
        let late = LANES.map(|lane| &self.lanes[lane as usize]).into_iter();
        let late = late.filter(|queue| !queue.ready.is_empty());
        let burst = late.map(|queue| queue.burst.due(self.policy.burst_run_ms_min));
        let burst = burst.filter(|at| *at > self.now).min();
        let again = self.starts.due.filter(|at| *at > self.now);
        [again, burst].into_iter().flatten().min()
    }

    /// Whether a lane may have one more worker: each lane in use keeps one, whatever the others hold.
    fn may_start(&self, now: Millis, lane: Lane) -> bool {
        if self.hold.is_some() || self.draining || self.starts.due.is_some_and(|due| due > now) {
            return false;
        }
        // While starts fail, one is attempted at a time.
        if self.starts.failures > 0
            && LANES
                .iter()
                .any(|lane| self.workers.of_lane(*lane).starting > 0)
        {
            return false;
        }
        self.has_worker_slot(lane)
    }

    /// Whether one more worker of a lane leaves each other lane in use the slot that is kept for it.
    fn has_worker_slot(&self, lane: Lane) -> bool {
        if self.workers.of_lane(lane).alive == 0 {
            return true;
        }
        let without = LANES.iter().filter(|other| {
            self.lanes[**other as usize].in_use && self.workers.of_lane(**other).alive == 0
        });
        let kept = u32::try_from(without.count()).unwrap_or_default();
        self.workers.alive() + kept < self.policy.workers_max
    }

    /// Whether one more worker of a lane would help the first of its queue.
    pub(in crate::machine) fn may_burst(&mut self, now: Millis, lane: Lane) -> bool {
        let queue = &mut self.lanes[lane as usize];
        let lane_workers = self.workers.of_lane(lane);
        if lane_workers.starting as usize >= queue.ready.len() {
            return false;
        }
        // Up to the number of cores more workers always help, as they do when those of the async lane are full.
        let few = lane_workers.alive < self.policy.cores() || lane == Lane::Async;
        let while_ms = self.policy.burst_run_ms_min;
        let wanted = lane_workers.alive == 0
            || self.policy.burst
                && (few
                    || queue
                        .burst
                        .helps(now, while_ms, lane_workers.alive, queue.running));
        if !wanted {
            return false;
        }
        self.may_start(now, lane) || self.make_room(now, lane)
    }

    /// Ends other lanes' idle burst workers if the number of workers is what keeps this lane waiting.
    fn make_room(&mut self, now: Millis, lane: Lane) -> bool {
        if self.starts.due.is_some_and(|due| due > now) {
            return false;
        }
        while !self.has_worker_slot(lane) {
            let mut others = LANES.iter().filter(|other| {
                **other != lane
                    && self.workers.of_lane(**other).alive > 1
                    && self.lanes[**other as usize].ready.is_empty()
            });
            let Some((slot, _)) = others.find_map(|other| self.workers.idle(*other).next()) else {
                return false;
            };
            if !self.fits_new(lane) {
                return false; // no waiting request would use the slot
            }
            self.stop(slot);
        }
        self.may_start(now, lane)
    }

    /// Whether a waiting request would begin in a new worker.
    fn fits_new(&self, lane: Lane) -> bool {
        let ready = &self.lanes[lane as usize].ready;
        let heads = (0..ready.submitters().min(LOOKAHEAD)).filter_map(|turn| ready.head(turn));
        let mut keys = heads.filter(|key| {
            let entry = self.register.get(*key);
            entry.is_some_and(|entry| !self.names.get(entry.name).is_full())
        });
        keys.any(|key| self.fits(key, None).is_ok())
    }

    pub(in crate::machine) fn start_burst(&mut self, now: Millis, lane: Lane, key: Key) {
        self.lanes[lane as usize].burst.started();
        let need = self.need_of_new(key);
        let slot = self.start(now, lane, true);
        self.set_promise(slot, need);
    }

    fn start(&mut self, now: Millis, lane: Lane, burst: bool) -> Slot {
        // A worker started on demand fills a gap among the guaranteed ones, so that no further one has to.
        let burst = burst && self.workers.of_lane(lane).guaranteed >= self.policy.guaranteed(lane);
        let base = self.room.base(&self.policy);
        let slot = self
            .workers
            .add(Worker::new(lane, Arc::clone(&self.code), burst, now, base));
        self.actions.push(Action::Start { slot, lane });
        slot
    }

    /// Keeps the guaranteed workers of the lanes in use.
    pub(in crate::machine) fn staff(&mut self, now: Millis) {
        for lane in LANES {
            while self.lanes[lane as usize].in_use
                && self.workers.of_lane(lane).guaranteed < self.policy.guaranteed(lane)
                && self.may_start(now, lane)
            {
                self.start(now, lane, false);
            }
        }
    }

    pub(in crate::machine) fn stop(&mut self, slot: Slot) {
        self.workers.stopping(slot);
        self.actions.push(Action::Stop { slot });
    }

    /// Between two requests: replaces a worker that is worn, ends one that is leaving.
    pub(in crate::machine) fn after_run(&mut self, now: Millis, slot: Slot) {
        let Some(worker) = self
            .workers
            .get(slot)
            .filter(|worker| worker.stage == Stage::Up)
        else {
            return;
        };
        let policy = &self.policy;
        // A leak of the application grows with each use, and fragmentation with age.
        let worn = worker.uses >= policy.worker_uses_max
            || now.saturating_sub(worker.born) >= policy.worker_age_max_ms
            || worker.private.saturating_sub(worker.base) > policy.worker_growth_max_bytes;
        let idle = worker.is_idle();
        if worn && !worker.leaving {
            self.workers.leave(slot);
        }
        if idle && self.workers.get(slot).is_some_and(|worker| worker.leaving) {
            self.stop(slot);
        }
    }

    /// Makes workers of another code end after their runs.
    pub(in crate::machine) fn replace_old_code(&mut self) {
        let old = self
            .workers
            .iter()
            .filter(|(_, worker)| worker.code != self.code);
        let old: Vec<_> = old
            .map(|(slot, worker)| (slot, worker.stage, worker.is_idle()))
            .collect();
        for (slot, stage, idle) in old {
            self.workers.leave(slot);
            // It will not run the request that it was started for.
            if stage == Stage::Starting {
                self.set_promise(slot, 0);
            }
            if stage == Stage::Up && idle {
                self.stop(slot);
            }
        }
    }

    /// Ends burst workers that have been idle for their time.
    pub(in crate::machine) fn end_idle(&mut self, now: Millis) {
        for lane in LANES {
            let long = |since: Millis| since.saturating_add(self.policy.worker_idle_ms) <= now;
            let due = self.workers.idle(lane).filter(|(_, since)| long(*since));
            let due: Vec<Slot> = due.map(|(slot, _)| slot).collect();
            for slot in due {
                self.stop(slot);
            }
        }
    }

    pub(in crate::machine) fn idle_due(&self) -> Option<Millis> {
        let idle = LANES.iter().flat_map(|lane| self.workers.idle(*lane));
        let since = idle.map(|(_, since)| since).min()?;
        Some(since.saturating_add(self.policy.worker_idle_ms))
    }
}
