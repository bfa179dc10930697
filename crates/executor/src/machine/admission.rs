//! Whether a request fits: memory as measured and learnt, and cores as asked for.
//!
//! A request is admitted while resident + what the running may still grow by + its own estimate is within
//! the limit; one runs always. What counts is private memory: pages shared with the template are resident
//! anyway. A name without an estimate runs alone until it has ended or stopped growing.

use super::Machine;
use super::entry::Key;
use super::policy::Policy;
use super::why::megabytes;
use crate::action::Action;
use crate::request::{Lane, Millis, Slot};

/// Readings without growth after which a run has levelled off; the gauge makes one each 100 ms.
const LEVEL_READINGS: u32 = 5;
/// Growth between two readings that counts as none.
const LEVEL_BYTES: u64 = 1_000_000;

/// What is known of the memory now.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Of the machine or its cgroup: as measured, and corrected by each measurement of a worker since.
    pub resident: u64,
    /// What the running and the starting may still grow by.
    pub promised: u64,
    pressure: f32,
    /// The worker whose run nobody knows the need of.
    alone: Option<Slot>,
    level: u32,
    /// Private bytes of a worker that has run nothing, as last measured.
    base: Option<u64>,
}

impl Memory {
    pub(super) fn base(&self, policy: &Policy) -> u64 {
        self.base.unwrap_or(policy.worker_bytes)
    }

    pub(super) fn gone(&mut self, slot: Slot, private: u64) {
        self.resident = self.resident.saturating_sub(private);
        if self.alone == Some(slot) {
            self.alone = None;
        }
    }
}

/// Why a request cannot run now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocked {
    Memory {
        need: u64,
        free: u64,
        limit: u64,
    },
    /// Nobody knows what it needs, and others run.
    Unknown {
        running: u32,
    },
    /// Somebody else runs alone.
    Alone,
    Pressure {
        percent: u32,
    },
    Cores {
        need: u32,
        used: u32,
        most: u32,
    },
}

impl Blocked {
    /// It is the request's own size that keeps it, so that waiting for it makes sense.
    pub(super) fn is_of_itself(&self) -> bool {
        matches!(
            self,
            Self::Memory { .. } | Self::Unknown { .. } | Self::Cores { .. }
        )
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::Memory { need, free, limit } => format!(
                "needs {}, {} free of {}",
                megabytes(*need),
                megabytes(*free),
                megabytes(*limit)
            ),
            Self::Unknown { running } => {
                format!(
                    "its need of memory is not known, so it runs first alone; {running} others run"
                )
            }
            Self::Alone => "another request runs alone until its need of memory is known".into(),
            Self::Pressure { percent } => {
                format!("the machine stalls for memory {percent} % of the time")
            }
            Self::Cores { need, used, most } => {
                format!("needs {need} thousandths of a core, {used} of {most} are taken")
            }
        }
    }

    pub(super) fn next(&self) -> String {
        match self {
            Self::Memory { .. } => "wait, lower memory=, or give the server more memory",
            Self::Unknown { .. } | Self::Alone => "say memory= in the request's definition",
            Self::Pressure { .. } => "wait, or give the server more memory",
            Self::Cores { .. } => "wait, or lower cpu=",
        }
        .into()
    }
}

impl Machine {
    fn running(&self) -> u32 {
        self.lanes.iter().map(|lane| lane.running).sum()
    }

    /// Private bytes of its worker at the peak, as far as anybody knows.
    fn estimate(&self, key: Key) -> Option<u64> {
        let entry = self.register.get(key)?;
        let base = self.memory.base(&self.policy);
        if entry.lane() == Lane::Async {
            return Some(base); // what its requests need is measured in their worker
        }
        let hint = entry
            .options()
            .memory_bytes
            .map(|bytes| bytes.saturating_add(base));
        let peaks = &self.names.get(entry.name).peaks;
        let learnt = peaks.estimate(&entry.request.submission.code);
        let known = hint.max(learnt);
        let short = entry.lane() == Lane::Short;
        known.or(short.then_some(self.policy.short_unknown_bytes.saturating_add(base)))
    }

    /// What a worker that is started for a request is going to need.
    pub(super) fn need_of_new(&self, key: Key) -> u64 {
        self.estimate(key)
            .unwrap_or_else(|| self.memory.base(&self.policy))
    }

    /// Whether a request may begin in a worker that has room, or in a new one.
    pub(super) fn fits(&self, _now: Millis, key: Key, slot: Option<Slot>) -> Result<(), Blocked> {
        let Some(limit) = self.policy.memory_limit else {
            return Ok(());
        };
        let running = self.running();
        if running == 0 {
            return Ok(());
        }
        let Some(estimate) = self.estimate(key) else {
            return Err(Blocked::Unknown { running });
        };
        let lane = self.lane_of(key).unwrap_or(Lane::Long);
        if lane == Lane::Long && self.memory.alone.is_some() {
            return Err(Blocked::Alone);
        }
        let worker = slot.and_then(|slot| self.workers.get(slot));
        let need = estimate.saturating_sub(worker.map_or(0, |worker| worker.private));
        let kept = (f64::from(self.policy.memory_free_fraction) * limit as f64) as u64;
        let taken = self.memory.resident.saturating_add(self.memory.promised);
        let free = limit.saturating_sub(kept).saturating_sub(taken);
        if need > free {
            return Err(Blocked::Memory { need, free, limit });
        }
        Ok(())
    }

