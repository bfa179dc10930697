//! Starts workers on demand, ends those that are idle, worn or of old code.

use std::sync::Arc;

use super::{Stage, Worker, WorkerSet};
use crate::action::Action;
use crate::machine::notes::seconds;
use crate::machine::policy::{LANES, Policy};
use crate::request::{Death, Lane, Millis, Slot};

/// Doublings of the time between two attempts to start a worker.
const DOUBLINGS_MAX: u32 = 16;

/// How starts of workers have gone.
#[derive(Debug, Default)]
pub(super) struct Starts {
    /// Failures in a row.
    failures: u32,
    /// No start before then.
    due: Option<Millis>,
    why: Option<Arc<str>>,
}

impl Starts {
    fn wait(&self, now: Millis) -> bool {
        self.due.is_some_and(|due| due > now)
    }

    fn reason(&self, now: Millis) -> Option<(String, String)> {
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

/// Starts.
impl WorkerSet {
    /// A lane has a definition or a request: it keeps its guaranteed workers from now on.
    pub(crate) fn use_lane(&mut self, lane: Lane) {
        self.by_lane[lane as usize].in_use = true;
    }

    /// The code that new workers import. The failed starts so far were those of the old code.
    pub(crate) fn install(&mut self, code: Arc<str>) {
        self.code = code;
        self.starts = Starts::default();
    }

    /// The code that new workers import.
    pub(crate) fn code(&self) -> &Arc<str> {
        &self.code
    }

    /// Starts a worker.
    pub(crate) fn start(
        &mut self,
        now: Millis,
        lane: Lane,
        burst: bool,
        policy: &Policy,
        actions: &mut Vec<Action>,
    ) -> Slot {
        if burst {
            self.by_lane[lane as usize].burst.started();
        }
        // A worker started on demand fills a gap among the guaranteed ones, so that no further one has to.
        let burst = burst && self.of_lane(lane).guaranteed >= policy.guaranteed(lane);
        let slot = self.add(Worker::new(lane, Arc::clone(&self.code), burst, now));
        actions.push(Action::Start { slot, lane });
        slot
    }

    /// Whether a worker is being started.
    pub(crate) fn is_starting(&self, slot: Slot) -> bool {
        self.get(slot)
            .is_some_and(|worker| worker.stage == Stage::Starting)
    }

    /// It can take requests. `false`: it was not being started.
    pub(crate) fn started(&mut self, now: Millis, slot: Slot, actions: &mut Vec<Action>) -> bool {
        let Some(worker) = self
            .get(slot)
            .filter(|worker| worker.stage == Stage::Starting)
        else {
            return false;
        };
        let leaving = worker.leaving;
        // One success ends the back-off: the application can be imported.
        self.starts = Starts::default();
        self.up(slot, now);
        if leaving {
            self.stop(slot, actions);
        }
        true
    }

    /// Whether the death of a worker counts as a failed start, and what is said of it: the worker ran nothing.
    pub(crate) fn failed_start(&self, slot: Slot, death: &Death) -> Option<Arc<str>> {
        let worker = self.get(slot)?;
        let wanted = worker.stage == Stage::Stopping || worker.leaving;
        if worker.uses > 0 || wanted || &*death.cause == "node_lost" {
            return None;
        }
        let code = death.exit_code.map(|code| format!(", exit code {code}"));
        let signal = death.signal.map(|signal| format!(", signal {signal}"));
        let how = code.or(signal).unwrap_or_default();
        let why = format!(
            "it died at once ({}{how}) {}",
            death.cause, death.last_output
        );
        Some(why.trim_end().into())
    }

    /// Counts a failed start; gives how many there were in a row. `None`: it is one of several that died together.
    pub(crate) fn count_failed_start(&mut self, now: Millis) -> Option<u32> {
        if self.starts.wait(now) {
            return None;
        }
        self.starts.failures = self.starts.failures.saturating_add(1);
        Some(self.starts.failures.min(DOUBLINGS_MAX))
    }

    /// Starts no worker before this time.
    pub(crate) fn delay_starts(&mut self, until: Millis, why: Arc<str>) {
        self.starts.due = Some(until);
        self.starts.why = Some(why);
    }

    /// Why no worker starts, with what a person can do.
    pub(crate) fn start_reason(&self, now: Millis) -> Option<(String, String)> {
        self.starts.reason(now)
    }

    /// When starts that failed are tried again.
    pub(crate) fn starts_due(&self) -> Option<Millis> {
        self.starts.due
    }

    /// Whether starts are waiting for the time of the next attempt.
    pub(crate) fn waits_to_start(&self, now: Millis) -> bool {
        self.starts.wait(now)
    }

    /// Whether a lane may have one more worker: each lane in use keeps one, whatever the others hold.
    pub(crate) fn may_start(&self, now: Millis, lane: Lane, policy: &Policy) -> bool {
        if self.starts.wait(now) {
            return false;
        }
        // While starts fail, one is attempted at a time.
        if self.starts.failures > 0 && LANES.iter().any(|lane| self.of_lane(*lane).starting > 0) {
            return false;
        }
        self.has_worker_slot(lane, policy)
    }

    /// Whether one more worker of a lane leaves each other lane in use the slot that is kept for it.
    pub(crate) fn has_worker_slot(&self, lane: Lane, policy: &Policy) -> bool {
        if self.of_lane(lane).alive == 0 {
            return true;
        }
        let without = self
            .by_lane
            .iter()
            .filter(|other| other.in_use && other.alive == 0);
        let kept = u32::try_from(without.count()).unwrap_or_default();
        self.alive() + kept < policy.workers_max
    }

    /// Whether one more worker of a lane would help the first of its `ready` requests.
    pub(crate) fn wants_burst(
        &mut self,
        now: Millis,
        lane: Lane,
        ready: usize,
        policy: &Policy,
    ) -> bool {
        let lane_workers = &mut self.by_lane[lane as usize];
        if lane_workers.starting as usize >= ready {
            return false;
        }
        let alive = lane_workers.alive;
        // Up to the number of cores more workers always help, as they do when those of the async lane are full.
        let few = alive < policy.cores() || lane == Lane::Async;
        let while_ms = policy.burst_run_ms_min;
        alive == 0
            || policy.burst
                && (few
                    || lane_workers
                        .burst
                        .helps(now, while_ms, alive, lane_workers.running))
    }

    /// Whether a lane in use has fewer guaranteed workers than it keeps.
    pub(crate) fn wants_guaranteed(&self, lane: Lane, policy: &Policy) -> bool {
        let lane_workers = self.of_lane(lane);
        lane_workers.in_use && lane_workers.guaranteed < policy.guaranteed(lane)
    }

    /// Whether each core has a worker of this lane that runs something short: one more that is woken would take a core
    /// from them, as a started one would (`burst.rs`).
    pub(crate) fn is_crowded(&self, lane: Lane, policy: &Policy) -> bool {
        let short = self.of_lane(lane).burst.is_short(policy.burst_run_ms_min);
        let busy = |worker: &Worker| worker.lane == lane && !worker.is_idle() && !worker.waits();
        let cores = policy.cores() as usize;
        short && self.iter().filter(|(_, worker)| busy(worker)).count() >= cores
    }
}

/// Ends.
impl WorkerSet {
    pub(crate) fn stop(&mut self, slot: Slot, actions: &mut Vec<Action>) {
        self.stopping(slot);
        actions.push(Action::Stop { slot });
    }

    /// Between two requests: replaces a worker that is worn, ends one that is leaving. `grown` is what its private
    /// memory has grown by since it was new.
    pub(crate) fn after_run(
        &mut self,
        now: Millis,
        slot: Slot,
        grown: u64,
        policy: &Policy,
        actions: &mut Vec<Action>,
    ) {
        let Some(worker) = self.get(slot).filter(|worker| worker.stage == Stage::Up) else {
            return;
        };
        // A leak of the application grows with each use, and fragmentation with age.
        let worn = worker.uses >= policy.worker_uses_max
            || now.saturating_sub(worker.born) >= policy.worker_age_max_ms
            || grown > policy.worker_growth_max_bytes;
        let idle = worker.is_idle();
        if worn && !worker.leaving {
            self.leave(slot);
        }
        if idle && self.get(slot).is_some_and(|worker| worker.leaving) {
            self.stop(slot, actions);
        }
    }

    /// Makes workers of another code end after their runs. Those that are being started are given: they will not run
    /// the request that they were started for.
    pub(crate) fn replace_old_code(&mut self, actions: &mut Vec<Action>) -> Vec<Slot> {
        let old = self.iter().filter(|(_, worker)| worker.code != self.code);
        let old: Vec<_> = old
            .map(|(slot, worker)| (slot, worker.stage, worker.is_idle()))
            .collect();
        for (slot, stage, idle) in &old {
            self.leave(*slot);
            if *stage == Stage::Up && *idle {
                self.stop(*slot, actions);
            }
        }
        let starting = old
            .into_iter()
            .filter(|(_, stage, _)| *stage == Stage::Starting);
        starting.map(|(slot, ..)| slot).collect()
    }

    /// Ends burst workers that have been idle for their time.
    pub(crate) fn end_idle(&mut self, now: Millis, policy: &Policy, actions: &mut Vec<Action>) {
        for lane in LANES {
            let long = |since: Millis| since.saturating_add(policy.worker_idle_ms) <= now;
            let due = self.idle(lane).filter(|(_, since)| long(*since));
            let due: Vec<Slot> = due.map(|(slot, _)| slot).collect();
            for slot in due {
                self.stop(slot, actions);
            }
        }
    }

    pub(crate) fn idle_due(&self, policy: &Policy) -> Option<Millis> {
        let idle = LANES.iter().flat_map(|lane| self.idle(*lane));
        let since = idle.map(|(_, since)| since).min()?;
        Some(since.saturating_add(policy.worker_idle_ms))
    }
}
