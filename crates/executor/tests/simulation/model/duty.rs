//! What must not be left undone: whoever may run, runs; who is needed, starts; who is due, is seen to.

use forebay_executor::id::RequestId;
use forebay_executor::machine::Machine;
use forebay_executor::request::{Lane, Millis};

use super::hand::LANES;
use super::known::{Known, Place};
use super::{Model, Verdict};

impl Model {
    /// After what the machine wanted was performed.
    pub fn after(&mut self, machine: &Machine) -> Verdict {
        self.foreseen()?;
        self.compare(machine)?;
        self.recalls()?;
        self.next_time(machine)?;
        if self.is_paused() {
            return Ok(());
        }
        self.guaranteed_are_there()?;
        if self.is_stopped() {
            return Ok(());
        }
        for lane in LANES {
            self.lane(lane)?;
        }
        Ok(())
    }

    /// What had to come came, and nothing else.
    fn foreseen(&mut self) -> Verdict {
        self.expected.sort_unstable();
        self.came.sort_unstable();
        if self.expected == self.came {
            return Ok(());
        }
        let lacks = self.expected.iter().filter(|one| !self.came.contains(one));
        let lacks: Vec<_> = lacks.collect();
        let extra = self.came.iter().filter(|one| !self.expected.contains(one));
        let extra: Vec<_> = extra.collect();
        Err(format!(
            "law of answers: {lacks:?} should have come, {extra:?} should not, of {:?}",
            self.came
        ))
    }

    /// What waits behind a long run is wanted back as soon as somebody is free.
    fn recalls(&self) -> Verdict {
        let more = self.policy.burst && self.all_alive() < self.policy.workers_max;
        for id in self.late() {
            let is_open = self.open(self.requests[&id].lane()).next().is_some();
            if is_open || self.is_tick && more {
                return Err(format!(
                    "law of recalls: {id} waits behind a long run, and a worker is free"
                ));
            }
        }
        Ok(())
    }

    /// The driver sleeps until `next_tick`: nothing may be due before.
    fn next_time(&self, machine: &Machine) -> Verdict {
        let runs = self
            .requests
            .values()
            .filter_map(|known| known.run.as_ref()?.due);
        let waits = self.requests.values().filter(|known| {
            known.place == Place::Waiting && known.wake.0 > self.ticked && self.is_free(known)
        });
        let waits = waits.map(|known| known.wake.1);
        let idle = self
            .hands
            .values()
            .filter(|hand| hand.stays() && hand.is_burst);
        let idle = idle.filter(|hand| hand.runs.is_empty());
        let idle = idle.map(|hand| hand.idle_since + self.policy.worker_idle_ms);
        let starts =
            (self.starts.failures > 0 && self.starts.from > self.now).then_some(self.starts.until);
        let due: Option<Millis> = runs.chain(waits).chain(idle).chain(starts).min();
        let next = machine.next_tick();
        match due {
            Some(due) if next.is_none_or(|next| next > due) => Err(format!(
                "law of times: something is due at {due}, and the driver sleeps until {next:?}"
            )),
            _ => Ok(()),
        }
    }

    /// A new worker may be tried now, for all that can be told from outside.
    fn may_start(&self) -> bool {
        self.starts.failures == 0
            || self.ticked >= self.starts.until
                && LANES.iter().all(|lane| self.starting(*lane) == 0)
    }

    /// Guaranteed workers of the lanes in use stay.
    fn guaranteed_are_there(&self) -> Verdict {
        for lane in LANES {
            let lacks =
                self.in_use[lane as usize] && self.alive_guaranteed(lane) < self.guaranteed(lane);
            if lacks && self.may_start() && self.has_place_for(lane) {
                return Err(format!(
                    "law of starts: a guaranteed worker of {lane:?} is missing"
                ));
            }
        }
        Ok(())
    }

