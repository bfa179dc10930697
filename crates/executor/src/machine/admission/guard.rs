//! Uses the gauge's measurements: learns what runs need, ends a worker that outgrew its limit before the kernel acts.
//!
//! The kernel's OOM killer chooses a victim by size, possibly the server. So the guard acts a little below the limit,
//! and chooses a worker whose run needs more than it was admitted for (`expulsion_rank`).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::estimate::Peaks;
use super::{Admission, WorkerMemory, part};
use crate::machine::entry::Entry;
use crate::machine::policy::Policy;
use crate::machine::register::Register;
use crate::machine::workers::{Expelled, Stage, Worker, WorkerSet};
use crate::request::{Lane, Millis, Slot};

/// Readings without growth after which a run has levelled off; the gauge makes one each 100 ms.
const LEVEL_READINGS: u32 = 5;
/// Growth between two readings that does not count.
const LEVEL_BYTES: u64 = 1_000_000;
/// How long a worker that was told to end has to give its memory back, before the next one must.
const GUARD_MS: u64 = 500;

/// The worker that the guard ends.
#[derive(Clone, Copy, Debug)]
pub(in crate::machine) enum Guarded {
    Idle(Slot),
    Busy(Slot, Expelled),
}

/// A peak that was learnt.
#[derive(Debug)]
pub(in crate::machine) struct NewPeak {
    pub name: u32,
    pub code: Arc<str>,
    pub bytes: u64,
}

/// The run was too short for the gauge: its worker is to be measured.
#[derive(Clone, Copy, Debug)]
pub(in crate::machine) struct Unmeasured;

/// What the measurements say.
impl Admission {
    pub(in crate::machine) fn base(&self, policy: &Policy) -> u64 {
        self.base.unwrap_or(policy.worker_bytes)
    }

    /// Memory in use. A reading of the machine that is older than its workers' growth is not believed.
    pub(in crate::machine) fn resident(&self) -> u64 {
        self.measured.max(self.private)
    }

    /// What the workers were measured to have.
    pub(in crate::machine) fn private(&self) -> u64 {
        self.private
    }

    /// What a worker was measured to have.
    pub(in crate::machine) fn private_of(&self, slot: Slot) -> u64 {
        self.worker(slot).map_or(0, |memory| memory.private)
    }

    /// What the private memory of a worker has grown by since it was new.
    pub(in crate::machine) fn grown(&self, slot: Slot) -> u64 {
        self.worker(slot).map_or(0, WorkerMemory::grown)
    }

    /// The private bytes of a worker went from `old` to `new`.
    pub(super) fn worker_has(&mut self, old: u64, new: u64) {
        // The machine's reading is up to a period old, and this one is new.
        self.measured = (self.measured + new).saturating_sub(old);
        self.private = self.private + new - old;
    }

    /// A worker was read, or is gone.
    pub(super) fn was_read(&mut self, slot: Slot) {
        if let Some(unread) = &mut self.unread {
            unread.remove(&slot);
        }
    }

    /// Records the memory of the machine or its cgroup, and the fraction of the time that tasks stalled for memory.
    pub(in crate::machine) fn machine_measured(&mut self, resident: u64, pressure: f32) {
        self.measured = resident;
        self.pressure = pressure;
    }

    /// Records a worker's private bytes. A peak that a restart should know is given.
    pub(in crate::machine) fn worker_measured(
        &mut self,
        register: &mut Register,
        slot: Slot,
        worker: &Worker,
        bytes: u64,
    ) -> Option<NewPeak> {
        self.was_read(slot);
        let memory = self.worker_mut(slot)?;
        let before = std::mem::replace(&mut memory.private, bytes);
        // Its growth so far is resident now, and no longer promised.
        let left = memory.estimate.saturating_sub(bytes);
        let run = worker.runs().first().copied();
        let run = run.filter(|_| worker.lane() != Lane::Async);
        let unmeasured = match run {
            Some(_) => None,
            None => memory.unmeasured.take(),
        };
        // A worker that has run nothing shows what a new one has.
        if worker.uses() == 0 && worker.is_idle() {
            memory.base = bytes;
            self.base = Some(bytes);
        }
        self.worker_has(before, bytes);
        if let Some(run) = run {
            // What waits for its children has given that back.
            self.set_promise(slot, if worker.waits() { 0 } else { left });
            if let Some(entry) = register.get_mut(run) {
                entry.note_peak(bytes);
            }
        }
        let learnt = unmeasured.and_then(|(name, code)| self.learn_peak(name, code, bytes));
        if self.alone == Some(slot) {
            let entry = worker.runs().first().and_then(|run| register.get(*run));
            self.watch_level(slot, entry, bytes.saturating_sub(before), bytes);
        }
        learnt
    }

    /// A run that runs alone has stopped growing: its memory now is the estimate of its name until it ends.
    fn watch_level(&mut self, slot: Slot, entry: Option<&Entry>, grown: u64, private: u64) {
        self.level = if grown > LEVEL_BYTES {
            0
        } else {
            self.level + 1
        };
        if self.level < LEVEL_READINGS {
            return;
        }
        self.alone = None;
        let Some(memory) = self.worker_mut(slot) else {
            return;
        };
        memory.estimate = private;
        if let Some(entry) = entry {
            let code = &entry.submission().code;
            self.peaks_of(entry.name()).level(code, private);
        }
    }
}

