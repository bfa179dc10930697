//! What the machine chooses, judged: who runs next and where, who starts, who ends, what is taken back.

use forebay_executor::id::RequestId;
use forebay_executor::machine::Machine;
use forebay_executor::request::{Lane, Slot, Status};

use super::hand::Hand;
use super::known::{Known, Place};
use super::{Change, Model, Verdict};

fn hold(is_kept: bool, broken: impl FnOnce() -> String) -> Verdict {
    if is_kept { Ok(()) } else { Err(broken()) }
}

impl Model {
    /// Those that it comes after have succeeded.
    pub(super) fn is_free(&self, known: &Known) -> bool {
        // One that is nowhere counts as succeeded: it was refused, and whoever came after it was retried since.
        let has_succeeded = |id: &RequestId| {
            let ended = self.ended.get(id);
            ended.is_none_or(|status| *status == Status::Succeeded)
                && !self.requests.contains_key(id)
        };
        known.options().after.iter().all(has_succeeded)
    }

    /// Requests that a worker has, of all that this is true of.
    pub(super) fn taken(&self, which: impl Fn(&Known) -> bool) -> u32 {
        let all = self.requests.values().filter(|known| known.slot.is_some());
        u32::try_from(all.filter(|known| which(known)).count()).unwrap_or(u32::MAX)
    }

    pub(super) fn has_name(&self, known: &Known) -> bool {
        let name = &known.submission.name;
        let limit = self.limits.get(name);
        limit.is_none_or(|limit| self.taken(|one| one.submission.name == *name) < *limit)
    }

    pub(super) fn has_key(&self, known: &Known) -> bool {
        let key = &known.options().key;
        key.is_none() || {
            let taken = self.taken(|one| one.options().key == *key);
            taken < known.options().key_at_once.max(1)
        }
    }

    /// A request may be given to this worker now.
    fn may_have(&self, id: RequestId, slot: Slot) -> Verdict {
        let known = &self.requests[&id];
        hold(!self.is_stopped(), || {
            format!("law of stops: {id} is given to {slot} while nothing is to be")
        })?;
        hold(self.is_free(known), || {
            format!("law of order: {id} is given to {slot} before those that it comes after")
        })?;
        hold(known.wake.0 <= self.now, || {
            format!(
                "law of times: {id} is given to {slot} before {}",
                known.wake.0
            )
        })?;
        hold(self.has_name(known), || {
            format!("law of names: too many of {} run", known.submission.name)
        })?;
        hold(self.has_key(known), || {
            format!("law of keys: too many of {:?} run", known.options().key)
        })?;
        let Some(hand) = self.hands.get(&slot) else {
            return Err(format!("5: {id} goes to place {slot}, where no worker is"));
        };
        let is_taking = hand.stays() && hand.code == self.code && hand.lane == known.lane();
        hold(is_taking, || {
            format!("law of workers: {id} goes to {slot}, which takes nothing more: {hand:?}")
        })?;
        if hand.lane == Lane::Async || hand.runs.is_empty() {
            self.may_begin(id, known, slot, hand)
        } else {
            self.may_wait_behind(known, slot, hand)
                .map_err(|why| format!("law of handing: {id} is handed to {slot} though {why}"))
        }
    }

    fn may_begin(&self, id: RequestId, known: &Known, slot: Slot, hand: &Hand) -> Verdict {
        hold(hand.is_open(self.policy.async_at_once), || {
            format!("law of workers: {id} goes to {slot}, which is full")
        })?;
        self.fits(known, Some(slot))
            .map_err(|lacks| format!("6: {id} begins in {slot} and does not fit: {lacks:?}"))?;
        let others = || self.open(hand.lane);
        let is_spare = hand.is_burst && others().any(|(_, other)| !other.is_burst);
        hold(!is_spare, || {
            format!("law of workers: {id} keeps burst worker {slot} busy beside a guaranteed one")
        })?;
        let mut kin = others().filter(|(_, other)| other.is_burst == hand.is_burst);
        let is_newest = kin.all(|(_, other)| other.idle_since <= hand.idle_since);
        hold(is_newest || hand.lane == Lane::Async, || {
            format!(
                "law of workers: {id} goes to {slot}, which has been idle for longer than another"
            )
        })
    }

