//! Memory and cores: what runs need by all that is known, what is taken, and whether one more fits.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use forebay_executor::id::RequestId;
use forebay_executor::machine::Policy;
use forebay_executor::request::{Lane, Slot};

use super::Model;
use super::known::Known;

/// The newest peaks that count.
const NEWEST: usize = 64;
/// Codes of a name that are remembered.
const CODES: usize = 4;
/// A run that grows by no more between two readings has not grown, and has levelled off after so many of these.
const STILL_BYTES: u64 = 1_000_000;
const STILL_READINGS: u32 = 5;

#[derive(Default)]
struct Peaks {
    newest: VecDeque<u64>,
    levelled: Option<u64>,
    stored: u64,
}

impl Peaks {
    /// The 95th percentile, or where the first run has stopped growing.
    fn estimate(&self) -> Option<u64> {
        let mut sorted: Vec<u64> = self.newest.iter().copied().collect();
        sorted.sort_unstable();
        let place = (sorted.len() * 95).div_ceil(100);
        place.checked_sub(1).map(|at| sorted[at]).or(self.levelled)
    }
}

/// What is taken, and what was learnt.
#[derive(Default)]
pub struct Memory {
    measured: u64,
    pub pressure: f32,
    pub base: Option<u64>,
    /// Of whom nobody knows what it needs, and how many readings it has not grown for.
    pub alone: Option<(Slot, u32)>,
    /// What short requests asked for lately.
    short_bytes: u64,
    learnt: HashMap<Arc<str>, Vec<(Arc<str>, Peaks)>>,
    pub guarded_at: u64,
    /// Whose readings the guard waits for.
    pub awaited: Option<Vec<Slot>>,
}

impl Memory {
    fn peaks(&mut self, name: &Arc<str>, code: &Arc<str>) -> &mut Peaks {
        let codes = self.learnt.entry(Arc::clone(name)).or_default();
        let found = codes.iter().position(|(one, _)| one == code);
        let place = found.unwrap_or_else(|| {
            if codes.len() == CODES {
                codes.remove(0);
            }
            codes.push((Arc::clone(code), Peaks::default()));
            codes.len() - 1
        });
        &mut codes[place].1
    }

    fn learnt_of(&self, name: &str, code: &str) -> Option<u64> {
        let codes = self.learnt.get(name)?;
        let (_, peaks) = codes.iter().find(|(one, _)| &**one == code)?;
        peaks.estimate()
    }

    /// A run needed so much. True where a restart should know it: what would be estimated moved by an eighth.
    pub fn learn(&mut self, name: &Arc<str>, code: &Arc<str>, bytes: u64) -> bool {
        let peaks = self.peaks(name, code);
        peaks.newest.push_back(bytes);
        if peaks.newest.len() > NEWEST {
            peaks.newest.pop_front();
        }
        let estimate = peaks.estimate().unwrap_or_default();
        let has_moved = estimate.abs_diff(peaks.stored) > peaks.stored / 8;
        if has_moved {
            peaks.stored = estimate;
        }
        has_moved
    }

    /// A worker's reading says more than the machine's last one.
    pub fn changed(&mut self, old: u64, new: u64) {
        self.measured = (self.measured + new).saturating_sub(old);
    }

    /// A worker was read, or is gone.
    pub fn heard_of(&mut self, slot: Slot) {
        if let Some(awaited) = &mut self.awaited {
            awaited.retain(|one| *one != slot);
        }
    }

    pub fn machine_has(&mut self, bytes: u64) {
        self.measured = bytes;
    }
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small positive numbers"
)]
pub fn part(bytes: u64, fraction: f32) -> u64 {
    (f64::from(fraction) * bytes as f64) as u64
}

/// Why something does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lacks {
    Memory,
    Cores,
    /// Another one runs alone, or the machine stalls.
    Turn,
}

impl Model {
    fn base(&self) -> u64 {
        self.memory.base.unwrap_or(self.policy.worker_bytes)
    }

