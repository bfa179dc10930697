//! Admission: whether a request may begin: by memory as measured or learnt, by cores as asked for, and unless the
//! server holds, drains or is cordoned.
//!
//! A request is admitted while resident memory, what running requests may still grow by, and its own estimate stay
//! within the limit. Only private memory counts: pages shared with the template are resident anyway. If nothing
//! synchronous runs, one request is admitted whatever it needs.
//!
//! A long request whose name has no estimate begins if nothing else of its lane runs, or half of the limit is free, and
//! no other one begins until it has ended or stopped growing. A short one is assumed to need `unknown_bytes`, since it
//! must not wait for long ones to end; so is each one where workers are elsewhere, since nothing would be learnt from its
//! run. Requests of the async lane are many in one worker, which is measured as a whole.

mod cordon;
mod estimate;
mod guard;
mod waiting;

use std::collections::BTreeSet;
use std::sync::Arc;

use super::entry::Entry;
use super::notes::megabytes;
use super::policy::Policy;
use super::workers::WorkerSet;
use crate::error::Refusal;
use crate::request::{Lane, Millis, Slot};
pub use cordon::Cordon;
use estimate::Peaks;
pub(super) use guard::{Guarded, NewPeak, Unmeasured};
use waiting::Waiting;

/// The part of the limit that the long lane leaves to a short request, at most.
const KEPT_PART: u64 = 8;
/// The part of the limit that must be free for a request of unknown need while others run.
const UNKNOWN_PART: u64 = 2;

/// What is known of a worker's memory, from its start until its death is known.
#[derive(Debug)]
struct WorkerMemory {
    /// Private bytes as last measured; before that, none.
    private: u64,
    /// Private bytes before its first request.
    base: u64,
    /// A name whose run ended unmeasured, with the code of that run: the next measurement is its peak.
    unmeasured: Option<(u32, Arc<str>)>,
    /// What its run may still grow by beyond `private`, as counted in the sum of all.
    promise: u64,
    /// Private bytes that its run was admitted for; 0: unknown.
    estimate: u64,
}

impl WorkerMemory {
    /// Whether its run needs more than it was admitted for, or runs alone and fills the limit.
    fn outgrew(&self) -> bool {
        self.private > self.estimate
    }

    fn grown(&self) -> u64 {
        self.private.saturating_sub(self.base)
    }
}

/// What is in use, and what may begin beside it.
///
/// It knows the memory of exactly those workers that `WorkerSet` has; `promised` and `private` are their sums.
#[derive(Debug, Default)]
pub(super) struct Admission {
    /// Why dispatch is held.
    hold: Option<Arc<str>>,
    /// Why nothing begins although submissions are accepted: they are for the next server.
    pause: Option<Arc<str>>,
    draining: bool,
    cordon: Option<Cordon>,
    /// Memory of the machine or its cgroup: as measured, corrected by each later measurement of a worker.
    measured: u64,
    /// Of that, what the workers were measured to have.
    private: u64,
    /// What running and starting workers may still grow by.
    promised: u64,
    /// Fraction of the time that tasks stalled for memory.
    pressure: f32,
    /// By slot.
    memory: Vec<Option<WorkerMemory>>,
    /// What runs needed, by the index of the name.
    peaks: Vec<Peaks>,
    /// The worker whose run has an unknown need.
    alone: Option<Slot>,
    /// Readings without growth of that worker.
    level: u32,
    /// Private bytes of a worker that has run nothing, as last measured.
    base: Option<u64>,
    /// Thousandths of a core that the running requests of each lane asked for. Lanes are counted apart: a short request
    /// does not wait for the cores of long ones, which the kernel shares out.
    cores_milli: [u32; 3],
    /// What short requests needed lately.
    short_bytes: u64,
    /// When the guard last ended a worker.
    guard_at: Millis,
    /// Memory was full and no worker had outgrown its estimate: those that have not been read since.
    unread: Option<BTreeSet<Slot>>,
    waiting: Waiting,
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
    /// So many others wait for their children.
    Waiting {
        count: u32,
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
            Self::Waiting { count, most } => format!(
                "{count} requests of its lane wait for their children; from max_workers, {most}, on, workers are started for \
                 those alone"
            ),
        }
    }

    pub(super) fn next(&self) -> String {
        match self {
            Self::Memory { .. } => "wait, lower memory=, or give the server more memory",
            Self::Unknown { .. } | Self::Alone => "say memory= in the request's definition",
            Self::Pressure { .. } => "wait, or give the server more memory",
            Self::Cores { .. } => "wait, or lower cpu=",
            Self::Waiting { .. } => "see why those wait",
        }
        .into()
    }
}

