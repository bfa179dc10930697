//! What must hold after every step; numbers as in `docs/concepts/executor.md`.

use std::collections::HashMap;

use forebay_executor::action::Action;
use forebay_executor::id::RequestId;
use forebay_executor::machine::{Figures, Machine};
use forebay_executor::request::Status;

use super::disk::Disk;
use super::workers::Crew;

/// What is known of one request from outside.
#[derive(Default)]
struct Life {
    told: bool,
    ended: bool,
    /// Runs since the last retry by an operator, over all servers.
    runs: u32,
    attempt: u32,
    /// The power went while it ran: it may run once more.
    power_lost: bool,
}

#[derive(Default)]
pub struct Law {
    lives: HashMap<RequestId, Life>,
    taken: u64,
    promised: u64,
}

type Verdict = Result<(), String>;

fn hold(is_kept: bool, broken: impl FnOnce() -> String) -> Verdict {
    if is_kept { Ok(()) } else { Err(broken()) }
}

impl Law {
    pub fn retried(&mut self, id: RequestId) {
        let life = self.lives.entry(id).or_default();
        life.ended = false;
        life.runs = 0;
    }

    /// The server died; what it ran may be in no journal where the power went too.
    pub fn crashed(&mut self, power_lost: bool, crew: &Crew) {
        for (id, life) in &mut self.lives {
            life.power_lost |= power_lost && (crew.runs_of(*id) > 0 || !life.ended);
        }
    }

    /// Before an action is performed.
    pub fn action(&mut self, action: &Action, disk: &Disk, crew: &Crew) -> Verdict {
        match action {
            Action::Accepted(id) => {
                hold(disk.rows.contains_key(id), || {
                    format!("1: {id} is told before its row is on disk")
                })?;
                let life = self.lives.entry(*id).or_default();
                hold(!life.told, || format!("1: {id} is told twice"))?;
                life.told = true;
                Ok(())
            }
            Action::Refused(id, _) => hold(!disk.rows.contains_key(id), || {
                format!("1: {id} is refused and on disk")
            }),
            Action::Retried(id, Ok(())) => {
                let row = disk.rows.get(id);
                hold(row.is_some_and(|row| !row.status.has_ended()), || {
                    format!("1: the retry of {id} is told before it is on disk")
                })
            }
            Action::Ended(id, ending) => {
                let row = disk.rows.get(id);
                let on_disk = row.is_some_and(|row| row.status == ending.status);
                hold(on_disk, || {
                    format!("2: the end of {id} is told before it is on disk")
                })?;
                let life = self.lives.entry(*id).or_default();
                hold(!life.ended, || format!("2: the end of {id} is told twice"))?;
                life.ended = true;
                Ok(())
            }
            Action::Dispatch {
                id,
                attempt,
                journal,
                ..
            } => self.run(*id, *attempt, *journal, disk, crew),
            _ => Ok(()),
        }
    }

    fn run(
        &mut self,
        id: RequestId,
        attempt: u32,
        journal: bool,
        disk: &Disk,
        crew: &Crew,
    ) -> Verdict {
        let Some(row) = disk.rows.get(&id) else {
            return Err(format!("1: {id} runs before its row is on disk"));
        };
        let life = self.lives.entry(id).or_default();
        hold(!life.ended && !row.status.has_ended(), || {
            format!("2: {id} runs after its end")
        })?;
        hold(crew.runs_of(id) == 0, || {
            format!("3: {id} runs twice at once")
        })?;
        let options = &row.request.submission.options;
        let may_run_twice = options.retries > 0 || options.idempotent;
        if !may_run_twice {
            let claimed = row.status == Status::Running && row.attempts == attempt;
            hold(journal || claimed, || {
                format!("4: {id} runs before its claim is on disk or in the journal")
            })?;
        }
        Ok(())
    }

    /// A worker begins a run that it was handed.
    pub fn begun(&mut self, id: RequestId, attempt: u32, disk: &Disk) -> Verdict {
        let Some(row) = disk.rows.get(&id) else {
            return Err(format!("1: {id} begins before its row is on disk"));
        };
        let options = &row.request.submission.options;
        let may_run_twice = options.retries > 0 || options.idempotent;
        let life = self.lives.entry(id).or_default();
        hold(!life.ended, || format!("2: {id} begins after its end"))?;
        life.runs += 1;
        if !may_run_twice {
            hold(life.runs == 1 || life.power_lost, || {
                format!("4: {id} may run once and runs again")
            })?;
        }
        let again = attempt > life.attempt || may_run_twice || life.power_lost;
        hold(again, || {
            format!("3: run {attempt} of {id} comes after run {}", life.attempt)
        })?;
        life.attempt = attempt;
        Ok(())
    }

    /// After each step.
    pub fn step(
        &mut self,
        machine: &Machine,
        now: u64,
        waiting: &[RequestId],
        measured: bool,
    ) -> Verdict {
        machine
            .audit()
            .map_err(|wrong| format!("counters: {wrong}"))?;
        let figures = machine.figures(now);
        self.memory(&figures, measured)?;
        if figures.held.is_some() {
            return Ok(());
        }
        for id in waiting {
            let Some(why) = machine.why(now, *id) else {
                continue;
            };
            let nobody = "waiting: for one of 0 workers of its lane, 0 more start";
            hold(why.reason != nobody, || {
                format!("7: {id} waits, and no worker of its lane is there or starts")
            })?;
            hold(!why.reason.starts_with("waiting: nothing"), || {
                format!("8: {id} waits without a reason")
            })?;
        }
        Ok(())
    }

    /// What was admitted fits, or runs alone; what was measured meanwhile is the guard's.
    fn memory(&mut self, figures: &Figures, measured: bool) -> Verdict {
        let Some(limit) = figures.memory_limit_bytes else {
            return Ok(());
        };
        let taken = figures.resident_bytes + figures.promised_bytes;
        let grown = taken > self.taken && figures.promised_bytes > self.promised;
        (self.taken, self.promised) = (taken, figures.promised_bytes);
        let lanes = &figures.lanes;
        let alone = lanes[0].running + lanes[1].running <= 1;
        hold(measured || !grown || alone || taken <= limit, || {
            format!("6: {taken} bytes are resident or promised, of {limit}: {figures:?}")
        })
    }
}