    /// Laws 7 and 8: nobody waits without a reason.
    fn lane(&self, lane: Lane) -> Verdict {
        let waiting = self
            .requests
            .iter()
            .filter(|(_, known)| known.lane() == lane);
        let waiting: Vec<(RequestId, &Known)> = waiting
            .filter(|(_, known)| self.waits_for_a_worker(known))
            .map(|(id, known)| (*id, known))
            .collect();
        let free: Vec<_> = self.open(lane).map(|(slot, _)| Some(slot)).collect();
        let slot = free.first().copied().flatten();
        // In whichever of the free ones, or in a new one: what these have already counts.
        let tried = if free.is_empty() { vec![None] } else { free };
        let fits = |known: &Known| tried.iter().try_for_each(|slot| self.fits(known, *slot));
        // Whoever has not fitted for long is waited for; so is who comes first of a submitter's own.
        let all_fit = waiting.iter().all(|(_, known)| fits(known).is_ok());
        let Some((id, _)) = waiting.first() else {
            return Ok(());
        };
        let any = self.requests.values().filter(|known| {
            known.lane() == lane && known.place == Place::Waiting && known.slot.is_none()
        });
        if !all_fit || any.clone().any(|known| fits(known).is_err()) {
            return Ok(());
        }
        if let Some(slot) = slot {
            return Err(format!("8: {id} may run in {slot}, and waits"));
        }
        let few = self.alive(lane) < self.policy.cores_milli.div_ceil(1_000).max(1);
        let wanted = self.alive(lane) == 0 || self.policy.burst && (few || lane == Lane::Async);
        let enough = self.starting(lane) as usize >= waiting.len();
        if wanted && !enough && self.may_start() && self.has_place_for(lane) {
            return Err(format!("7: {id} waits, and no worker of its lane starts"));
        }
        self.behind(lane, &waiting)
    }

    /// Where one submitter alone waits, its first request lies behind what runs where that costs nobody anything.
    fn behind(&self, lane: Lane, waiting: &[(RequestId, &Known)]) -> Verdict {
        let first = waiting.iter().min_by_key(|(id, known)| known.rank(*id));
        let Some((id, known)) = first else {
            return Ok(());
        };
        let mut all = self
            .requests
            .values()
            .filter(|one| one.lane() == lane && one.place == Place::Waiting);
        let is_lone = all
            .all(|one| one.submission.submitter == known.submission.submitter && self.is_sure(one));
        if !is_lone || self.starting(lane) > 0 {
            return Ok(());
        }
        let taker = self.hands.iter().find(|(slot, hand)| {
            !hand.runs.is_empty() && self.may_wait_behind(known, **slot, hand).is_ok()
        });
        match taker {
            Some((slot, _)) => Err(format!(
                "law of handing: {id} could lie in {slot}, and waits"
            )),
            None => Ok(()),
        }
    }

    /// Nothing but a worker or room can keep it, whatever the machine thinks.
    fn waits_for_a_worker(&self, known: &Known) -> bool {
        let is_awake = known.wake.1 <= self.ticked && self.is_free(known);
        if known.place != Place::Waiting || !is_awake {
            return false;
        }
        let others = |which: &dyn Fn(&Known) -> bool| {
            let all = self.requests.values();
            let open = all.filter(|one| match one.place {
                Place::Ending => false,
                Place::Accepting => one.was_reserved,
                _ => true,
            });
            u32::try_from(open.filter(|one| which(one)).count()).unwrap_or(u32::MAX)
        };
        // Who was told of a free place may wait elsewhere: where more want than may, nothing is sure.
        let name = &known.submission.name;
        let limit = self.limits.get(name).copied();
        let has_name =
            limit.is_none_or(|limit| others(&|one| one.submission.name == *name) <= limit);
        let key = &known.options().key;
        let most = known.options().key_at_once.max(1);
        has_name && (key.is_none() || others(&|one| one.options().key == *key) <= most)
    }
}
