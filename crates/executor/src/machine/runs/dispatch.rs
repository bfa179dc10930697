//! Assigns ready requests to workers.

use crate::action::Action;
use crate::id::RequestId;
use crate::machine::Machine;
use crate::machine::admission::Blocked;
use crate::machine::entry::{Entry, Key, Run, State};
use crate::machine::policy::LANES;
use crate::machine::queues::queue::Rank;
use crate::request::{Lane, Millis, Slot};

/// Submitters whose first request is tried if the earlier ones do not fit.
pub(in crate::machine) const LOOKAHEAD: usize = 8;
/// What a dispatch costs a lane of weight 1. Stride scheduling: C. Waldspurger, W. Weihl, "Stride Scheduling" (1995).
const STRIDE: u64 = 1 << 16;

/// The result of one look at a lane.
#[derive(PartialEq, Eq)]
enum Looked {
    Again,
    Nothing,
}

impl Machine {
    /// Dispatches what can be, from the lane that was served least by its weight.
    pub(in crate::machine) fn dispatch(&mut self, now: Millis) {
        let mut open = self.lanes_with_ready();
        if open == [false; 3] || !self.may_dispatch() {
            return;
        }
        loop {
            let competing = LANES.iter().filter(|lane| open[**lane as usize]);
            let Some(&lane) = competing.min_by_key(|lane| self.lanes[**lane as usize].pass) else {
                return;
            };
            let looked = self.look(now, lane);
            if looked == Looked::Again && lane == Lane::Short && self.policy.memory_limit.is_some()
            {
                // Memory that was kept for a short request is free for the others while one runs.
                open = self.lanes_with_ready();
            } else if looked == Looked::Nothing || self.lanes[lane as usize].ready.is_empty() {
                open[lane as usize] = false;
            }
        }
    }

    fn lanes_with_ready(&self) -> [bool; 3] {
        LANES.map(|lane| !self.lanes[lane as usize].ready.is_empty())
    }

    /// Whether requests may be dispatched. Failing starts do not prevent that: workers that are up take requests.
    fn may_dispatch(&self) -> bool {
        self.hold.is_none()
            && !self.draining
            && self.ledger.down.is_none()
            && self.ledger.is_behind().is_none()
    }

    fn look(&mut self, now: Millis, lane: Lane) -> Looked {
        let slot = self.workers.open(lane);
        // No worker is free, and none may be started: at most a busy one can take a request.
        if slot.is_none() && !self.may_burst(now, lane) {
            return self.look_ahead(now, lane);
        }
        // Waking the idle worker would take a core from the busy ones: handing is cheaper.
        if slot.is_some() && self.is_crowded(lane) && self.look_ahead(now, lane) == Looked::Again {
            return Looked::Again;
        }
        let turns = self.lanes[lane as usize].ready.submitters().min(LOOKAHEAD);
        // A request that does not fit must not hold up smaller ones of other submitters.
        for turn in 0..turns {
            let Some(key) = self.lanes[lane as usize].ready.head(turn) else {
                break;
            };
            if self.turn_back(lane, turn, key) {
                return Looked::Again;
            }
            if let Err(blocked) = self.fits(key, slot) {
                if turn == 0 && self.waits_long(now, lane, key, &blocked) {
                    return Looked::Nothing;
                }
                continue;
            }
            // The worker is ordered for this request but not reserved: whichever is first when it is up gets it.
            let Some(slot) = slot else {
                self.charge(lane);
                self.start_burst(now, lane, key);
                return Looked::Again;
            };
            self.lanes[lane as usize].ready.take(turn);
            self.give(now, lane, key, slot);
            return Looked::Again;
        }
        match slot {
            Some(_) => Looked::Nothing,
            None => self.look_ahead(now, lane),
        }
    }

    /// No worker is free and none will start: hands the first request to a worker that runs such a request, if one may
    /// take it.
    fn look_ahead(&mut self, now: Millis, lane: Lane) -> Looked {
        let Some((key, slot)) = self.behind(now, lane) else {
            return Looked::Nothing;
        };
        if !self.turn_back(lane, 0, key) {
            self.lanes[lane as usize].ready.take(0);
            self.give(now, lane, key, slot);
        }
        Looked::Again
    }

    /// Makes a request whose name is full wait for its name, not in front of the others.
    fn turn_back(&mut self, lane: Lane, turn: usize, key: Key) -> bool {
        let Some(entry) = self.register.get_mut(key) else {
            return false;
        };
        let name = self.names.get_mut(entry.name);
        if !name.is_full() {
            return false;
        }
        self.lanes[lane as usize].ready.take(turn);
        entry.state = State::Named;
        let rank = Rank::of(&entry.request, key);
        name.waiting.push(&entry.request.submission.submitter, rank);
        true
    }

