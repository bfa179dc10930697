//! Everything around a machine, in steps chosen by a seed.

use std::sync::Arc;

use forebay_executor::action::Action;
use forebay_executor::id::RequestId;
use forebay_executor::machine::{Definition, Machine, Policy, Submitted};
use forebay_executor::op::Op;
use forebay_executor::request::{
    Failure, Lane, Millis, Options, Outcome, Request, Slot, Status, Submission,
};

use super::chance::Chance;
use super::counted;
use super::disk::{Answer, Disk};
use super::drawn::{GB, death, options, policy};
use super::law::Law;
use super::planted::Planted;
use super::workers::{Crew, Ended, Said};

/// Unfinished requests that the world keeps the machine busy with.
const BUSY: usize = 40;

pub struct World {
    chance: Chance,
    planted: Planted,
    policy: Policy,
    machine: Machine,
    disk: Disk,
    crew: Crew,
    law: Law,
    now: Millis,
    ids: Vec<RequestId>,
    code: u32,
    submitted: u64,
    newest: Option<Arc<Request>>,
    /// Of the requests; where that is one, their lane is one too, as those are handed ahead.
    names: &'static [&'static str],
    /// This step told the machine how much memory is taken.
    measured: bool,
    /// This step was a tick.
    ticked: bool,
    /// Print everything that happens.
    pub aloud: bool,
}

type Verdict = Result<(), String>;

impl World {
    pub fn new(seed: u64, planted: Planted) -> Self {
        let mut chance = Chance::new(seed);
        let mut policy = policy(&mut chance);
        policy.durable = planted != Planted::Nothing || !chance.one_in(5);
        let names = *chance.pick(&[&["a"][..], &["a", "b", "limited"], &["a", "b", "limited"]]);
        let mut world = Self {
            machine: Machine::new(policy.clone(), 0),
            chance,
            planted,
            policy,
            disk: Disk::default(),
            crew: Crew::default(),
            law: Law::default(),
            now: 0,
            ids: Vec::new(),
            code: 0,
            submitted: 0,
            newest: None,
            names,
            measured: false,
            ticked: false,
            aloud: false,
        };
        world.install();
        world
    }

    /// Does so many things, each chosen by chance, then lets everything end.
    pub fn run(&mut self, steps: u64) -> Verdict {
        self.perform()?;
        for step in 0..steps {
            self.step()
                .map_err(|broken| format!("step {step} at {} ms: {broken}", self.now))?;
        }
        self.wind_up()
            .map_err(|broken| format!("winding up at {} ms: {broken}", self.now))
    }

    fn step(&mut self) -> Verdict {
        counted::step();
        if self.aloud {
            eprintln!("{} ms {:?}", self.now, self.machine.workers());
        }
        match self.chance.below(200) {
            0..30 => self.submit(),
            30..60 => self.disk.turn(1 + self.chance.index(5)),
            60..90 => self.hear_disk(),
            90..120 => self.worker_does(),
            120..150 => self.hear_worker(),
            150..158 => self.cancel(),
            158..180 => self.time_passes(),
            180..190 => self.measure(),
            190 => self.disk.is_full = self.chance.one_in(3),
            191 => self.machine.retry_store(self.now),
            192 => self.retry(),
            193 => self.install(),
            194 => {
                let reason = self.chance.one_in(3).then(|| "importing".into());
                self.machine.hold(self.now, reason);
            }
            195..198 => self.nonsense(),
            198 if self.policy.durable && self.chance.one_in(5) => self.crash(),
            _ => {}
        }
        self.settle()
    }

    /// Performs what the machine wants, and looks whether everything holds.
    fn settle(&mut self) -> Verdict {
        self.look_at_begun()?;
        self.perform()?;
        let measured = std::mem::take(&mut self.measured);
        let asks_again = self.machine.next_tick().is_some_and(|at| at <= self.now);
        if std::mem::take(&mut self.ticked) && asks_again {
            return Err("a tick asks for itself: the driver would never sleep".into());
        }
        self.law.step(&self.machine, self.now, &self.ids, measured)
    }

