//! Worker processes that start, fail, run, hang, heed interrupts or not, and die; what they say arrives later.

use std::collections::{BTreeMap, VecDeque};

use forebay_executor::action::Step;
use forebay_executor::id::RequestId;
use forebay_executor::request::{Lane, Slot};

/// Requests that a worker may have behind the one that it runs.
pub const AHEAD: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Succeeded,
    Raised,
    Cancelled,
}

/// What a worker or its keeper says.
#[derive(Clone, Debug)]
pub enum Said {
    Ready(Slot),
    Failed(Slot),
    Finished(Slot, RequestId, u32, Ended),
    Gone(Slot),
    Returned(Slot, RequestId, u32),
}

pub struct Process {
    pub lane: Lane,
    pub up: bool,
    pub runs: Vec<(RequestId, u32)>,
    /// It has ended, and the machine may not know yet.
    pub dead: bool,
}

#[derive(Default)]
pub struct Crew {
    pub processes: BTreeMap<Slot, Process>,
    said: VecDeque<Said>,
    /// Runs that have begun since somebody looked.
    begun: Vec<(RequestId, u32)>,
}

impl Crew {
    pub fn start(&mut self, slot: Slot, lane: Lane) -> Result<(), String> {
        let process = Process {
            lane,
            up: false,
            runs: Vec::new(),
            dead: false,
        };
        match self.processes.insert(slot, process) {
            None => Ok(()),
            Some(_) => Err(format!(
                "5: place {slot} is used while its last worker's death is not known"
            )),
        }
    }

    pub fn slots(&self, which: impl Fn(&Process) -> bool) -> Vec<Slot> {
        let alive = self.processes.iter().filter(|(_, process)| !process.dead);
        alive
            .filter(|(_, process)| which(process))
            .map(|(slot, _)| *slot)
            .collect()
    }

    /// Live runs of a request.
    pub fn runs_of(&self, id: RequestId) -> usize {
        let alive = self.processes.values().filter(|process| !process.dead);
        alive
            .flat_map(|process| &process.runs)
            .filter(|(one, _)| *one == id)
            .count()
    }

    pub fn begin(
        &mut self,
        slot: Slot,
        lane: Lane,
        id: RequestId,
        attempt: u32,
    ) -> Result<(), String> {
        let Some(process) = self.processes.get_mut(&slot) else {
            return Err(format!("5: {id} goes to place {slot}, where no worker is"));
        };
        if process.lane != lane {
            return Err(format!(
                "{id} of {lane:?} goes to a worker of {:?}",
                process.lane
            ));
        }
        if !process.up {
            return Err(format!("{id} goes to worker {slot}, which is not up"));
        }
        if lane != Lane::Async && process.runs.len() > AHEAD && !process.dead {
            return Err(format!(
                "5: {id} goes to worker {slot}, which has {:?}",
                process.runs
            ));
        }
        process.runs.push((id, attempt));
        if (lane == Lane::Async || process.runs.len() == 1) && !process.dead {
            self.begun.push((id, attempt));
        }
        Ok(())
    }

    /// The runs that have begun since the last time.
    pub fn begun(&mut self) -> Vec<(RequestId, u32)> {
        std::mem::take(&mut self.begun)
    }

    /// A run is wanted back; `heeds`: its worker gives it back unless it has begun it.
    pub fn recall(&mut self, slot: Slot, run: (RequestId, u32), heeds: bool) -> Result<(), String> {
        let Some(process) = self.processes.get_mut(&slot) else {
            return Err(format!(
                "5: {run:?} is recalled from place {slot}, where no worker is"
            ));
        };
        let place = process.runs.iter().position(|one| *one == run);
        if let Some(place) = place.filter(|place| *place > 0 && heeds && !process.dead) {
            process.runs.remove(place);
            self.said.push_back(Said::Returned(slot, run.0, run.1));
        }
        Ok(())
    }

    pub fn ready(&mut self, slot: Slot) {
        if let Some(process) = self.processes.get_mut(&slot) {
            process.up = true;
            self.said.push_back(Said::Ready(slot));
        }
    }

    pub fn fail(&mut self, slot: Slot) {
        if let Some(process) = self.processes.get_mut(&slot) {
            process.dead = true;
            self.said.push_back(Said::Failed(slot));
        }
    }

    pub fn finish(&mut self, slot: Slot, place: usize, ended: Ended) {
        if let Some(process) = self
            .processes
            .get_mut(&slot)
            .filter(|process| !process.dead)
        {
            let (id, attempt) = process.runs.remove(place);
            if process.lane != Lane::Async {
                assert_eq!(place, 0, "only the first one has begun");
                self.begun.extend(process.runs.first());
            }
            self.said
                .push_back(Said::Finished(slot, id, attempt, ended));
        }
    }

    pub fn kill(&mut self, slot: Slot) {
        if let Some(process) = self
            .processes
            .get_mut(&slot)
            .filter(|process| !process.dead)
        {
            process.dead = true;
            process.runs.clear();
            self.said.push_back(Said::Gone(slot));
        }
    }

    /// A run is interrupted; `heeds`: an exception ends it.
    pub fn interrupt(
        &mut self,
        slot: Slot,
        id: RequestId,
        attempt: u32,
        step: Step,
        heeds: bool,
    ) -> Result<(), String> {
        let Some(process) = self.processes.get(&slot) else {
            return Err(format!(
                "5: {id} is interrupted in place {slot}, where no worker is"
            ));
        };
        let place = process.runs.iter().position(|run| *run == (id, attempt));
        match (place, step) {
            (Some(place), Step::Exception) if place > 0 && process.lane != Lane::Async => {
                return Err(format!("3: {id} is interrupted before it has begun"));
            }
            (Some(place), Step::Exception) if heeds => self.finish(slot, place, Ended::Cancelled),
            (_, Step::Exception) => {}
            // What has ended meanwhile leaves its worker to nobody else before the machine knows.
            (_, Step::Terminate | Step::Kill) => {
                // A driver looks for its answer first.
                let first = process.runs.first().is_none_or(|run| *run == (id, attempt));
                if place.is_none() && !first {
                    return Ok(());
                }
                if !first && process.lane != Lane::Async {
                    return Err(format!(
                        "3: {id} is killed in worker {slot}, which runs another"
                    ));
                }
                if step == Step::Kill || heeds {
                    self.kill(slot);
                }
            }
        }
        Ok(())
    }

    /// The next thing that arrives.
    pub fn hear(&mut self) -> Option<Said> {
        let said = self.said.pop_front()?;
        if let Said::Gone(slot) | Said::Failed(slot) = said {
            self.processes.remove(&slot);
        }
        Some(said)
    }

    pub fn is_silent(&self) -> bool {
        self.said.is_empty()
    }
}
