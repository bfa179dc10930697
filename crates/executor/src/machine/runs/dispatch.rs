//! Assigns ready requests to workers.

use crate::machine::admission::Blocked;
use crate::machine::entry::Entry;
use crate::machine::parts::Parts;
use crate::machine::register::Key;
use crate::machine::runs::Runs;
use crate::request::{Lane, Millis, Slot};

/// The result of one look at a lane.
#[derive(PartialEq, Eq)]
enum Looked {
    Again,
    Nothing,
}

impl Runs {
    /// Dispatches what can be, from the lane that was served least by its weight.
    pub(in crate::machine) fn dispatch(&mut self, parts: &mut Parts, now: Millis) {
        let mut open = parts.queues.lanes_with_ready();
        if open == [false; 3] || !self.may_dispatch(parts) {
            return;
        }
        while let Some(lane) = parts.queues.next_lane(open) {
            let looked = self.look(parts, now, lane);
            let limited = parts.policy.memory_limit.is_some();
            if looked == Looked::Again && lane == Lane::Short && limited {
                // Memory that was kept for a short request is free for the others while one runs.
                open = parts.queues.lanes_with_ready();
            } else if looked == Looked::Nothing || parts.queues.is_empty(lane) {
                open[lane as usize] = false;
            }
        }
    }

    /// Whether requests may be dispatched. Failing starts do not prevent that: workers that are up take requests.
    fn may_dispatch(&self, parts: &Parts) -> bool {
        !parts.admission.is_stopped()
            && self.ledger.down().is_none()
            && self.ledger.is_behind().is_none()
    }

    fn look(&mut self, parts: &mut Parts, now: Millis, lane: Lane) -> Looked {
        // What is first of each submitter is a child if it has one.
        let only_children = parts.admission.takes_children_alone();
        if only_children && !has_child(parts, lane) {
            return Looked::Nothing;
        }
        let slot = parts.workers.open(lane);
        // No worker is free, and none may be started: at most a busy one can take a request.
        if slot.is_none() && !parts.may_burst(now, lane) {
            return self.look_ahead(parts, now, lane);
        }
        // Waking the idle worker would take a core from the busy ones: handing is cheaper.
        if slot.is_some()
            && parts.workers.is_crowded(lane, &parts.policy)
            && self.look_ahead(parts, now, lane) == Looked::Again
        {
            return Looked::Again;
        }
        // A request that does not fit must not hold up smaller ones of other submitters.
        let turns = if only_children {
            parts.queues.submitters(lane)
        } else {
            parts.queues.turns(lane)
        };
        for turn in 0..turns {
            let Some(key) = parts.queues.head(lane, turn) else {
                break;
            };
            if only_children && !is_child(parts, key) {
                continue;
            }
            if parts.queues.turn_back(&mut parts.register, lane, turn, key) {
                return Looked::Again;
            }
            if let Err(blocked) = parts.fits(key, slot) {
                if turn == 0 && waits_long(parts, now, lane, key, &blocked) {
                    return Looked::Nothing;
                }
                continue;
            }
            // The worker is ordered for this request but not reserved: whichever is first when it is up gets it.
            let Some(slot) = slot else {
                charge(parts, lane);
                parts.start_burst(now, lane, key);
                return Looked::Again;
            };
            parts.queues.take(&parts.register, lane, turn);
            self.give(parts, now, lane, key, slot);
            return Looked::Again;
        }
        match slot {
            Some(_) => Looked::Nothing,
            None => self.look_ahead(parts, now, lane),
        }
    }

    /// No worker is free and none will start: hands the first request to a worker that runs such a request, if one may
    /// take it.
    fn look_ahead(&mut self, parts: &mut Parts, now: Millis, lane: Lane) -> Looked {
        if parts.admission.takes_children_alone() {
            return Looked::Nothing; // what is handed has not begun
        }
        let Some((key, slot)) = parts.behind(now, lane) else {
            return Looked::Nothing;
        };
        if !parts.queues.turn_back(&mut parts.register, lane, 0, key) {
            parts.queues.take(&parts.register, lane, 0);
            self.give(parts, now, lane, key, slot);
        }
        Looked::Again
    }

    fn give(&mut self, parts: &mut Parts, now: Millis, lane: Lane, key: Key, slot: Slot) {
        charge(parts, lane);
        parts.occupy(key, slot);
        self.write_claim(parts, now, key);
        // A run that may be repeated needs no note: after a crash it is started again.
        let once = |entry: &Entry| !entry.is_repeatable();
        let journal = parts.policy.durable && parts.register.get(key).is_some_and(once);
        parts.start_run(now, key, slot, journal);
    }
}

fn is_child(parts: &Parts, key: Key) -> bool {
    let entry = parts.register.get(key);
    entry.is_some_and(|entry| entry.options().depth() > 0)
}

fn has_child(parts: &Parts, lane: Lane) -> bool {
    let mut turns = 0..parts.queues.submitters(lane);
    turns.any(|turn| {
        let head = parts.queues.head(lane, turn);
        head.is_some_and(|key| is_child(parts, key))
    })
}

/// Charges a lane for a dispatch.
fn charge(parts: &mut Parts, lane: Lane) {
    let weight = parts.policy.lane_weights[lane as usize];
    parts.queues.charge(lane, weight);
}

/// Whether the lane's first request has not fitted for so long that nothing of its lane may overtake it any more.
///
/// Without this bound a stream of small requests would starve a large one.
fn waits_long(parts: &mut Parts, now: Millis, lane: Lane, key: Key, blocked: &Blocked) -> bool {
    let Some(entry) = parts
        .register
        .get_mut(key)
        .filter(|_| blocked.is_of_itself())
    else {
        return false;
    };
    let id = entry.id();
    if parts.queues.block(now, lane, id) {
        let text = format!("its turn came and it did not fit: {}", blocked.text());
        entry.note(now, text);
    }
    let most = parts.policy.overtaken_ms_max;
    parts.queues.comes_first(&parts.register, now, lane, most) == Some(id)
}
