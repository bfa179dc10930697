//! What happens to a machine: each deed is a step of the simulation.

use std::sync::Arc;

use forebay_executor::id::RequestId;
use forebay_executor::machine::{Definition, Machine, Submitted};
use forebay_executor::op::Op;
use forebay_executor::request::{
    Failure, Lane, Options, Outcome, Request, Slot, Status, Submission,
};

use super::disk;
use super::drawn::{UNIT, death, options};
use super::event::{Answer, Event};
use super::model::{Model, Verdict};
use super::planted::Planted;
use super::workers::{Crew, Ended, Said};
use super::world::World;

/// Unfinished requests that the world keeps the machine busy with.
const BUSY: usize = 40;

impl World {
    pub fn step(&mut self) -> Verdict {
        // Drawn only where it is wanted: the other runs keep their seeds.
        if self.cordons && self.chance.one_in(60) {
            return self.cordon();
        }
        match self.chance.below(200) {
            0..30 => self.submit(),
            30..60 => {
                self.disk.turn(1 + self.chance.index(5));
                Ok(())
            }
            60..90 => self.hear_disk(),
            90..118 => self.worker_does(),
            118..146 => self.hear_worker(),
            146..156 => self.cancel(),
            156..176 => self.time_passes(),
            176..188 => self.measure(),
            188 => {
                self.disk.is_full = self.chance.one_in(3);
                Ok(())
            }
            189 | 190 => {
                self.disk.is_full &= !self.chance.one_in(3);
                self.tell(Event::RetryStore).map(drop)
            }
            191 | 192 => self.retry(),
            193 => self.install(),
            194 | 195 => self.hold(),
            196 => self.nonsense(),
            197 => self.file(),
            198 if self.policy.durable && (self.is_draining || self.chance.one_in(5)) => {
                self.crash()
            }
            199 if self.policy.durable && self.chance.one_in(20) => {
                self.is_draining = true;
                self.tell(Event::Drain).map(drop)
            }
            _ => self.forget(),
        }
    }

    fn unfinished(&self) -> Vec<RequestId> {
        let ids = self.ids.iter().copied();
        ids.filter(|id| self.machine.request(*id).is_some())
            .collect()
    }

    fn submit(&mut self) -> Verdict {
        if self.unfinished().len() > BUSY {
            return Ok(());
        }
        let newest = &self.ids[self.ids.len().saturating_sub(20)..];
        let mut options = options(&mut self.chance, self.now, self.submitted, newest);
        if self.names.len() == 1 {
            options.lane = Lane::Long;
            options.ahead = options.ahead.max(1);
        }
        for id in &options.after {
            // As a driver does, which reads ended ones back from the store.
            if let Some(row) = self.disk.rows.get(id) {
                self.machine.remember(*id, row.status);
                let submission = &row.request.submission;
                self.model.remember(*id, row.status, submission, false);
            }
        }
        let name = *self.chance.pick(self.names);
        let submission = Submission {
            name: name.into(),
            code: format!("code{}", self.code).into(),
            submitter: (*self.chance.pick(&["ann", "bob", "eve"])).into(),
            arguments: Vec::new().into(),
            options: Arc::new(options),
        };
        self.submitted += 1;
        // The machine may tell at once that it was accepted: whoever keeps it has to know it by then.
        let id = RequestId::after(self.model.last(), self.now, 0);
        self.newest = Some(Arc::new(Request {
            id,
            accepted_at: self.now,
            submission: submission.clone(),
        }));
        if let Answer::Submitted(Submitted::New(id)) = self.tell(Event::Submit(submission))? {
            self.ids.push(id);
        }
        Ok(())
    }

    pub fn hear_disk(&mut self) -> Verdict {
        let told = match self.disk.answer() {
            Some(disk::Answer::Committed(count)) => Event::Committed(count),
            Some(disk::Answer::Failed(count)) => Event::NotCommitted(count),
            None => return Ok(()),
        };
        self.tell(told).map(drop)
    }

    /// A result is a file now, or what its worker left is not what it said.
    pub fn file(&mut self) -> Verdict {
        let Some((id, is_left)) = self.files.pop() else {
            return Ok(());
        };
        let unfit = is_left && self.chance.one_in(3);
        self.tell(Event::Filed(id, unfit.then_some("no regular file")))
            .map(drop)
    }