    /// Counts what a request may still grow by, as its worker's.
    pub(super) fn promise(&mut self, key: Key, slot: Slot) {
        if self.policy.memory_limit.is_none() || self.lane_of(key) == Some(Lane::Async) {
            return;
        }
        let estimate = self.estimate(key);
        if estimate.is_none() {
            self.memory.alone = Some(slot);
            self.memory.level = 0;
        }
        let Some(worker) = self.workers.get_mut(slot) else {
            return;
        };
        worker.estimate = estimate.unwrap_or_default();
        worker.unmeasured = None;
        self.start_promise(
            slot,
            worker_growth(estimate, self.workers.get(slot).map_or(0, |w| w.private)),
        );
    }

    pub(super) fn unpromise(&mut self, _key: Key, slot: Slot) {
        self.start_promise(slot, 0);
        if self.memory.alone == Some(slot) {
            self.memory.alone = None;
        }
    }

    /// Sets what a worker may still grow by.
    pub(super) fn start_promise(&mut self, slot: Slot, bytes: u64) {
        if let Some(worker) = self.workers.get_mut(slot) {
            self.memory.promised = self.memory.promised - worker.promise + bytes;
            worker.promise = bytes;
        }
    }

    /// A run has ended, with this peak where it was measured.
    pub(super) fn learn(&mut self, _now: Millis, key: Key, slot: Slot, peak: Option<u64>) {
        let Some(entry) = self.register.get(key) else {
            return;
        };
        if self.policy.memory_limit.is_none() || entry.lane() == Lane::Async {
            return;
        }
        let code = std::sync::Arc::clone(&entry.request.submission.code);
        let name = entry.name;
        let Some(bytes) = peak else {
            if let Some(worker) = self.workers.get_mut(slot) {
                worker.unmeasured = Some((name, code));
                self.actions.push(Action::Measure { slot });
            }
            return;
        };
        self.names.get_mut(name).peaks.learn(&code, bytes);
    }
}

impl Machine {
    /// A worker has this many private bytes. Tell all workers before `machine_measured`.
    pub fn measured(&mut self, now: Millis, slot: Slot, private_bytes: u64) {
        let Some(worker) = self.workers.get_mut(slot) else {
            return;
        };
        let grown = private_bytes.saturating_sub(worker.private);
        let shrunk = worker.private.saturating_sub(private_bytes);
        worker.private = private_bytes;
        if worker.uses == 0 && worker.is_idle() {
            worker.base = private_bytes;
            self.memory.base = Some(private_bytes);
        }
        self.memory.resident = (self.memory.resident + grown).saturating_sub(shrunk);
        let left = worker
            .promise
            .min(worker.estimate.saturating_sub(private_bytes));
        let promise = if worker.runs.is_empty() {
            worker.promise
        } else {
            left
        };
        let unmeasured = worker.unmeasured.take();
        let run = worker.runs.first().copied();
        self.start_promise(slot, promise);
        if let Some((name, code)) = unmeasured {
            self.names.get_mut(name).peaks.learn(&code, private_bytes);
        }
        if let Some(run) = run
            .and_then(|key| self.register.get_mut(key))
            .and_then(|one| one.run_mut())
        {
            run.peak = run.peak.max(Some(private_bytes));
        }
        if self.memory.alone == Some(slot) {
            self.watch_level(slot, grown, private_bytes);
        }
        self.settle(now);
    }

    /// What runs alone has stopped growing: what it has now is the estimate of its name until it ends.
    fn watch_level(&mut self, slot: Slot, grown: u64, private: u64) {
        self.memory.level = if grown > LEVEL_BYTES {
            0
        } else {
            self.memory.level + 1
        };
        if self.memory.level < LEVEL_READINGS {
            return;
        }
        let key = self
            .workers
            .get(slot)
            .and_then(|worker| worker.runs.first().copied());
        if let Some(entry) = key.and_then(|key| self.register.get(key)) {
            let code = std::sync::Arc::clone(&entry.request.submission.code);
            self.names.get_mut(entry.name).peaks.level(&code, private);
        }
        self.memory.alone = None;
    }

    /// The machine or its cgroup has `resident` bytes of anonymous memory, and stalled for memory this part of
    /// the time (0 where the kernel does not tell).
    pub fn machine_measured(&mut self, now: Millis, resident: u64, pressure: f32) {
        self.memory.resident = resident;
        self.memory.pressure = pressure;
        self.settle(now);
    }
}

fn worker_growth(estimate: Option<u64>, private: u64) -> u64 {
    estimate.unwrap_or_default().saturating_sub(private)
}
