//! What the machine says of itself, against what the model knows.

use std::fmt::Debug;

use forebay_executor::id::RequestId;
use forebay_executor::machine::{Figures, Machine, RequestView};
use forebay_executor::request::{Lane, Status};

use super::hand::LANES;
use super::known::Place;
use super::{Answer, Model, Verdict};

fn same<T: PartialEq + Debug>(what: &str, told: &T, known: &T) -> Verdict {
    if told == known {
        return Ok(());
    }
    Err(format!(
        "law of figures: {what}: {told:?} is told, {known:?} is so"
    ))
}

impl Model {
    /// What the machine said at once.
    pub fn answered(&self, answer: &Answer) -> Verdict {
        let is_same = match (answer, &self.answer) {
            (Answer::Refused(told), Answer::Refused(known)) => {
                told.code == known.code && (known.value.is_empty() || told.value == known.value)
            }
            (told, known) => told == known,
        };
        if is_same {
            return Ok(());
        }
        Err(format!(
            "law of refusals: {answer:?} is told, {:?} is so",
            self.answer
        ))
    }

    pub(super) fn compare(&self, machine: &Machine) -> Verdict {
        for id in self.requests.keys() {
            same(
                &format!("view of {id}"),
                &machine.view(*id),
                &Some(self.view(*id)),
            )?;
        }
        for (id, known) in &self.requests {
            let status = match known.place {
                Place::Running => Some(Status::Running),
                // Nothing has ended before the disk has it.
                Place::Ending if known.attempts > 0 => Some(Status::Running),
                _ => Some(Status::Queued),
            };
            let why = machine.why(self.now, *id);
            same("why it waits", &why.map(|why| why.status), &status)?;
        }
        self.compare_workers(machine)?;
        let figures = machine.figures(self.now);
        self.compare_figures(&figures)?;
        for lane in LANES {
            self.compare_lane(&figures, lane)?;
        }
        let idle = LANES.iter().all(|lane| self.running(*lane) == 0) && self.filing.is_empty();
        let quiet = idle && self.ledger.in_flight.is_empty();
        let is_idle = quiet && self.ledger.kept() == 0;
        same("nothing is under way", &machine.is_idle(), &is_idle)?;
        same(
            "nothing can end",
            &machine.is_stuck(),
            &(quiet && self.ledger.is_down),
        )
    }

    fn view(&self, id: RequestId) -> RequestView {
        let known = &self.requests[&id];
        let is_running = matches!(known.place, Place::Running | Place::Ending);
        RequestView {
            status: if is_running {
                Status::Running
            } else {
                Status::Queued
            },
            accepted: known.place != Place::Accepting,
            attempt: known.attempts,
            slot: known.slot.filter(|_| known.place == Place::Running),
        }
    }

    fn compare_workers(&self, machine: &Machine) -> Verdict {
        let seen = machine.workers();
        same("workers", &seen.len(), &self.hands.len())?;
        for worker in seen {
            let Some(hand) = self.hands.get(&worker.slot) else {
                return Err(format!(
                    "law of figures: nobody knows worker {}",
                    worker.slot
                ));
            };
            let mut runs = (worker.running.clone(), hand.runs.clone());
            if hand.lane == Lane::Async {
                runs.0.sort_unstable();
                runs.1.sort_unstable();
            }
            same("what a worker runs", &runs.0, &runs.1)?;
            let told = (
                worker.lane,
                worker.state,
                worker.burst,
                worker.age_ms,
                worker.uses,
                worker.private_bytes,
            );
            let age = self.now - hand.born;
            let known = (
                hand.lane,
                hand.state(),
                hand.is_burst,
                age,
                hand.uses,
                hand.private,
            );
            same(&format!("worker {}", worker.slot), &told, &known)?;
            same(
                "what a worker was promised",
                &machine.promised_to(worker.slot),
                &hand.promise,
            )?;
        }
        Ok(())
    }

    fn compare_figures(&self, figures: &Figures) -> Verdict {
        same("unfinished", &figures.unfinished, &self.requests.len())?;
        let told = [
            figures.accepted,
            figures.refused,
            figures.succeeded,
            figures.failed,
            figures.cancelled,
            figures.dead,
            figures.deaths,
        ];
        let ended = |status: Status| self.counts.ended[status as usize];
        let known = [
            self.counts.accepted,
            self.counts.refused,
            ended(Status::Succeeded),
            ended(Status::Failed),
            ended(Status::Cancelled),
            ended(Status::Dead),
            self.counts.deaths,
        ];
        same("counts", &told, &known)?;
        let told = (figures.store_in_flight, figures.store_kept);
        same(
            "changes",
            &told,
            &(self.ledger.in_flight.len(), self.ledger.kept()),
        )?;
        let told = (figures.resident_bytes, figures.promised_bytes);
        same("bytes", &told, &(self.resident(), self.promised()))?;
        same(
            "nothing runs",
            &figures.held.is_some(),
            &(self.is_stopped() || self.starts.failures > 0),
        )
    }

    fn compare_lane(&self, figures: &Figures, lane: Lane) -> Verdict {
        let told = figures.lanes[lane as usize];
        let mine = || self.hands.values().filter(|hand| hand.lane == lane);
        let handed = mine().filter(|_| lane != Lane::Async);
        let handed: usize = handed.map(|hand| hand.runs.len().saturating_sub(1)).sum();
        let handed = u32::try_from(handed).unwrap_or(u32::MAX);
        let idle = mine().filter(|hand| hand.state() == "idle").count();
        let idle = u32::try_from(idle).unwrap_or(u32::MAX);
        let told = (
            told.running,
            told.workers_starting,
            told.workers_up,
            told.workers_idle,
        );
        let (starting, alive) = (self.starting(lane), self.alive(lane));
        let known = (
            self.running(lane) - handed,
            starting,
            alive - starting,
            idle,
        );
        same("a lane", &told, &known)
    }
}