    fn worker_does(&mut self) -> Verdict {
        let starting = self.crew.slots(|process| !process.up);
        let busy = self.crew.slots(|process| !process.runs.is_empty());
        let all = self.crew.slots(|_| true);
        match self.chance.below(20) {
            0..8 if !starting.is_empty() => {
                let slot = *self.chance.pick(&starting);
                if self.chance.one_in(8) {
                    self.crew.fail(slot);
                } else {
                    self.crew.ready(slot);
                }
            }
            0..18 if !busy.is_empty() => {
                let slot = *self.chance.pick(&busy);
                let runs = self.crew.processes[&slot].runs.len();
                let ended = *self
                    .chance
                    .pick(&[Ended::Succeeded, Ended::Succeeded, Ended::Raised]);
                let is_async = self.crew.processes[&slot].lane == Lane::Async;
                let place = if is_async { self.chance.index(runs) } else { 0 };
                self.crew.finish(slot, place, ended);
            }
            18 if !busy.is_empty() => self.crew.kill(*self.chance.pick(&busy)),
            19 if !all.is_empty() => self.crew.kill(*self.chance.pick(&all)),
            _ => {}
        }
        self.look_at_begun()
    }

    pub fn hear_worker(&mut self) -> Verdict {
        let Some(said) = self.crew.hear() else {
            return Ok(());
        };
        let event = match said {
            Said::Ready(slot) => Event::Ready(slot),
            Said::Returned(slot, id, attempt) => Event::Returned(slot, id, attempt),
            Said::Failed(slot) => Event::StartFailed(slot),
            Said::Gone(slot) => {
                if self.planted == Planted::DeathLost && self.chance.one_in(10) {
                    return Ok(());
                }
                let cause = *self.chance.pick(&["signal", "exit", "signal", "server"]);
                let mut death = death(cause);
                death.peak_bytes = self.chance.one_in(3).then(|| UNIT * self.chance.below(8));
                Event::Gone(slot, death)
            }
            Said::Finished(slot, id, attempt, ended) => {
                let outcome = match ended {
                    Ended::Succeeded => self.result(),
                    Ended::Raised => Outcome::Failed(Failure::Raised(Vec::new().into())),
                    Ended::Cancelled => Outcome::Cancelled,
                };
                let peak = self.chance.one_in(2).then(|| UNIT * self.chance.below(8));
                Event::Finished(slot, id, attempt, outcome, peak)
            }
        };
        self.tell(event).map(drop)
    }

    /// Small, as a file, or so large that two of them hold up everything.
    fn result(&mut self) -> Outcome {
        match self.chance.below(40) {
            0..6 => Outcome::InFile(2_000_000),
            6..8 => Outcome::Succeeded(Arc::clone(&self.large)),
            8..20 => Outcome::Succeeded(vec![0; 11].into()),
            _ => Outcome::Succeeded(Vec::new().into()),
        }
    }

    /// Mostly of what has not ended.
    fn cancel(&mut self) -> Verdict {
        let mut ids = self.unfinished();
        if ids.is_empty() || self.chance.one_in(10) {
            ids.clone_from(&self.ids);
        }
        if self.chance.one_in(3) {
            // One that waits for its name, or was told that this has a place.
            let waits = |id: &RequestId| {
                let view = self.machine.view(*id);
                let is_queued = view.is_some_and(|one| one.status == Status::Queued);
                let request = self.machine.request(*id);
                is_queued && request.is_some_and(|one| &*one.submission.name == "limited")
            };
            let waiting: Vec<RequestId> = ids.iter().copied().filter(waits).collect();
            if !waiting.is_empty() {
                ids = waiting;
            }
        }
        if ids.is_empty() {
            return Ok(());
        }
        let id = *self.chance.pick(&ids);
        self.tell(Event::Cancel(id)).map(drop)
    }

    fn time_passes(&mut self) -> Verdict {
        let next = self.machine.next_tick();
        self.now = match next {
            Some(at) if self.chance.one_in(2) => self.now.max(at),
            _ => self.now + 10 * self.chance.below(6),
        };
        self.tell(Event::Tick)?;
        if self.planted == Planted::PlaceReused && self.chance.one_in(20) {
            let slots = self
                .crew
                .slots(|process| process.up && process.runs.is_empty());
            if let Some(slot) = slots.first() {
                self.tell(Event::Gone(*slot, death("unknown")))?;
            }
        }
        Ok(())
    }

    /// Workers grow, or stay as they are, or are what nobody thought.
    fn measure(&mut self) -> Verdict {
        for worker in self.machine.workers() {
            let has = worker.private_bytes;
            let bytes = match self.chance.below(12) {
                0..6 => has,
                6 => has + 1_000_000 * self.chance.below(3),
                7 => has + UNIT,
                8 => UNIT * self.chance.below(11),
                9 => UNIT,
                _ => continue,
            };
            if worker.state != "starting" {
                self.tell(Event::Measured(worker.slot, bytes))?;
            }
        }
        if self.chance.one_in(3) {
            let resident = UNIT * self.chance.below(34);
            let pressure = *self.chance.pick(&[0.0, 0.0, 0.0, 0.0, 0.2, 0.5]);
            self.tell(Event::MachineMeasured(resident, pressure))?;
            if self.chance.one_in(3) {
                self.tell(Event::MachineMeasured(resident, pressure))?; // no worker was read between
            }
        }
        if self.chance.one_in(2) {
            self.tell(Event::MachineMeasured(0, 0.0))?;
        }
        Ok(())
    }

