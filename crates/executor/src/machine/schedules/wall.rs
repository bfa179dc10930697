//! The wall clock beside the machine's own time: schedules follow it, other waits do not.
//!
//! Everything but schedules counts by the machine's time, which does not step: a run's time-out or a delay is a length,
//! whatever the wall clock is set to meanwhile.

use std::collections::HashSet;

use crate::id::RequestId;
use crate::limit::STEP_MS;
use crate::machine::Machine;
use crate::machine::entry::State;
use crate::request::Millis;

/// What is known of the wall clock.
#[derive(Debug, Default)]
pub(in crate::machine) struct Wall {
    /// How far it was set forward since the machine began.
    ahead: i64,
    /// Requests with a `not_before` that was written before this boot: only the wall clock connects that clock with
    /// this one.
    waits: HashSet<RequestId>,
}

impl Wall {
    /// The wall clock's time at a machine time.
    pub(in crate::machine) fn of(&self, now: Millis) -> Millis {
        now.saturating_add_signed(self.ahead)
    }

    /// The machine's time at a wall clock time.
    pub(in crate::machine) fn when(&self, wall: Millis) -> Millis {
        wall.saturating_add_signed(-self.ahead)
    }

    pub(in crate::machine) fn follow(&mut self, id: RequestId) {
        self.waits.insert(id);
    }

    /// Its wait is over; what it waits for later is by this boot's clock.
    pub(in crate::machine) fn leave(&mut self, id: RequestId) {
        if !self.waits.is_empty() {
            self.waits.remove(&id);
        }
    }
}

impl Machine {
    /// Reports the wall clock at `now`. Cost: a comparison, unless the clock was set since the last time.
    pub fn set_wall(&mut self, now: Millis, wall: Millis) {
        let ahead = wall.cast_signed() - now.cast_signed();
        let step = ahead - self.wall.ahead;
        if step.unsigned_abs() < STEP_MS {
            return;
        }
        self.wall.ahead = ahead;
        self.schedules.step(wall);
        let mut waits = std::mem::take(&mut self.wall.waits);
        waits.retain(|id| self.move_wait(now, *id, step));
        self.wall.waits = waits;
        self.settle(now);
    }

    /// Corrects the time of a request that was restored while the wall clock was wrong. False: it waits no more.
    fn move_wait(&mut self, now: Millis, id: RequestId, step: i64) -> bool {
        let Some(key) = self.register.key(id) else {
            return false;
        };
        let Some(entry) = self.register.get_mut(key) else {
            return false;
        };
        if !matches!(entry.state, State::Until | State::After) || entry.not_before.is_none() {
            return false;
        }
        // The wall clock went ahead by `step`, so the same wall time is that much earlier by the machine's.
        entry.not_before = entry.not_before.map(|at| at.saturating_add_signed(-step));
        if matches!(entry.state, State::Until) {
            self.timers.set(key, &mut entry.due, None);
            self.advance(now, key);
        }
        true
    }
}