    fn perform(&mut self) -> Verdict {
        let actions: Vec<Action> = self.machine.actions().collect();
        for action in actions {
            self.keep_without_a_store(&action);
            if self.aloud {
                eprintln!("  {action:?}");
            }
            self.law.action(&action, &self.disk, &self.crew)?;
            self.act(action)?;
        }
        Ok(())
    }

    /// Without a store the world keeps what a store would have, so that the same laws hold.
    fn keep_without_a_store(&mut self, action: &Action) {
        if self.policy.durable {
            return;
        }
        match action {
            Action::Accepted(id) => {
                let kept = self.machine.request(*id).or(self.newest.as_ref());
                let request = kept.filter(|request| request.id == *id).cloned();
                self.disk
                    .apply(Op::Accept(request.expect("a request that was submitted")));
            }
            Action::Dispatch { id, attempt, .. } => {
                let (id, attempt, at) = (*id, *attempt, self.now);
                self.disk.apply(Op::Claim { id, attempt, at });
            }
            Action::Ended(id, ending) => {
                let (id, ending) = (*id, Arc::clone(ending));
                self.disk.apply(Op::End { id, ending });
            }
            _ => {}
        }
    }

    fn act(&mut self, action: Action) -> Verdict {
        match action {
            Action::Store(op) => {
                if let (Planted::ToldEarly, Op::End { id, ending }) = (self.planted, &op) {
                    let early = Action::Ended(*id, Arc::clone(ending));
                    self.law.action(&early, &self.disk, &self.crew)?;
                }
                self.disk.give(op);
            }
            Action::Refused(id, _) => self.ids.retain(|one| *one != id),
            Action::Dispatch {
                slot,
                id,
                attempt,
                journal,
            } => {
                if journal && self.planted != Planted::NoJournal {
                    self.disk.note(id, attempt);
                }
                let lane = self.disk.rows[&id].request.submission.options.lane;
                self.crew.begin(slot, lane, id, attempt)?;
                self.look_at_begun()?;
                self.send_twice(slot, lane, id, attempt)?;
            }
            Action::Interrupt {
                slot,
                id,
                attempt,
                step,
            } => {
                let heeds = !self.chance.one_in(3);
                self.crew.interrupt(slot, id, attempt, step, heeds)?;
            }
            Action::Recall { slot, id, attempt } => {
                let heeds = !self.chance.one_in(3);
                self.crew.recall(slot, (id, attempt), heeds)?;
            }
            Action::Start { slot, lane } => self.crew.start(slot, lane)?,
            Action::Stop { slot } => {
                let busy = self.crew.slots(|process| !process.runs.is_empty());
                if busy.contains(&slot) {
                    return Err(format!("worker {slot} is stopped while it runs something"));
                }
                self.crew.kill(slot);
            }
            Action::Expel { slot, .. } => self.crew.kill(slot),
            Action::Accepted(_)
            | Action::Ended(..)
            | Action::File(..)
            | Action::Discard(..)
            | Action::Measure { .. } => {}
        }
        Ok(())
    }

    fn look_at_begun(&mut self) -> Verdict {
        for (id, attempt) in self.crew.begun() {
            self.law.begun(id, attempt, &self.disk)?;
        }
        Ok(())
    }

    fn send_twice(&mut self, slot: Slot, lane: Lane, id: RequestId, attempt: u32) -> Verdict {
        if self.planted != Planted::SentTwice || !self.chance.one_in(50) {
            return Ok(());
        }
        let others = self
            .crew
            .slots(|process| process.up && process.lane == lane && process.runs.is_empty());
        let Some(other) = others.into_iter().find(|other| *other != slot) else {
            return Ok(());
        };
        let again = Action::Dispatch {
            slot: other,
            id,
            attempt,
            journal: true,
        };
        self.law.action(&again, &self.disk, &self.crew)
    }