    /// Whether it may lie behind what a worker runs.
    pub(super) fn may_wait_behind(
        &self,
        known: &Known,
        slot: Slot,
        hand: &Hand,
    ) -> Result<(), &'static str> {
        let lane = known.lane();
        let busy = self
            .hands
            .values()
            .filter(|one| one.lane == lane && !one.runs.is_empty());
        let is_short = self.pace[lane as usize].is_short(self.policy.burst_run_ms_min);
        let cores = self.policy.cores_milli.div_ceil(1_000).max(1) as usize;
        let is_crowded = is_short && busy.count() >= cores;
        if self.open(lane).next().is_some() && !is_crowded {
            return Err("a worker is free");
        }
        let within = self.pace[lane as usize].runs_within(self.policy.ahead_ms_max);
        let most = within.min(u64::from(known.options().ahead));
        if lane == Lane::Async || known.options().ahead == 0 || hand.runs.len() as u64 > most {
            return Err("it has enough");
        }
        if !hand.stays() || hand.lane != lane || hand.uses >= self.policy.worker_uses_max {
            return Err("it takes nothing more");
        }
        for id in &hand.runs {
            let other = &self.requests[id];
            let Some(run) = other.run.as_ref().filter(|run| run.stop.is_none()) else {
                return Err("it has one that is to end, or that it was kept for");
            };
            let is_long = !run.handed && self.now - run.began >= self.policy.ahead_ms_max;
            if other.submission.name != known.submission.name || is_long {
                return Err("it runs another name, or takes long");
            }
        }
        if self.policy.memory_limit.is_some() {
            let alone = self.memory.alone.is_some_and(|(alone, _)| alone == slot);
            let need = self.estimate(known);
            if alone || need.is_none_or(|need| need > hand.estimate) {
                return Err("it needs more than what runs there");
            }
        }
        Ok(())
    }

    /// A submitter's own come by their priority, then by their age.
    fn comes_next(&self, id: RequestId, slot: Slot) -> Verdict {
        let known = &self.requests[&id];
        let is_limited = |one: &Known| self.limits.contains_key(&one.submission.name);
        if is_limited(known) {
            return Ok(());
        }
        let sure = |one: &Known| {
            one.place == Place::Waiting && one.lane() == known.lane() && self.is_sure(one)
        };
        let mine = |one: &Known| one.submission.submitter == known.submission.submitter;
        let before = self
            .requests
            .iter()
            .find(|(other, one)| sure(one) && mine(one) && one.rank(**other) < known.rank(id));
        hold(before.is_none(), || {
            let (other, _) = before.expect("one that comes before");
            format!("law of turns: {id} goes to {slot} before {other} of its submitter")
        })
    }

    /// It waits for nothing but a worker and room, as can be told from outside.
    pub(super) fn is_sure(&self, known: &Known) -> bool {
        let is_plain =
            known.options().key.is_none() && !self.limits.contains_key(&known.submission.name);
        let is_awake = known.wake.1 <= self.ticked;
        known.place == Place::Waiting && is_plain && is_awake && self.is_free(known)
    }

    /// A worker is kept for a request whose row is on its way: which one, the machine shows.
    pub fn reserve(&mut self, machine: &Machine) -> Verdict {
        let Some(id) = self.newest.filter(|id| self.requests.contains_key(id)) else {
            return Ok(());
        };
        if self.requests[&id].place != Place::Accepting {
            return Ok(());
        }
        let seen = machine.workers();
        let slot = seen.iter().find(|worker| worker.running.contains(&id));
        let Some(slot) = slot.map(|worker| worker.slot) else {
            return self.needs_no_worker(id);
        };
        self.may_have(id, slot)
            .map_err(|broken| format!("{broken}, and is kept for it"))?;
        let is_behind = !self.hands[&slot].runs.is_empty();
        hold(!is_behind, || {
            format!("law of workers: busy {slot} is kept for {id}")
        })?;
        let known = self.requests.get_mut(&id).expect("a request");
        (known.slot, known.attempts) = (Some(slot), 1);
        known.was_reserved = true;
        self.hands.get_mut(&slot).expect("a worker").runs.push(id);
        self.promise(id, slot);
        self.expect(format!("Store {:?}", Change::Claim(id, 1)));
        Ok(())
    }

    /// Accepting and claiming share a commit where a worker is free and nobody waits.
    fn needs_no_worker(&self, id: RequestId) -> Verdict {
        let known = &self.requests[&id];
        let lane = known.lane();
        let mut others = self.requests.values();
        let is_first = !others.any(|one| one.lane() == lane && one.place == Place::Waiting);
        let key = &known.options().key;
        let mut kin = self.requests.iter().filter(|(other, _)| **other != id);
        let has_key = key.is_none() || !kin.any(|(_, one)| one.options().key == *key);
        let may = is_first
            && has_key
            && self.policy.durable
            && lane != Lane::Async
            && self.starts.failures == 0
            && !self.is_stopped()
            && self.is_free(known)
            && known.wake.0 <= self.now
            && self.has_name(known);
        let is_free = self.open(lane).next().is_some();
        let fits = |(slot, _): (Slot, &Hand)| self.fits(known, Some(slot)).is_ok();
        let fits = is_free && self.open(lane).all(fits);
        hold(!may || !fits, || {
            format!("law of commits: {id} could be claimed with its row, and is not")
        })
    }

    pub(super) fn dispatched(
        &mut self,
        slot: Slot,
        id: RequestId,
        attempt: u32,
        journal: bool,
    ) -> Verdict {
        let Some(known) = self.requests.get(&id) else {
            return Err(format!(
                "law of runs: {id} is given to {slot}, and nobody knows it"
            ));
        };
        let may_run_twice = known.options().retries > 0 || known.options().idempotent;
        if known.place == Place::Running {
            hold(!journal, || {
                format!("law of the journal: the claim of {id} is on disk")
            })?;
            self.came.push(format!("Dispatch {id} {attempt} to {slot}"));
            return Ok(());
        }
        let is_next = known.place == Place::Waiting && attempt == known.attempts + 1;
        hold(is_next, || {
            format!("law of runs: run {attempt} of {id} goes to {slot}: {known:?}")
        })?;
        hold(journal == (self.policy.durable && !may_run_twice), || {
            format!("law of the journal: run {attempt} of {id}, {journal}")
        })?;
        self.may_have(id, slot)?;
        self.comes_next(id, slot)?;
        let known = self.requests.get_mut(&id).expect("a request");
        (known.attempts, known.slot) = (attempt, Some(slot));
        let lane = known.lane();
        let hand = self.hands.get_mut(&slot).expect("a worker");
        hand.runs.push(id);
        if lane == Lane::Async || hand.runs.len() == 1 {
            self.promise(id, slot);
        }
        self.begin(id, slot);
        if self.policy.durable {
            self.expect(format!("Store {:?}", Change::Claim(id, attempt)));
        }
        Ok(())
    }

    /// Waiting requests of a lane that could use a worker; more may, of which that is not sure.
    fn wanting(&self, lane: Lane) -> impl Iterator<Item = &Known> + '_ {
        let mine = self
            .requests
            .values()
            .filter(move |known| known.lane() == lane);
        mine.filter(|known| {
            known.place == Place::Waiting && known.wake.0 <= self.now && self.is_free(known)
        })
    }

    pub(super) fn started(&mut self, machine: &Machine, slot: Slot, lane: Lane) -> Verdict {
        hold(!self.hands.contains_key(&slot), || {
            format!("5: place {slot} is used while its last worker's death is not known")
        })?;
        let is_early = self.starts.failures > 0 && self.now < self.starts.from;
        hold(!self.is_paused() && !is_early, || {
            format!(
                "law of starts: worker {slot} starts while none is to: {:?}",
                self.starts
            )
        })?;
        let starting: u32 = super::hand::LANES
            .iter()
            .map(|lane| self.starting(*lane))
            .sum();
        hold(self.starts.failures == 0 || starting == 0, || {
            format!("law of starts: worker {slot} starts beside one while starts fail")
        })?;
        hold(self.has_place_for(lane), || {
            format!("7: worker {slot} takes the place that is kept for another lane")
        })?;
        let is_guaranteed = self.alive_guaranteed(lane) < self.guaranteed(lane);
        let promise = machine.promised_to(slot);
        let for_whom = self
            .wanting(lane)
            .find(|known| self.need_of_new(known) == promise && self.fits(known, None).is_ok());
        let waiting = u32::try_from(self.wanting(lane).count()).unwrap_or(u32::MAX);
        let is_wanted = for_whom.is_some() && self.starting(lane) < waiting;
        hold(is_wanted || is_guaranteed && promise == 0, || {
            format!(
                "law of starts: worker {slot} of {lane:?} starts for nobody who fits, with {promise} bytes"
            )
        })?;
        let is_more = self.alive(lane) > 0 && !is_guaranteed;
        hold(self.policy.burst || !is_more, || {
            format!("law of starts: worker {slot} starts, and no burst is allowed")
        })?;
        let base = self.memory.base.unwrap_or(self.policy.worker_bytes);
        let hand = Hand {
            lane,
            code: self.code.clone(),
            is_up: false,
            is_stopping: false,
            is_leaving: false,
            is_burst: !is_guaranteed,
            born: self.now,
            idle_since: self.now,
            uses: 0,
            runs: Vec::new(),
            private: 0,
            base,
            promise,
            estimate: 0,
            unmeasured: None,
            expelled: None,
        };
        self.hands.insert(slot, hand);
        Ok(())
    }

    /// Beside what was foreseen, an idle burst worker makes room for a lane that all places are taken from.
    pub(super) fn judge_stop(&mut self, slot: Slot) -> Verdict {
        if self.expected.contains(&format!("Stop {slot}")) {
            return Ok(());
        }
        let Some(hand) = self.hands.get(&slot).cloned() else {
            return Err(format!("law of workers: place {slot} is empty and stopped"));
        };
        let is_spare = hand.stays() && hand.is_burst && hand.runs.is_empty();
        let lanes = super::hand::LANES;
        let is_full = lanes.iter().any(|lane| !self.has_place_for(*lane));
        let mut others = super::hand::LANES
            .into_iter()
            .filter(|lane| *lane != hand.lane);
        let is_wanted = others.any(|lane| self.wanting(lane).next().is_some());
        let mut mine = self
            .requests
            .values()
            .filter(|known| known.lane() == hand.lane);
        let needs = mine.any(|known| self.is_sure(known));
        hold(
            is_spare && is_full && is_wanted && !needs && self.alive(hand.lane) > 1,
            || format!("law of workers: {slot} is stopped for nothing: {hand:?}"),
        )?;
        self.stop(slot);
        Ok(())
    }

    /// Beside what was foreseen, what waits behind a long run is wanted back where somebody else is free.
    pub(super) fn judge_recall(&mut self, id: RequestId) -> Verdict {
        let prefix = format!("Recall {id} ");
        if self.expected.iter().any(|one| one.starts_with(&prefix)) {
            return Ok(());
        }
        let lane = self.requests.get(&id).map(Known::lane);
        let more = self.policy.burst && self.all_alive() < self.policy.workers_max;
        let is_helped = lane.is_some_and(|lane| more || self.open(lane).next().is_some());
        hold(is_helped && self.late().contains(&id), || {
            format!(
                "law of recalls: {id} is recalled, and nobody else could run it, or it does not wait for long"
            )
        })?;
        self.recalled(id);
        Ok(())
    }
}
