//! Admission: whether a request fits by memory as measured or learnt, by cores as asked for.
//!
//! A request is admitted while resident memory, what running requests may still grow by, and its own estimate stay
//! within the limit. Only private memory counts: pages shared with the template are resident anyway. If nothing
//! synchronous runs, one request is admitted whatever it needs.
//!
//! A long request whose name has no estimate begins if nothing else of its lane runs, or half of the limit is free, and
//! no other one begins until it has ended or stopped growing. A short one is assumed to need `short_unknown_bytes`,
//! since it must not wait for long ones to end. Requests of the async lane are many in one worker, which is measured as
//! a whole.

pub(super) mod estimate;
mod guard;

use std::collections::BTreeSet;

use super::Machine;
use super::entry::Key;
use super::policy::Policy;
use super::why::megabytes;
use crate::request::{Lane, Millis, Slot};

/// The part of the limit that the long lane leaves to a short request, at most.
const KEPT_PART: u64 = 8;
/// The part of the limit that must be free for a request of unknown need while others run.
const UNKNOWN_PART: u64 = 2;

/// What is in use now.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// Memory of the machine or its cgroup: as measured, corrected by each later measurement of a worker.
    measured: u64,
    /// Of that, what the workers were measured to have.
    pub private: u64,
    /// What running and starting workers may still grow by.
    pub promised: u64,
    /// Fraction of the time that tasks stalled for memory.
    pub pressure: f32,
    /// The worker whose run has an unknown need.
    pub alone: Option<Slot>,
    /// Readings without growth of that worker.
    pub level: u32,
    /// Private bytes of a worker that has run nothing, as last measured.
    pub base: Option<u64>,
    /// Thousandths of a core that the running requests of each lane asked for. Lanes are counted apart: a short request
    /// does not wait for the cores of long ones, which the kernel shares out.
    cores_milli: [u32; 3],
    /// What short requests needed lately.
    short_bytes: u64,
    /// When the guard last ended a worker.
    pub guard_at: Millis,
    /// Memory was full and no worker had outgrown its estimate: those that have not been read since.
    pub unread: Option<BTreeSet<Slot>>,
}

impl Room {
    pub(super) fn base(&self, policy: &Policy) -> u64 {
        self.base.unwrap_or(policy.worker_bytes)
    }

    /// What the running requests of each lane asked for.
    pub(super) fn cores_milli(&self) -> [u32; 3] {
        self.cores_milli
    }

    /// Memory in use. A reading of the machine that is older than its workers' growth is not believed.
    pub(super) fn resident(&self) -> u64 {
        self.measured.max(self.private)
    }

    pub(super) fn machine_has(&mut self, bytes: u64) {
        self.measured = bytes;
    }

    /// The private bytes of a worker went from `old` to `new`.
    pub(super) fn worker_has(&mut self, old: u64, new: u64) {
        // The machine's reading is up to a period old, and this one is new.
        self.measured = (self.measured + new).saturating_sub(old);
        self.private = self.private + new - old;
    }

    /// A worker was read, or is gone.
    pub(super) fn read(&mut self, slot: Slot) {
        if let Some(unread) = &mut self.unread {
            unread.remove(&slot);
        }
    }

    pub(super) fn gone(&mut self, slot: Slot, private: u64) {
        self.read(slot);
        self.worker_has(private, 0);
        if self.alone == Some(slot) {
            self.alone = None;
        }
    }
}

/// Why a request cannot run now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Blocked {
    Memory {
        need: u64,
        free: u64,
        limit: u64,
    },
    /// Its need is unknown, and others run.
    Unknown {
        running: u32,
    },
    /// Another request runs alone.
    Alone,
    Pressure {
        part: f32,
    },
    Cores {
        need: u32,
        taken: u32,
        most: u32,
    },
}