    fn retry(&mut self) -> Verdict {
        let is_wanted = |id: &&RequestId| {
            let row = self.disk.rows.get(id);
            row.is_some_and(|row| row.status.has_ended() && row.status != Status::Succeeded)
        };
        let ended: Vec<RequestId> = self.ids.iter().filter(is_wanted).copied().collect();
        if ended.is_empty() {
            return Ok(());
        }
        let id = *self.chance.pick(&ended[ended.len().saturating_sub(20)..]);
        let Some(row) = self.disk.read(id) else {
            return Ok(());
        };
        let is_taken = !self.model.is_down() && !self.model.is_full();
        if self.machine.request(id).is_none() && is_taken {
            self.law.retried(id);
            if !self.policy.durable {
                self.disk.apply(Op::Retry { id, at: self.now });
            }
        }
        self.tell(Event::Retry(row)).map(drop)
    }

    pub fn install(&mut self) -> Verdict {
        if self.chance.one_in(3) {
            self.code += 1;
        }
        let limit = 1 + u32::try_from(self.chance.below(3)).unwrap_or(0);
        let names = [("a", None), ("b", None), ("limited", Some(limit))];
        let definitions = names.map(|(name, concurrency)| Definition {
            name: name.into(),
            options: Arc::new(Options::default()),
            concurrency,
            cron: None,
        });
        let code = format!("code{}", self.code).into();
        self.tell(Event::Install(code, definitions.to_vec()))
            .map(drop)
    }

    fn hold(&mut self) -> Verdict {
        self.is_held = !self.is_held && self.chance.one_in(3);
        self.tell(Event::Hold(self.is_held)).map(drop)
    }

    fn cordon(&mut self) -> Verdict {
        let cordon = match self.chance.below(4) {
            0 => Some(true),
            1 => Some(false),
            _ => None,
        };
        self.tell(Event::Cordon(cordon)).map(drop)
    }

    /// A request that has ended was pruned, or has not.
    fn forget(&mut self) -> Verdict {
        let key = format!(
            "key {}",
            self.submitted.saturating_sub(self.chance.below(60)) / 30
        );
        self.tell(Event::Forget(key.into())).map(drop)
    }

    /// What comes too late, or from nowhere.
    fn nonsense(&mut self) -> Verdict {
        let slot = Slot::try_from(self.chance.below(20)).unwrap_or(0);
        let attempt = u32::try_from(self.chance.below(3)).unwrap_or(0);
        match self.chance.below(3) {
            0 if !self.ids.is_empty() => {
                let id = *self.chance.pick(&self.ids);
                let runs = self.crew.processes.get(&slot).map(|process| &process.runs);
                if runs.is_none_or(|runs| !runs.contains(&(id, attempt))) && self.crew.is_silent() {
                    let outcome = Outcome::Failed(Failure::OutcomeUnknown);
                    let view = self.machine.view(id);
                    self.tell(Event::Finished(slot, id, attempt, outcome, None))?;
                    self.tell(Event::Returned(slot, id, attempt))?;
                    if self.machine.view(id) != view {
                        return Err(format!("3: an answer from nowhere counts for {id}"));
                    }
                }
                Ok(())
            }
            1 if !self.crew.processes.contains_key(&slot) => {
                self.tell(Event::Gone(slot, death("exit")))?;
                self.tell(Event::Ready(slot))?;
                self.tell(Event::StartFailed(slot))?;
                self.tell(Event::Measured(slot, 5)).map(drop)
            }
            _ => self.tell(Event::Cancel(RequestId(7))).map(drop),
        }
    }

    /// The server is killed, or the power goes; the next one begins with what is on disk.
    pub fn crash(&mut self) -> Verdict {
        let power_lost = self.chance.one_in(4);
        self.law.crashed(power_lost, &self.crew);
        self.crew = Crew::default();
        self.disk.is_full = false;
        (self.is_held, self.is_draining) = (false, false);
        self.files.clear();
        let restored = self.disk.recover(power_lost);
        self.ids.retain(|id| self.disk.rows.contains_key(id));
        self.now += 10 * self.chance.below(100);
        self.machine = Machine::new(self.policy.clone(), self.now);
        self.machine.keep_news();
        self.model = Model::new(self.policy.clone(), self.now);
        self.install()?;
        for (id, row) in &self.disk.rows {
            let submission = &row.request.submission;
            self.machine.remember(*id, row.status);
            if let Some(key) = submission
                .options
                .idempotency
                .as_ref()
                .filter(|_| row.status.has_ended())
            {
                self.machine
                    .remember_idempotency(Arc::clone(key), *id, &submission.name);
            }
            self.model.remember(*id, row.status, submission, true);
        }
        let last = self.ids.last().copied().unwrap_or(RequestId(0));
        let learnt = self.disk.learnt.clone();
        self.tell(Event::Restore(restored, learnt, last)).map(drop)
    }
}
