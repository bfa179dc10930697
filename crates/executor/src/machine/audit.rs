//! Checks the machine's counters against the state that they count; for the simulation.

use std::collections::HashMap;

use super::Machine;
use super::entry::{Entry, State};
use super::policy::LANES;
use super::workers::{Stage, Worker};
use crate::request::{Lane, Slot};

impl Machine {
    /// Recounts everything that is counted incrementally, by a walk over all requests and workers.
    ///
    /// # Errors
    /// What disagrees.
    #[doc(hidden)]
    pub fn audit(&self) -> Result<(), String> {
        self.audit_lanes()?;
        self.audit_names()?;
        self.audit_states()?;
        let promised: u64 = self.workers.iter().map(|(_, worker)| worker.promise).sum();
        same("promised bytes", promised, self.room.promised)?;
        let private: u64 = self.workers.iter().map(|(_, worker)| worker.private).sum();
        same("private bytes", private, self.room.private)?;
        self.audit_cores()?;
        if let Some(slot) = self.room.alone {
            let idle = self.workers.get(slot).is_none_or(Worker::is_idle);
            same("an idle or dead worker that runs alone", idle, false)?;
        }
        for (slot, worker) in self.workers.iter() {
            if worker.stage == Stage::Up && worker.is_idle() {
                same("bytes promised to an idle worker", worker.promise, 0)?;
            }
            for key in &worker.runs {
                let slot_of_run = self.register.get(*key).and_then(Entry::slot);
                same("the worker of a run", slot_of_run, Some(slot))?;
            }
        }
        let timed = self
            .register
            .iter()
            .filter(|(_, entry)| entry.due.is_some())
            .count();
        same("timers", self.timers.len(), timed)
    }

    /// Bytes that a worker may still grow by, as counted in the sum of all.
    #[doc(hidden)]
    pub fn promised_to(&self, slot: Slot) -> u64 {
        self.workers.get(slot).map_or(0, |worker| worker.promise)
    }

    /// A handed run is promised its cores when it begins.
    fn audit_cores(&self) -> Result<(), String> {
        let mut cores = [0; 3];
        for (_, worker) in self.workers.iter() {
            let first = worker.runs.first().filter(|_| worker.lane != Lane::Async);
            if let Some(entry) = first.and_then(|key| self.register.get(*key)) {
                cores[worker.lane as usize] += entry.options().cpu_milli;
            }
        }
        same("promised cores", cores, self.room.cores_milli())
    }

    fn audit_lanes(&self) -> Result<(), String> {
        for lane in LANES {
            let mine = || {
                self.register
                    .iter()
                    .filter(move |(_, entry)| entry.lane() == lane)
            };
            let queue = &self.lanes[lane as usize];
            let ready = mine()
                .filter(|(_, entry)| matches!(entry.state, State::Ready))
                .count();
            same("ready requests", queue.ready.len(), ready)?;
            let running = mine().filter(|(_, entry)| entry.slot().is_some()).count();
            same("running requests", queue.running as usize, running)?;
            self.workers.audit(lane)?;
        }
        Ok(())
    }

    /// Each request has what its state needs: a time, a reason to wait for its key, or a share of it.
    fn audit_states(&self) -> Result<(), String> {
        for (_, entry) in self.register.iter() {
            let options = entry.options();
            let mine = |one: &Entry| one.holds_key && one.options().key == options.key;
            let mut holding = 0;
            if options.key.is_some() {
                holding = self.register.iter().filter(|(_, one)| mine(one)).count();
                let recorded = self.keys.holders(options) as usize;
                same("holders of a key", recorded, holding)?;
            }
            let most = options.key_at_once.max(1) as usize;
            let has_reason = match &entry.state {
                State::After => entry.waits_for > 0,
                State::Until => entry.due.is_some() && entry.due == entry.not_before,
                State::Keyed => holding >= most && !entry.holds_key,
                State::Named | State::Ready => entry.holds_key || options.key.is_none(),
                State::Running(run) => {
                    let ends = options.timeout_ms.is_some() || run.stop.is_some();
                    // The time of a handed run starts when it begins.
                    run.handed || !ends || entry.due.is_some()
                }
                _ => true,
            };
            let id = entry.request.id;
            same("what its state needs", (id, has_reason), (id, true))?;
        }
        Ok(())
    }

    fn audit_names(&self) -> Result<(), String> {
        let mut running: HashMap<u32, u32> = HashMap::new();
        let mut waiting: HashMap<u32, usize> = HashMap::new();
        for (_, entry) in self.register.iter() {
            *running.entry(entry.name).or_default() += u32::from(entry.slot().is_some());
            *waiting.entry(entry.name).or_default() +=
                usize::from(matches!(entry.state, State::Named));
        }
        for (index, name) in self.names.all() {
            same(
                "running of a name",
                name.running,
                running.get(&index).copied().unwrap_or(0),
            )?;
            same(
                "waiting for a name",
                name.waiting.len(),
                waiting.get(&index).copied().unwrap_or(0),
            )?;
            // For each free slot of a name one waiting request was made ready.
            let is_ready =
                |entry: &Entry| entry.name == index && matches!(entry.state, State::Ready);
            let ready = self.register.iter().filter(|(_, entry)| is_ready(entry));
            let taken = ready.count() + name.running as usize;
            if !name.waiting.is_empty() && name.limit.is_none_or(|limit| taken < limit as usize) {
                return Err(format!(
                    "{} wait for {} and none was made ready",
                    name.waiting.len(),
                    name.text
                ));
            }
        }
        Ok(())
    }
}

fn same<T: Copy + PartialEq + std::fmt::Debug>(what: &str, one: T, other: T) -> Result<(), String> {
    if one == other {
        Ok(())
    } else {
        Err(format!("{what}: {one:?} and {other:?}"))
    }
}