/// Whether anything may begin at all.
impl Admission {
    /// Nothing begins until this is called with `None`.
    pub(super) fn hold(&mut self, reason: Option<Arc<str>>) {
        self.hold = reason;
    }

    /// Nothing begins until this is called with `None`; submissions are accepted all the same.
    pub(super) fn pause(&mut self, reason: Option<Arc<str>>) {
        self.pause = reason;
    }

    /// Nothing begins any more.
    pub(super) fn drain(&mut self) {
        self.draining = true;
    }

    /// No submission is taken until this is called with `None`.
    pub(super) fn set_cordon(&mut self, cordon: Option<Cordon>) {
        self.cordon = cordon;
    }

    pub(super) fn cordon(&self) -> Option<&Cordon> {
        self.cordon.as_ref()
    }

    /// Whether a submission may be accepted.
    pub(super) fn takes(&self) -> bool {
        !self.draining && self.cordon.is_none()
    }

    /// Why a submission of this name is not accepted.
    pub(super) fn refusal(&self, name: &str) -> Option<Refusal> {
        let draining = || Refusal {
            code: "draining",
            message: "the server drains and takes no more requests".into(),
            object: name.into(),
            limit: String::new(),
            value: String::new(),
            next: "submit it again when the server is back".into(),
        };
        let cordoned = || self.cordon.as_ref().map(|cordon| cordon.refusal(name));
        self.draining.then(draining).or_else(cordoned)
    }

    pub(super) fn is_held(&self) -> bool {
        self.is_ending() || self.is_stopped()
    }

    /// Whether nothing begins but the children of what runs: the server waits for that to end.
    pub(super) fn takes_children_alone(&self) -> bool {
        self.is_ending() && !self.is_stopped()
    }

    /// Whether not even those begin.
    pub(super) fn is_stopped(&self) -> bool {
        self.hold.is_some() || self.pause.is_some()
    }

    /// Whether what runs is to end, and nothing else to begin.
    fn is_ending(&self) -> bool {
        let stops = |cordon: &Cordon| !cordon.dispatches;
        self.draining || self.cordon.as_ref().is_some_and(stops)
    }

    /// Why nothing begins, with what a person can do.
    pub(super) fn held_because(&self) -> Option<(String, String)> {
        if let Some(reason) = self.hold.as_ref().or(self.pause.as_ref()) {
            return Some((reason.to_string(), String::new()));
        }
        let drains = || ("the server drains".into(), "start it again".into());
        let cordoned = || self.cordon.as_ref().and_then(Cordon::stops);
        self.draining.then(drains).or_else(cordoned)
    }
}

/// Whether a request fits.
impl Admission {
    /// Private bytes of its worker at the peak, as far as they are known.
    fn estimate(&self, policy: &Policy, entry: &Entry) -> Option<u64> {
        let base = self.base(policy);
        let lane = entry.lane();
        if lane == Lane::Async {
            return Some(base);
        }
        let hint = entry.options().memory_bytes;
        let hint = hint.map(|bytes| bytes.saturating_add(base));
        // The larger one: a hint that is too small must not hide what was measured.
        let known = hint.max(self.peak(entry.name(), &entry.submission().code));
        let taken = policy.unknown_bytes[lane as usize];
        known.or(taken.map(|bytes| bytes.saturating_add(base)))
    }

    /// What a worker that is started for a request will need.
    pub(super) fn need_of_new(&self, policy: &Policy, entry: Option<&Entry>) -> u64 {
        entry
            .and_then(|entry| self.estimate(policy, entry))
            .unwrap_or_else(|| self.base(policy))
    }