    fn submit(&mut self) {
        let unfinished = self
            .ids
            .iter()
            .filter(|id| self.machine.request(**id).is_some())
            .count();
        if unfinished > BUSY {
            return;
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
        let kept = submission.clone();
        if let Ok(Submitted::New(id)) = self.machine.submit(self.now, submission) {
            let accepted_at = self.now;
            self.newest = Some(Arc::new(Request {
                id,
                accepted_at,
                submission: kept,
            }));
            self.ids.push(id);
        }
    }

    fn hear_disk(&mut self) {
        match self.disk.answer() {
            Some(Answer::Committed(count)) => self.machine.committed(self.now, count),
            Some(Answer::Failed(count)) => {
                self.machine
                    .not_committed(self.now, count, "the disk is full", false);
            }
            None => {}
        }
    }

    fn worker_does(&mut self) {
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
            0..19 if !busy.is_empty() => {
                let slot = *self.chance.pick(&busy);
                let runs = self.crew.processes[&slot].runs.len();
                let ended = *self
                    .chance
                    .pick(&[Ended::Succeeded, Ended::Succeeded, Ended::Raised]);
                let is_async = self.crew.processes[&slot].lane == Lane::Async;
                let place = if is_async { self.chance.index(runs) } else { 0 };
                self.crew.finish(slot, place, ended);
            }
            19 if !all.is_empty() => self.crew.kill(*self.chance.pick(&all)),
            _ => {}
        }
    }

    fn hear_worker(&mut self) {
        let Some(said) = self.crew.hear() else {
            return;
        };
        let now = self.now;
        if self.aloud {
            eprintln!("  {said:?}");
        }
        match said {
            Said::Ready(slot) => self.machine.worker_ready(now, slot),
            Said::Returned(slot, id, attempt) => self.machine.returned(now, slot, id, attempt),
            Said::Failed(slot) => self.machine.worker_failed(now, slot, "no memory".into()),
            Said::Gone(slot) => {
                if self.planted != Planted::DeathLost || !self.chance.one_in(10) {
                    self.machine.worker_gone(now, slot, death("signal"));
                }
            }
            Said::Finished(slot, id, attempt, ended) => {
                let outcome = match ended {
                    Ended::Succeeded => Outcome::Succeeded(Vec::new().into()),
                    Ended::Raised => Outcome::Failed(Failure::Raised(Vec::new().into())),
                    Ended::Cancelled => Outcome::Cancelled,
                };
                let peak = self.chance.one_in(2).then(|| self.chance.below(GB / 4));
                self.machine.finished(now, slot, id, attempt, outcome, peak);
            }
        }
    }

    fn cancel(&mut self) {
        if !self.ids.is_empty() {
            let id = *self.chance.pick(&self.ids);
            let _ = self.machine.cancel(self.now, id);
        }
    }

    fn time_passes(&mut self) {
        let next = self.machine.next_tick();
        self.now = match next {
            Some(at) if self.chance.one_in(2) => self.now.max(at),
            _ => self.now + self.chance.below(50),
        };
        self.machine.tick(self.now);
        self.ticked = true;
        if self.planted == Planted::PlaceReused && self.chance.one_in(20) {
            let slots = self
                .crew
                .slots(|process| process.up && process.runs.is_empty());
            if let Some(slot) = slots.first() {
                self.machine.worker_gone(self.now, *slot, death("unknown"));
            }
        }
    }

    fn measure(&mut self) {
        self.measured = true;
        let slots = self.crew.slots(|process| process.up);
        if !slots.is_empty() {
            let slot = *self.chance.pick(&slots);
            let bytes = self.chance.below(GB / 3);
            self.machine.measured(self.now, slot, bytes);
        }
        if self.chance.one_in(2) {
            let resident = self.chance.below(GB + GB / 20);
            let pressure = if self.chance.one_in(5) { 0.5 } else { 0.0 };
            self.machine.machine_measured(self.now, resident, pressure);
        }
    }

    fn retry(&mut self) {
        if self.ids.is_empty() {
            return;
        }
        let id = *self.chance.pick(&self.ids);
        let ended = self.disk.read(id).filter(|row| row.status.has_ended());
        if let Some(ended) = ended.filter(|row| row.status != Status::Succeeded)
            && self.machine.retry(self.now, ended)
        {
            self.law.retried(id);
            if !self.policy.durable {
                self.disk.apply(Op::Retry { id, at: self.now });
            }
        }
    }

