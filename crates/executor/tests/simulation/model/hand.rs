//! What the model knows of each worker, and of starting them.

use std::sync::Arc;

use forebay_executor::id::RequestId;
use forebay_executor::machine::Policy;
use forebay_executor::request::{Lane, Millis, Slot};

use super::Model;

pub const LANES: [Lane; 3] = [Lane::Short, Lane::Long, Lane::Async];

#[derive(Clone, Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is told by another event"
)]
pub struct Hand {
    pub lane: Lane,
    pub code: Arc<str>,
    pub is_up: bool,
    /// It was told to end.
    pub is_stopping: bool,
    /// It takes nothing more, and ends after what it runs.
    pub is_leaving: bool,
    pub is_burst: bool,
    pub born: Millis,
    pub idle_since: Millis,
    pub uses: u64,
    pub runs: Vec<RequestId>,
    pub private: u64,
    pub base: u64,
    pub promise: u64,
    pub estimate: u64,
    pub unmeasured: Option<(Arc<str>, Arc<str>)>,
    /// The guard ended it at this peak; whether it had outgrown its estimate.
    pub expelled: Option<(u64, bool)>,
}

impl Hand {
    pub fn stays(&self) -> bool {
        self.is_up && !self.is_leaving
    }

    /// It takes one more at once.
    pub fn is_open(&self, async_at_once: u32) -> bool {
        let most = if self.lane == Lane::Async {
            async_at_once as usize
        } else {
            1
        };
        self.stays() && self.runs.len() < most
    }

    /// It is to be replaced between two requests.
    pub fn is_worn(&self, policy: &Policy, now: Millis) -> bool {
        let is_old = now - self.born >= policy.worker_age_max_ms;
        let grown = self.private.saturating_sub(self.base);
        is_old || self.uses >= policy.worker_uses_max || grown > policy.worker_growth_max_bytes
    }

    pub fn state(&self) -> &'static str {
        match (self.is_stopping, self.is_up, self.runs.is_empty()) {
            (true, ..) => "stopping",
            (_, false, _) => "starting",
            (_, _, true) => "idle",
            _ => "busy",
        }
    }
}

/// Starts that fail: the next try is between these two times. Of some nobody outside knows whether they counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Starts {
    pub failures: u32,
    failures_max: u32,
    pub from: Millis,
    pub until: Millis,
}

/// What the runs of a lane were like lately.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// Moving mean of a run, in sixteenths of a millisecond; none before one has ended.
    mean: Option<u64>,
}

impl Pace {
    /// The newest counts for a sixteenth, and for four times the longest span that matters at most.
    pub fn ended(&mut self, took: u64, span_ms: u64) {
        let newest = took.min(4 * span_ms) * 16;
        self.mean = Some((self.mean.unwrap_or(0) * 15 + newest).div_ceil(16));
    }

    pub fn runs_within(self, span_ms: u64) -> u64 {
        self.mean.map_or(0, |mean| span_ms * 16 / mean.max(1))
    }

    pub fn is_short(self, span_ms: u64) -> bool {
        self.mean.is_some_and(|mean| mean < span_ms * 16)
    }
}

/// The bounds of a wait that doubles with each failure: a random part between a half and all.
pub fn backoff(now: Millis, first: u64, most: u64, failed: u32) -> (Millis, Millis) {
    let whole = first.saturating_mul(1 << (failed - 1).min(40)).min(most);
    (now + whole - whole / 2, now + whole)
}

impl Model {
    pub(super) fn guaranteed(&self, lane: Lane) -> u32 {
        let wanted = self.policy.guaranteed;
        let first = LANES.iter().position(|lane| wanted[*lane as usize] > 0);
        match self.policy.low_resource {
            true if first != Some(lane as usize) => 0,
            true => 1,
            false => wanted[lane as usize],
        }
    }

    fn count(&self, lane: Lane, which: impl Fn(&Hand) -> bool) -> u32 {
        let mine = self.hands.values().filter(|hand| hand.lane == lane);
        let staying = mine.filter(|hand| !hand.is_leaving && which(hand));
        u32::try_from(staying.count()).unwrap_or(u32::MAX)
    }

    pub(super) fn alive(&self, lane: Lane) -> u32 {
        self.count(lane, |_| true)
    }

    pub(super) fn all_alive(&self) -> u32 {
        LANES.iter().map(|lane| self.alive(*lane)).sum()
    }

    pub(super) fn starting(&self, lane: Lane) -> u32 {
        self.count(lane, |hand| !hand.is_up)
    }

    pub(super) fn starting_burst(&self, lane: Lane) -> u32 {
        self.count(lane, |hand| !hand.is_up && hand.is_burst)
    }

    pub(super) fn alive_guaranteed(&self, lane: Lane) -> u32 {
        self.count(lane, |hand| !hand.is_burst)
    }