impl Blocked {
    /// Whether its own size keeps it, so that letting it wait in front makes sense.
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
                    "its need of memory is unknown, so it runs alone first; {running} others run"
                )
            }
            Self::Alone => "another request runs alone until its need of memory is known".into(),
            Self::Pressure { part } => {
                format!(
                    "the machine stalls for memory {:.0} % of the time",
                    part * 100.0
                )
            }
            Self::Cores { need, taken, most } => {
                format!("asks for {need} thousandths of a core, {taken} of {most} are taken")
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
    /// Private bytes of its worker at the peak, as far as they are known.
    fn estimate(&self, key: Key) -> Option<u64> {
        let entry = self.register.get(key)?;
        let base = self.room.base(&self.policy);
        let lane = entry.lane();
        if lane == Lane::Async {
            return Some(base);
        }
        let hint = entry.options().memory_bytes;
        let hint = hint.map(|bytes| bytes.saturating_add(base));
        let peaks = &self.names.get(entry.name).peaks;
        // The larger one: a hint that is too small must not hide what was measured.
        let known = hint.max(peaks.estimate(&entry.request.submission.code));
        let taken = (lane == Lane::Short).then_some(self.policy.short_unknown_bytes);
        known.or(taken.map(|bytes| bytes.saturating_add(base)))
    }

    /// What a worker that is started for a request will need.
    pub(super) fn need_of_new(&self, key: Key) -> u64 {
        let base = self.room.base(&self.policy);
        self.estimate(key).unwrap_or(base)
    }

    /// Whether a request may begin in a worker that has room, or in a new one.
    pub(super) fn fits(&self, key: Key, slot: Option<Slot>) -> Result<(), Blocked> {
        let Some(entry) = self.register.get(key) else {
            return Ok(());
        };
        let lane = entry.lane();
        let running = |lane: Lane| self.lanes[lane as usize].running;
        let mut busy = running(Lane::Short) + running(Lane::Long);
        if slot.is_none() {
            // A starting worker was started for a request that is about to run.
            busy +=
                self.workers.starting_burst(Lane::Short) + self.workers.starting_burst(Lane::Long);
        }
        // One request always runs, whatever it needs: it would otherwise wait for ever.
        if busy == 0 {
            return Ok(());
        }
        if lane != Lane::Async {
            self.fits_cores(lane, entry.options().cpu_milli)?;
        }
        let Some(limit) = self.policy.memory_limit else {
            return Ok(());
        };
        if self.room.pressure > self.policy.pressure_max {
            return Err(Blocked::Pressure {
                part: self.room.pressure,
            });
        }
        // No promise covers the growth of that request.
        if lane == Lane::Long && self.room.alone.is_some() {
            return Err(Blocked::Alone);
        }
        let long = running(Lane::Long)
            + u32::from(slot.is_none()) * self.workers.starting_burst(Lane::Long);
        match self.estimate(key) {
            Some(estimate) => self.fits_memory(lane, estimate, slot, limit),
            None if long == 0 => self.fits_memory(lane, self.room.base(&self.policy), slot, limit),
            // Beside others only where half of the limit is free: those others may run for ever.
            None => self
                .fits_memory(lane, limit / UNKNOWN_PART, slot, limit)
                .map_err(|_| Blocked::Unknown { running: long }),
        }
    }

    fn fits_cores(&self, lane: Lane, need: u32) -> Result<(), Blocked> {
        let taken = self.room.cores_milli[lane as usize];
        let most = self
            .policy
            .cores_milli
            .saturating_mul(self.policy.cpu_factor_max);
        if taken.saturating_add(need) > most {
            return Err(Blocked::Cores { need, taken, most });
        }
        Ok(())
    }

    fn fits_memory(
        &self,
        lane: Lane,
        estimate: u64,
        slot: Option<Slot>,
        limit: u64,
    ) -> Result<(), Blocked> {
        let worker = slot.and_then(|slot| self.workers.get(slot));
        // The memory that its worker already has is resident, and not needed again.
        let need = estimate.saturating_sub(worker.map_or(0, |worker| worker.private));
        let taken = self.room.resident().saturating_add(self.room.promised);
        let kept = part(limit, self.policy.memory_free_fraction) + self.kept_for_short(lane, limit);
        let most = limit.saturating_sub(kept);
        let free = most.saturating_sub(taken);
        if taken.saturating_add(need) > most {
            return Err(Blocked::Memory { need, free, limit });
        }
        Ok(())
    }

    /// Memory that the other lanes leave free, so that the next short request finds room while none runs.
    fn kept_for_short(&self, lane: Lane, limit: u64) -> u64 {
        let short = &self.lanes[Lane::Short as usize];
        if lane == Lane::Short || !short.in_use || short.running > 0 {
            return 0;
        }
        let lately = match self.room.short_bytes {
            0 => self.policy.short_unknown_bytes,
            bytes => bytes,
        };
        lately.min(limit / KEPT_PART)
    }

    /// Counts what a request may still grow by as its worker's, with its cores.
    pub(super) fn promise(&mut self, key: Key, slot: Slot) {
        let Some(entry) = self.register.get(key) else {
            return;
        };
        let lane = entry.lane();
        if lane == Lane::Async {
            return;
        }
        self.room.cores_milli[lane as usize] += entry.options().cpu_milli;
        if self.policy.memory_limit.is_none() {
            return;
        }
        let estimate = self.estimate(key);
        if estimate.is_none() {
            self.room.alone = Some(slot);
            self.room.level = 0;
        }
        let Some(worker) = self.workers.get_mut(slot) else {
            return;
        };
        worker.estimate = estimate.unwrap_or_default();
        worker.unmeasured = None;
        let growth = worker.estimate.saturating_sub(worker.private);
        if lane == Lane::Short {
            // It decays slowly, so that one small run does not give the reserve away.
            self.room.short_bytes = growth.max(self.room.short_bytes / 8 * 7);
        }
        self.set_promise(slot, growth);
    }

    /// A handed request begins: it may grow to what the one before it was admitted for.
    pub(super) fn promise_next(&mut self, key: Key, slot: Slot) {
        let Some(entry) = self.register.get(key) else {
            return;
        };
        self.room.cores_milli[entry.lane() as usize] += entry.options().cpu_milli;
        if self.policy.memory_limit.is_some()
            && let Some(worker) = self.workers.get(slot)
        {
            let growth = worker.estimate.saturating_sub(worker.private);
            self.set_promise(slot, growth);
        }
    }

    /// Whether a request needs no more than what its worker's run was admitted for, as far as that is known.
    pub(super) fn fits_behind(&self, key: Key, slot: Slot) -> bool {
        if self.policy.memory_limit.is_none() {
            return true;
        }
        let admitted = self.workers.get(slot).map_or(0, |worker| worker.estimate);
        self.room.alone != Some(slot) && self.estimate(key).is_some_and(|need| need <= admitted)
    }

    /// Takes back what `promise` counted.
    pub(super) fn unpromise(&mut self, key: Key, slot: Slot) {
        let Some(entry) = self.register.get(key) else {
            return;
        };
        let lane = entry.lane();
        if lane == Lane::Async {
            return;
        }
        self.room.cores_milli[lane as usize] -= entry.options().cpu_milli;
        self.set_promise(slot, 0);
        if self.room.alone == Some(slot) {
            self.room.alone = None;
        }
    }

    /// Sets what a worker may still grow by.
    pub(super) fn set_promise(&mut self, slot: Slot, bytes: u64) {
        if let Some(worker) = self.workers.get_mut(slot) {
            self.room.promised = self.room.promised - worker.promise + bytes;
            worker.promise = bytes;
        }
    }
}

/// Part of a number of bytes.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "limits are far below 2^53 bytes, and a fraction is positive"
)]
pub(super) fn part(bytes: u64, fraction: f32) -> u64 {
    (f64::from(fraction) * bytes as f64) as u64
}