    /// Whether the lane's first request has not fitted for so long that nothing of its lane may overtake it any more.
    ///
    /// Without this bound a stream of small requests would starve a large one.
    fn waits_long(&mut self, now: Millis, lane: Lane, key: Key, blocked: &Blocked) -> bool {
        let Some(entry) = self
            .register
            .get_mut(key)
            .filter(|_| blocked.is_of_itself())
        else {
            return false;
        };
        let id = entry.request.id;
        let queue = &mut self.lanes[lane as usize];
        if queue.blocked.is_none_or(|(before, _)| before != id) {
            queue.blocked = Some((id, now));
            entry.notes.add(
                now,
                format!("its turn came and it did not fit: {}", blocked.text()),
            );
        }
        self.comes_first(now, lane) == Some(id)
    }

    /// The request that a lane waits for, since it has not fitted for long.
    pub(in crate::machine) fn comes_first(&self, now: Millis, lane: Lane) -> Option<RequestId> {
        let queue = &self.lanes[lane as usize];
        let (id, since) = queue.blocked?;
        let first = queue.ready.head(0).and_then(|key| self.register.get(key))?;
        let long = now.saturating_sub(since) >= self.policy.overtaken_ms_max;
        (first.request.id == id && long).then_some(id)
    }

    fn give(&mut self, now: Millis, lane: Lane, key: Key, slot: Slot) {
        self.charge(lane);
        self.occupy(key, slot);
        self.write_claim(now, key);
        // A run that may be repeated needs no note: after a crash it is started again.
        let once = |entry: &Entry| !entry.is_repeatable();
        let journal = self.policy.durable && self.register.get(key).is_some_and(once);
        self.start_run(now, key, slot, journal);
    }

    /// Charges a lane for a dispatch.
    fn charge(&mut self, lane: Lane) {
        let weight = u64::from(self.policy.lane_weights[lane as usize].max(1));
        let queue = &mut self.lanes[lane as usize];
        // The lanes' virtual time, at which an idle lane rejoins.
        self.pass = queue.pass;
        queue.pass += STRIDE / weight;
    }

    /// Counts a request as its worker's, before its run begins.
    pub(in crate::machine) fn occupy(&mut self, key: Key, slot: Slot) {
        let Some(entry) = self.register.get(key) else {
            return;
        };
        let (lane, name) = (entry.lane(), entry.name);
        self.names.get_mut(name).running += 1;
        self.lanes[lane as usize].running += 1;
        let behind = self.workers.change(slot, |worker| {
            worker.runs.push(key);
            lane != Lane::Async && worker.runs.len() > 1
        });
        // A handed run is covered by the promise of the run before it.
        if behind != Some(true) {
            self.promise(key, slot);
        }
    }

    /// Takes a request from its worker, which is free for the next one unless it is to be replaced.
    pub(in crate::machine) fn release(&mut self, now: Millis, key: Key, slot: Slot) {
        let Some(entry) = self.register.get(key) else {
            return;
        };
        let (lane, name) = (entry.lane(), entry.name);
        let name = self.names.get_mut(name);
        name.running -= 1;
        let next = if name.is_full() {
            None
        } else {
            name.waiting.take(0)
        };
        self.lanes[lane as usize].running -= 1;
        if !self.is_handed(key) {
            self.unpromise(key, slot);
        }
        self.workers.change(slot, |worker| {
            match worker.runs.iter().rposition(|one| *one == key) {
                // Elsewhere the order is that in which the runs begin; here thousands begin at once.
                Some(index) if lane == Lane::Async => {
                    worker.runs.swap_remove(index);
                }
                Some(index) => {
                    worker.runs.remove(index);
                }
                None => {}
            }
            worker.idle_since = now;
        });
        if let Some(next) = next {
            self.make_ready(now, next);
        }
    }

    /// Sends a request to its worker, where it begins at once unless another one runs.
    pub(in crate::machine) fn start_run(
        &mut self,
        now: Millis,
        key: Key,
        slot: Slot,
        journal: bool,
    ) {
        let first = self
            .workers
            .get(slot)
            .and_then(|worker| worker.runs.first());
        let is_first = first == Some(&key);
        let Some(entry) = self.register.get_mut(key) else {
            return;
        };
        let lane = entry.lane();
        let handed = lane != Lane::Async && !is_first;
        entry.state = State::Running(Run {
            slot,
            began: now,
            handed,
            recalled: false,
            stop: None,
            peak: None,
        });
        // The time of a handed run starts when it begins (`begin_next`).
        if !handed {
            let timeout = entry.options().timeout_ms;
            let due = timeout.map(|span| now.saturating_add(span));
            self.timers.set(key, &mut entry.due, due);
            self.lanes[lane as usize].burst.began(now);
        }
        self.actions.push(Action::Dispatch {
            slot,
            id: entry.request.id,
            attempt: entry.attempts,
            journal,
        });
        self.workers.change(slot, |worker| worker.uses += 1);
    }
}