    fn install(&mut self) {
        if self.chance.one_in(3) {
            self.code += 1;
        }
        let names = [("a", None), ("b", None), ("limited", Some(2))];
        let definitions = names.map(|(name, concurrency)| Definition {
            name: name.into(),
            options: Arc::new(Options::default()),
            concurrency,
            cron: None,
        });
        let code = format!("code{}", self.code).into();
        self.machine
            .install(self.now, code, &definitions)
            .expect("no schedules");
    }

    /// What comes too late, or from nowhere.
    fn nonsense(&mut self) {
        let slot = u32::try_from(self.chance.below(20)).unwrap_or(0);
        let attempt = u32::try_from(self.chance.below(3)).unwrap_or(0);
        match self.chance.below(3) {
            0 if !self.ids.is_empty() => {
                let id = *self.chance.pick(&self.ids);
                let runs = self.crew.processes.get(&slot).map(|process| &process.runs);
                if runs.is_none_or(|runs| !runs.contains(&(id, attempt))) && self.crew.is_silent() {
                    let outcome = Outcome::Failed(Failure::OutcomeUnknown);
                    let standing = self.machine.standing(id);
                    self.machine
                        .finished(self.now, slot, id, attempt, outcome, None);
                    assert_eq!(
                        self.machine.standing(id),
                        standing,
                        "an answer from nowhere counts"
                    );
                }
            }
            1 if !self.crew.processes.contains_key(&slot) => {
                self.machine.worker_gone(self.now, slot, death("exit"));
                self.machine.worker_ready(self.now, slot);
                self.machine.measured(self.now, slot, 5);
            }
            _ => {
                let _ = self.machine.cancel(self.now, RequestId(7));
            }
        }
    }

    /// The server is killed, or the power goes; the next one begins with what is on disk.
    fn crash(&mut self) {
        let power_lost = self.chance.one_in(4);
        self.law.crashed(power_lost, &self.crew);
        self.crew = Crew::default();
        self.disk.is_full = false;
        let restored = self.disk.recover(power_lost);
        self.ids.retain(|id| self.disk.rows.contains_key(id));
        self.now += self.chance.below(1_000);
        self.machine = Machine::new(self.policy.clone(), self.now);
        self.install();
        for (id, row) in &self.disk.rows {
            self.machine.remember(*id, row.status);
        }
        let last = self.ids.last().copied().unwrap_or(RequestId(0));
        self.machine.restore(self.now, restored, &[], &[], last);
    }

    /// No more faults: every request has to end, and nothing may be left behind.
    fn wind_up(&mut self) -> Verdict {
        self.disk.is_full = false;
        self.machine.hold(self.now, None);
        self.machine.machine_measured(self.now, 0, 0.0);
        self.measured = true;
        self.settle()?;
        for _ in 0..20_000 {
            counted::step();
            while self.disk.has_work() {
                self.disk.turn(100);
            }
            self.hear_disk();
            self.machine.retry_store(self.now);
            self.perform()?;
            for slot in self.crew.slots(|process| !process.up) {
                self.crew.ready(slot);
            }
            for slot in self.crew.slots(|process| !process.runs.is_empty()) {
                self.crew.finish(slot, 0, Ended::Succeeded);
            }
            self.hear_worker();
            self.settle()?;
            let figures = self.machine.figures(self.now);
            let quiet = self.crew.is_silent() && !self.disk.has_work();
            if figures.unfinished == 0 && self.machine.is_idle() && quiet {
                return self.nothing_is_left();
            }
            if quiet && let Some(at) = self.machine.next_tick() {
                self.now = self.now.max(at);
                self.machine.tick(self.now);
                self.settle()?;
            }
        }
        let stuck = self
            .ids
            .iter()
            .find_map(|id| Some((id, self.machine.why(self.now, *id)?)));
        Err(format!("8: not everything ends: {stuck:?}"))
    }

    fn nothing_is_left(&self) -> Verdict {
        let rows = self.disk.rows.values();
        let unfinished: Vec<_> = rows
            .filter(|row| !row.status.has_ended())
            .map(|row| row.request.id)
            .collect();
        if !unfinished.is_empty() {
            return Err(format!("1: {unfinished:?} are lost"));
        }
        Ok(())
    }
}