    /// Private bytes of its worker at the peak: the larger of its own word and what was learnt.
    pub(super) fn estimate(&self, known: &Known) -> Option<u64> {
        let (base, options) = (self.base(), known.options());
        if options.lane == Lane::Async {
            return Some(base);
        }
        let said = options.memory_bytes.map(|bytes| bytes + base);
        let submission = &known.submission;
        let learnt = self.memory.learnt_of(&submission.name, &submission.code);
        let taken = self.policy.unknown_bytes[options.lane as usize];
        said.max(learnt).or(taken.map(|bytes| bytes + base))
    }

    /// What a worker that is started for it may grow to.
    pub(super) fn need_of_new(&self, known: &Known) -> u64 {
        self.estimate(known).unwrap_or_else(|| self.base())
    }

    pub(super) fn resident(&self) -> u64 {
        let private: u64 = self.hands.values().map(|hand| hand.private).sum();
        self.memory.measured.max(private)
    }

    pub(super) fn promised(&self) -> u64 {
        self.hands.values().map(|hand| hand.promise).sum()
    }

    /// Requests of a lane that a worker has.
    pub(super) fn running(&self, lane: Lane) -> u32 {
        let mine = self.requests.values().filter(|known| known.lane() == lane);
        u32::try_from(mine.filter(|known| known.slot.is_some()).count()).unwrap_or(u32::MAX)
    }

    /// Thousandths of a core that the running of a lane asked for.
    fn cores_taken(&self, lane: Lane) -> u32 {
        let hands = self.hands.values().filter(|hand| hand.lane == lane);
        let first = hands.filter_map(|hand| self.requests.get(hand.runs.first()?));
        first.map(|known| known.options().cpu_milli).sum()
    }

    /// Law 6: what is admitted fits, or it runs alone.
    pub(super) fn fits(&self, known: &Known, slot: Option<Slot>) -> Result<(), Lacks> {
        let lane = known.lane();
        let starting = |lane| {
            if slot.is_none() {
                self.starting_burst(lane)
            } else {
                0
            }
        };
        let long = self.running(Lane::Long) + starting(Lane::Long);
        if long + self.running(Lane::Short) + starting(Lane::Short) == 0 {
            return Ok(());
        }
        let cores = self.policy.cores_milli * self.policy.cpu_factor_max;
        let asked = self.cores_taken(lane) + known.options().cpu_milli;
        if lane != Lane::Async && asked > cores {
            return Err(Lacks::Cores);
        }
        let Some(limit) = self.policy.memory_limit else {
            return Ok(());
        };
        let is_alone = lane == Lane::Long && self.memory.alone.is_some();
        if self.memory.pressure > self.policy.pressure_max || is_alone {
            return Err(Lacks::Turn);
        }
        // What nobody knows begins where nothing else of its lane runs, or half of the limit is free.
        let unknown = if long == 0 { self.base() } else { limit / 2 };
        let need = self.estimate(known).unwrap_or(unknown);
        let has = slot.map_or(0, |slot| self.hands[&slot].private);
        let taken = self.resident() + self.promised() + need.saturating_sub(has);
        let free = part(limit, self.policy.memory_free_fraction) + self.kept_for_short(lane, limit);
        if taken > limit.saturating_sub(free) {
            return Err(Lacks::Memory);
        }
        Ok(())
    }

    /// The next short request finds room while none runs: at most an eighth of the limit.
    fn kept_for_short(&self, lane: Lane, limit: u64) -> u64 {
        let is_used = self.in_use[Lane::Short as usize] && self.running(Lane::Short) == 0;
        if lane == Lane::Short || !is_used {
            return 0;
        }
        let lately = match self.memory.short_bytes {
            0 => self.policy.unknown_bytes[Lane::Short as usize].unwrap_or(0),
            bytes => bytes,
        };
        lately.min(limit / 8)
    }