    /// Whether a request may begin in a worker that has room, or in a new one.
    pub(super) fn fits(
        &self,
        policy: &Policy,
        workers: &WorkerSet,
        entry: &Entry,
        slot: Option<Slot>,
    ) -> Result<(), Blocked> {
        let lane = entry.lane();
        let running = |lane: Lane| workers.of_lane(lane).running();
        let starting = |lane: Lane| workers.of_lane(lane).starting_burst();
        let mut busy = running(Lane::Short) + running(Lane::Long);
        if slot.is_none() {
            // A starting worker was started for a request that is about to run.
            busy += starting(Lane::Short) + starting(Lane::Long);
        }
        // One request always runs, whatever it needs: it would otherwise wait for ever.
        if busy == 0 {
            return Ok(());
        }
        if lane != Lane::Async {
            // In a process that is there it adds none.
            if slot.is_none() {
                self.waiting.fits(policy, entry)?;
            }
            self.fits_cores(policy, lane, entry.options().cpu_milli)?;
        }
        let Some(limit) = policy.memory_limit else {
            return Ok(());
        };
        if self.pressure > policy.pressure_max {
            return Err(Blocked::Pressure {
                part: self.pressure,
            });
        }
        // No promise covers the growth of that request.
        if lane == Lane::Long && self.alone.is_some() {
            return Err(Blocked::Alone);
        }
        let long = running(Lane::Long) + u32::from(slot.is_none()) * starting(Lane::Long);
        let fits = |need: u64| self.fits_memory(policy, workers, lane, need, slot, limit);
        match self.estimate(policy, entry) {
            Some(estimate) => fits(estimate),
            None if long == 0 => fits(self.base(policy)),
            // Beside others only where half of the limit is free: those others may run for ever.
            None => fits(limit / UNKNOWN_PART).map_err(|_| Blocked::Unknown { running: long }),
        }
    }

    fn fits_cores(&self, policy: &Policy, lane: Lane, need: u32) -> Result<(), Blocked> {
        let taken = self.cores_milli[lane as usize];
        let most = policy.cores_milli.saturating_mul(policy.cpu_factor_max);
        if taken.saturating_add(need) > most {
            return Err(Blocked::Cores { need, taken, most });
        }
        Ok(())
    }

    fn fits_memory(
        &self,
        policy: &Policy,
        workers: &WorkerSet,
        lane: Lane,
        estimate: u64,
        slot: Option<Slot>,
        limit: u64,
    ) -> Result<(), Blocked> {
        // The memory that its worker already has is resident, and not needed again.
        let need = estimate.saturating_sub(slot.map_or(0, |slot| self.private_of(slot)));
        let taken = self.resident().saturating_add(self.promised);
        let short = workers.of_lane(Lane::Short);
        // The other lanes leave memory free, so that the next short request finds room while none runs.
        let keeps = lane != Lane::Short && short.is_in_use() && short.running() == 0;
        let for_short = u64::from(keeps) * self.kept_for_short(policy, limit);
        let kept = part(limit, policy.memory_free_fraction) + for_short;
        let most = limit.saturating_sub(kept);
        let free = most.saturating_sub(taken);
        if taken.saturating_add(need) > most {
            return Err(Blocked::Memory { need, free, limit });
        }
        Ok(())
    }

    /// Memory that is kept for the next short request.
    fn kept_for_short(&self, policy: &Policy, limit: u64) -> u64 {
        let lately = match self.short_bytes {
            0 => policy.unknown_bytes[Lane::Short as usize].unwrap_or_default(),
            bytes => bytes,
        };
        lately.min(limit / KEPT_PART)
    }

    /// Whether a request needs no more than what its worker's run was admitted for, as far as that is known.
    pub(super) fn fits_behind(&self, policy: &Policy, entry: &Entry, slot: Slot) -> bool {
        if policy.memory_limit.is_none() {
            return true;
        }
        let admitted = self.worker(slot).map_or(0, |memory| memory.estimate);
        self.alone != Some(slot)
            && self
                .estimate(policy, entry)
                .is_some_and(|need| need <= admitted)
    }
}

/// What is promised to workers.
impl Admission {
    /// A worker is being started; `need` is that of the request it is started for.
    pub(super) fn add_worker(&mut self, policy: &Policy, slot: Slot, need: u64) {
        let index = slot as usize;
        if self.memory.len() <= index {
            self.memory.resize_with(index + 1, || None);
        }
        self.memory[index] = Some(WorkerMemory {
            private: 0,
            base: self.base(policy),
            unmeasured: None,
            promise: 0,
            estimate: 0,
        });
        self.set_promise(slot, need);
    }