/// What runs need.
impl Admission {
    /// A peak of a name and code from before this server.
    pub(in crate::machine) fn remember_peak(&mut self, name: u32, code: &Arc<str>, bytes: u64) {
        self.peaks_of(name).learn(code, bytes);
    }

    /// A run has ended, with this peak if it was measured. A peak that a restart should know is given; `Err`: the run
    /// was too short for the gauge, and its worker is to be measured.
    pub(in crate::machine) fn learn(
        &mut self,
        policy: &Policy,
        entry: &Entry,
        slot: Slot,
        peak: Option<u64>,
    ) -> Result<Option<NewPeak>, Unmeasured> {
        if policy.memory_limit.is_none() || entry.lane() == Lane::Async {
            return Ok(None);
        }
        let name = entry.name();
        let code = &entry.submission().code;
        if let Some(bytes) = peak {
            return Ok(self.learn_peak(name, Arc::clone(code), bytes));
        }
        if self.peak(name, code).is_none()
            && let Some(memory) = self.worker_mut(slot)
        {
            // What its worker has now is at least what the run left behind.
            memory.unmeasured = Some((name, Arc::clone(code)));
            return Err(Unmeasured);
        }
        Ok(None)
    }

    fn learn_peak(&mut self, name: u32, code: Arc<str>, bytes: u64) -> Option<NewPeak> {
        let moved = self.peaks_of(name).learn(&code, bytes);
        moved.then_some(NewPeak { name, code, bytes })
    }

    /// Private bytes of a worker at the peak of a run of this name and code, as learnt.
    pub(super) fn peak(&self, name: u32, code: &str) -> Option<u64> {
        self.peaks.get(name as usize)?.estimate(code)
    }

    fn peaks_of(&mut self, name: u32) -> &mut Peaks {
        let index = name as usize;
        if self.peaks.len() <= index {
            self.peaks.resize_with(index + 1, Peaks::default);
        }
        &mut self.peaks[index]
    }
}

/// The guard.
impl Admission {
    /// Above the guard's limit, the worker to end: an idle one that grew, or else the youngest that outgrew its
    /// estimate. One at a time, since each gives its memory back.
    pub(in crate::machine) fn guard(
        &mut self,
        policy: &Policy,
        workers: &WorkerSet,
        register: &Register,
        now: Millis,
    ) -> Option<Guarded> {
        let limit = policy.memory_limit?;
        let leaving =
            |worker: &Worker| worker.expelled().is_some() || worker.stage() == Stage::Stopping;
        if self.resident() <= part(limit, policy.guard_fraction) {
            self.unread = None;
            return None;
        }
        // The memory of an ended worker is free only once the kernel has torn it down.
        let waits = now < self.guard_at.saturating_add(GUARD_MS);
        if waits && workers.iter().any(|(_, worker)| leaving(worker)) {
            return None;
        }
        let idle = self.staying(workers).filter(|(_, worker, memory)| {
            worker.is_idle() && (worker.is_burst() || memory.grown() > memory.base)
        });
        if let Some((slot, ..)) = idle.max_by_key(|(_, _, memory)| memory.private) {
            self.guard_at = now;
            return Some(Guarded::Idle(slot));
        }
        self.end_busy(workers, register, now, limit)
    }

    /// The busy worker that is to blame for the memory being full.
    ///
    /// A run may take its memory between the reading of its worker and that of the machine: then nobody seems to have
    /// outgrown an estimate, and the guard waits until every busy worker was read again.
    fn end_busy(
        &mut self,
        workers: &WorkerSet,
        register: &Register,
        now: Millis,
        limit_bytes: u64,
    ) -> Option<Guarded> {
        let busy = || {
            self.staying(workers)
                .filter(|(_, worker, _)| !worker.is_idle())
        };
        let (slot, _, memory) =
            busy().max_by_key(|(_, worker, memory)| expulsion_rank(register, worker, memory))?;
        let all_read = self.unread.as_ref().map(BTreeSet::is_empty);
        let (peak_bytes, within) = (memory.private, !memory.outgrew());
        if !within || all_read == Some(true) {
            self.unread = None;
            self.guard_at = now;
            let expelled = Expelled {
                peak_bytes,
                limit_bytes,
                within,
            };
            return Some(Guarded::Busy(slot, expelled));
        }
        if all_read.is_none() {
            self.unread = Some(busy().map(|(slot, ..)| slot).collect());
        }
        None
    }

    /// The workers that the guard may end.
    fn staying<'a>(
        &'a self,
        workers: &'a WorkerSet,
    ) -> impl Iterator<Item = (Slot, &'a Worker, &'a WorkerMemory)> {
        let stays = |worker: &Worker| worker.stage() == Stage::Up && worker.expelled().is_none();
        let staying = workers.iter().filter(move |(_, worker)| stays(worker));
        staying.filter_map(|(slot, worker)| Some((slot, worker, self.worker(slot)?)))
    }
}

/// The order in which the guard ends workers: the greatest first.
fn expulsion_rank(
    register: &Register,
    worker: &Worker,
    memory: &WorkerMemory,
) -> (bool, bool, bool, Millis) {
    let run = worker
        .runs()
        .first()
        .and_then(|key| register.get(*key)?.run());
    let began = run.map_or(0, |run| run.began);
    // Many requests share a worker of the async lane, so it is the last to go.
    let single = worker.lane() != Lane::Async;
    (single, memory.outgrew(), worker.is_burst(), began)
}