    /// A worker takes a request with nothing before it: what it may grow to is promised to it.
    pub(super) fn promise(&mut self, id: RequestId, slot: Slot) {
        let known = &self.requests[&id];
        if known.lane() == Lane::Async || self.policy.memory_limit.is_none() {
            return;
        }
        let estimate = self.estimate(known);
        if estimate.is_none() {
            self.memory.alone = Some((slot, 0));
        }
        let is_short = known.lane() == Lane::Short;
        let Some(hand) = self.hands.get_mut(&slot) else {
            return;
        };
        hand.estimate = estimate.unwrap_or(0);
        hand.unmeasured = None;
        hand.promise = hand.estimate.saturating_sub(hand.private);
        if is_short {
            let before = self.memory.short_bytes / 8 * 7;
            self.memory.short_bytes = hand.promise.max(before);
        }
    }

    /// A worker was measured.
    pub(super) fn measured(&mut self, slot: Slot, bytes: u64) {
        let Some(hand) = self.hands.get_mut(&slot) else {
            return;
        };
        let old = std::mem::replace(&mut hand.private, bytes);
        self.memory.changed(old, bytes);
        self.memory.heard_of(slot);
        if hand.uses == 0 && hand.runs.is_empty() {
            hand.base = bytes;
            self.memory.base = Some(bytes);
        }
        if hand.lane != Lane::Async && !hand.runs.is_empty() {
            hand.promise = hand.estimate.saturating_sub(bytes);
            let first = self.requests.get_mut(&hand.runs[0]);
            if let Some(run) = first.and_then(|known| known.run.as_mut()) {
                run.peak = run.peak.max(Some(bytes));
            }
        } else if let Some((name, code)) = hand.unmeasured.take() {
            self.learn(&name, &code, bytes);
        }
        self.level(slot, bytes.saturating_sub(old), bytes);
    }

    /// Whoever runs alone does so until it has stopped growing.
    fn level(&mut self, slot: Slot, grown: u64, bytes: u64) {
        let Some((_, still)) = self.memory.alone.filter(|(alone, _)| *alone == slot) else {
            return;
        };
        let still = if grown > STILL_BYTES { 0 } else { still + 1 };
        self.memory.alone = (still < STILL_READINGS).then_some((slot, still));
        if self.memory.alone.is_some() {
            return;
        }
        let Some(hand) = self.hands.get_mut(&slot) else {
            return;
        };
        hand.estimate = bytes;
        let first = hand.runs.first().and_then(|id| self.requests.get(id));
        if let Some(submission) = first.map(|known| known.submission.clone()) {
            let peaks = self.memory.peaks(&submission.name, &submission.code);
            peaks.levelled = Some(bytes);
        }
    }

    pub(super) fn learn(&mut self, name: &Arc<str>, code: &Arc<str>, bytes: u64) {
        if self.memory.learn(name, code, bytes) {
            self.write(super::ledger::Change::Peak(bytes));
        }
    }

    /// A run has ended: its peak is learnt, or its worker is measured where nothing is known of its name.
    pub(super) fn learn_run(&mut self, known: &Known, slot: Slot, peak: Option<u64>) {
        if self.policy.memory_limit.is_none() || known.lane() == Lane::Async {
            return;
        }
        let (name, code) = (&known.submission.name, &known.submission.code);
        if let Some(bytes) = peak {
            self.learn(name, code, bytes);
        } else if self.memory.learnt_of(name, code).is_none() {
            if let Some(hand) = self.hands.get_mut(&slot) {
                hand.unmeasured = Some((Arc::clone(name), Arc::clone(code)));
            }
            self.expect(format!("Measure {slot}"));
        }
    }
}

/// What the guard leaves alone.
pub fn is_within(policy: &Policy, resident: u64) -> bool {
    policy
        .memory_limit
        .is_none_or(|limit| resident <= part(limit, policy.guard_fraction))
}