    /// The death of a worker is known.
    pub(super) fn remove_worker(&mut self, slot: Slot) {
        self.set_promise(slot, 0);
        let Some(memory) = self.memory.get_mut(slot as usize).and_then(Option::take) else {
            return;
        };
        self.was_read(slot);
        self.worker_has(memory.private, 0);
        if self.alone == Some(slot) {
            self.alone = None;
        }
    }

    /// Counts what a request may still grow by as its worker's, with its cores.
    pub(super) fn promise(&mut self, policy: &Policy, entry: &Entry, slot: Slot) {
        let lane = entry.lane();
        if lane == Lane::Async {
            return;
        }
        self.cores_milli[lane as usize] += entry.options().cpu_milli;
        if policy.memory_limit.is_none() {
            return;
        }
        let estimate = self.estimate(policy, entry);
        if estimate.is_none() {
            self.alone = Some(slot);
            self.level = 0;
        }
        let Some(memory) = self.worker_mut(slot) else {
            return;
        };
        memory.estimate = estimate.unwrap_or_default();
        memory.unmeasured = None;
        let growth = memory.estimate.saturating_sub(memory.private);
        if lane == Lane::Short {
            // It decays slowly, so that one small run does not give the reserve away.
            self.short_bytes = growth.max(self.short_bytes / 8 * 7);
        }
        self.set_promise(slot, growth);
    }

    /// A handed request begins: it may grow to what the one before it was admitted for.
    pub(super) fn promise_next(&mut self, policy: &Policy, entry: &Entry, slot: Slot) {
        self.cores_milli[entry.lane() as usize] += entry.options().cpu_milli;
        if policy.memory_limit.is_some()
            && let Some(memory) = self.worker(slot)
        {
            let growth = memory.estimate.saturating_sub(memory.private);
            self.set_promise(slot, growth);
        }
    }

    /// Takes back what `promise` counted.
    pub(super) fn unpromise(&mut self, entry: &Entry, slot: Slot) {
        let lane = entry.lane();
        if lane == Lane::Async {
            return;
        }
        self.cores_milli[lane as usize] -= entry.options().cpu_milli;
        self.set_promise(slot, 0);
        if self.alone == Some(slot) {
            self.alone = None;
        }
    }

    /// A run waits for its children.
    pub(super) fn waits(&mut self, entry: &Entry) {
        self.waiting.change(entry, 1);
    }

    /// It goes on, or ends.
    pub(super) fn waits_no_more(&mut self, entry: &Entry) {
        self.waiting.change(entry, -1);
    }

    /// A worker is not promised anything, as it runs nothing.
    pub(super) fn clear_promise(&mut self, slot: Slot) {
        self.set_promise(slot, 0);
    }

    /// Sets what a worker may still grow by.
    fn set_promise(&mut self, slot: Slot, bytes: u64) {
        if let Some(memory) = self.memory.get_mut(slot as usize).and_then(Option::as_mut) {
            self.promised = self.promised - memory.promise + bytes;
            memory.promise = bytes;
        }
    }

    /// What a worker may still grow by, as counted in the sum of all.
    pub(super) fn promised_to(&self, slot: Slot) -> u64 {
        self.worker(slot).map_or(0, |memory| memory.promise)
    }

    /// What running and starting workers may still grow by.
    pub(super) fn promised(&self) -> u64 {
        self.promised
    }

    /// What the running requests of each lane asked for.
    pub(super) fn cores_milli(&self) -> [u32; 3] {
        self.cores_milli
    }

    /// The workers whose memory is known.
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> {
        let numbered = (0..).zip(self.memory.iter());
        numbered.filter_map(|(slot, memory)| memory.as_ref().map(|_| slot))
    }

    /// The worker whose run has an unknown need.
    pub(super) fn alone(&self) -> Option<Slot> {
        self.alone
    }

    fn worker(&self, slot: Slot) -> Option<&WorkerMemory> {
        self.memory.get(slot as usize)?.as_ref()
    }

    fn worker_mut(&mut self, slot: Slot) -> Option<&mut WorkerMemory> {
        self.memory.get_mut(slot as usize)?.as_mut()
    }
}

/// Part of a number of bytes.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "limits are far below 2^53 bytes, and a fraction is positive"
)]
fn part(bytes: u64, fraction: f32) -> u64 {
    (f64::from(fraction) * bytes as f64) as u64
}