    /// Workers of a lane with room for one more.
    pub(super) fn open(&self, lane: Lane) -> impl Iterator<Item = (Slot, &Hand)> + '_ {
        let mine = self
            .hands
            .iter()
            .filter(move |(_, hand)| hand.lane == lane && hand.is_open(self.policy.async_at_once));
        mine.map(|(slot, hand)| (*slot, hand))
    }

    /// Law 7: a place is kept for each lane in use, whatever the others hold.
    pub(super) fn has_place_for(&self, lane: Lane) -> bool {
        let lacks = |other: &&Lane| self.in_use[**other as usize] && self.alive(**other) == 0;
        let kept = u32::try_from(LANES.iter().filter(lacks).count()).unwrap_or(0);
        self.alive(lane) == 0 || self.all_alive() + kept < self.policy.workers_max
    }

    pub(super) fn start_failed(&mut self) {
        let (first, most) = (
            self.policy.start_backoff_ms,
            self.policy.start_backoff_max_ms,
        );
        if self.starts.failures > 0 && self.now < self.starts.from {
            return; // one of several that died together
        }
        let is_sure = self.starts.failures == 0 || self.now >= self.starts.until;
        self.starts.failures_max += 1;
        let wait = |failures: u32| backoff(self.now, first, most, failures.min(16));
        self.starts.until = wait(self.starts.failures_max).1;
        if is_sure {
            self.starts.failures += 1;
            self.starts.from = wait(self.starts.failures).0;
        }
    }

    pub(super) fn stop(&mut self, slot: Slot) {
        if let Some(hand) = self.hands.get_mut(&slot) {
            (hand.is_leaving, hand.is_stopping) = (true, true);
            self.expect(format!("Stop {slot}"));
        }
    }

    /// A run has ended: its worker is replaced where it is worn, as soon as it runs nothing.
    pub(super) fn after_run(&mut self, slot: Slot) {
        let (now, policy) = (self.now, self.policy.clone());
        let Some(hand) = self.hands.get_mut(&slot) else {
            return;
        };
        if !hand.is_up || hand.is_stopping {
            return;
        }
        hand.is_leaving |= hand.is_worn(&policy, now);
        if hand.is_leaving && hand.runs.is_empty() {
            self.stop(slot);
        }
    }

    pub(super) fn forget(&mut self, slot: Slot) {
        if let Some(hand) = self.hands.remove(&slot) {
            self.memory.changed(hand.private, 0);
            self.memory.heard_of(slot);
        }
        if self.memory.alone.is_some_and(|(alone, _)| alone == slot) {
            self.memory.alone = None;
        }
    }

    /// New code: who has imported another one takes nothing more.
    pub(super) fn replace(&mut self) {
        let slots: Vec<Slot> = self.hands.keys().copied().collect();
        for slot in slots {
            let hand = self.hands.get_mut(&slot).expect("a worker");
            if hand.code == self.code {
                continue;
            }
            hand.is_leaving = true;
            if !hand.is_up && !hand.is_stopping {
                hand.promise = 0;
            }
            if hand.is_up && !hand.is_stopping && hand.runs.is_empty() {
                self.stop(slot);
            }
        }
    }

    /// Burst workers end after their idle time.
    pub(super) fn end_idle(&mut self) {
        let (now, span) = (self.now, self.policy.worker_idle_ms);
        let idle = self.hands.iter().filter(|(_, hand)| {
            hand.is_burst && hand.stays() && hand.runs.is_empty() && hand.idle_since + span <= now
        });
        let idle: Vec<Slot> = idle.map(|(slot, _)| *slot).collect();
        for slot in idle {
            self.stop(slot);
        }
    }

    /// The guard ends one worker at a time: an idle one that grew, or else the youngest that outgrew its estimate. Where
    /// none did, all that run are to be heard of first.
    pub(super) fn guard(&mut self) {
        let ends = |hand: &Hand| hand.expelled.is_some() || hand.is_stopping;
        let waits = self.now < self.memory.guarded_at + 500 && self.hands.values().any(ends);
        if super::memory::is_within(&self.policy, self.resident()) {
            self.memory.awaited = None;
            return;
        }
        if waits {
            return;
        }
        let up = || {
            let up = self.hands.iter();
            up.filter(|(_, hand)| hand.is_up && !hand.is_stopping && hand.expelled.is_none())
        };
        let grown =
            |hand: &Hand| hand.is_burst || hand.private.saturating_sub(hand.base) > hand.base;
        let idle = up().filter(|(_, hand)| hand.runs.is_empty() && grown(hand));
        if let Some((slot, _)) = idle.max_by_key(|(_, hand)| hand.private) {
            let slot = *slot;
            self.memory.guarded_at = self.now;
            return self.stop(slot);
        }
        let guilt = |hand: &Hand| {
            let first = hand.runs.first().and_then(|id| self.requests.get(id));
            let began = first
                .and_then(|known| known.run.as_ref())
                .map(|run| run.began);
            let outgrew = hand.private > hand.estimate;
            (
                hand.lane != Lane::Async,
                outgrew,
                hand.is_burst,
                began.unwrap_or(0),
            )
        };
        let busy = up().filter(|(_, hand)| !hand.runs.is_empty());
        let running: Vec<Slot> = busy.clone().map(|(slot, _)| *slot).collect();
        let Some(slot) = busy
            .max_by_key(|(_, hand)| guilt(hand))
            .map(|(slot, _)| *slot)
        else {
            return;
        };
        let hand = self.hands.get_mut(&slot).expect("a worker");
        if hand.private <= hand.estimate {
            let awaited = self.memory.awaited.get_or_insert(running);
            if !awaited.is_empty() {
                return;
            }
        }
        self.memory.awaited = None;
        self.memory.guarded_at = self.now;
        hand.is_leaving = true;
        hand.expelled = Some((hand.private, hand.private > hand.estimate));
        let peak = hand.private;
        self.expect(format!("Expel {slot} at {peak}"));
    }
}
