//! Everything around a machine, in steps chosen by a seed.

use std::sync::Arc;

use forebay_executor::action::Action;
use forebay_executor::id::RequestId;
use forebay_executor::machine::{Machine, Policy};
use forebay_executor::op::Op;
use forebay_executor::request::{Lane, Millis, Outcome, Request, Slot};

use super::chance::Chance;
use super::counted;
use super::disk::Disk;
use super::drawn::policy;
use super::event::{Answer, Event};
use super::law::Law;
use super::model::{Model, Verdict};
use super::planted::Planted;
use super::workers::{Crew, Ended};

#[allow(
    clippy::struct_excessive_bools,
    reason = "each is told by another event"
)]
pub struct World {
    pub chance: Chance,
    pub planted: Planted,
    pub policy: Policy,
    pub machine: Machine,
    pub disk: Disk,
    pub crew: Crew,
    pub law: Law,
    pub model: Model,
    pub now: Millis,
    pub ids: Vec<RequestId>,
    pub code: u32,
    pub submitted: u64,
    pub newest: Option<Arc<Request>>,
    /// Of the requests; where that is one, their lane is one too, as those are handed ahead.
    pub names: &'static [&'static str],
    /// Results that are being made files, and whether their worker left them.
    pub files: Vec<(RequestId, bool)>,
    pub is_held: bool,
    /// A result of which two are more than may be on their way to the disk.
    pub large: Arc<[u8]>,
    pub is_draining: bool,
    /// Operators let it take nothing, and take that back.
    pub cordons: bool,
    /// Print everything that happens.
    pub aloud: bool,
}

impl World {
    pub fn new(seed: u64, planted: Planted) -> Self {
        let mut chance = Chance::new(seed);
        let mut policy = policy(&mut chance);
        policy.durable = planted != Planted::Nothing || !chance.one_in(5);
        let mut machine = Machine::new(policy.clone(), 0);
        machine.keep_news();
        let names = *chance.pick(&[&["a"][..], &["a", "b", "limited"], &["a", "b", "limited"]]);
        Self {
            machine,
            chance,
            planted,
            policy: policy.clone(),
            disk: Disk::default(),
            crew: Crew::default(),
            law: Law::default(),
            model: Model::new(policy.clone(), 0),
            now: 0,
            ids: Vec::new(),
            code: 0,
            submitted: 0,
            newest: None,
            names,
            files: Vec::new(),
            is_held: false,
            large: vec![0; 20 << 20].into(),
            is_draining: false,
            cordons: false,
            aloud: false,
        }
    }

    /// Does so many things, each chosen by chance, then lets everything end.
    pub fn run(&mut self, steps: u64) -> Verdict {
        self.install()?;
        for step in 0..steps {
            counted::step();
            if self.aloud {
                eprintln!("{} ms {:?}", self.now, self.machine.workers());
            }
            self.step()
                .map_err(|broken| format!("step {step} at {} ms: {broken}", self.now))?;
        }
        self.wind_up()
            .map_err(|broken| format!("winding up at {} ms: {broken}", self.now))
    }

    /// Tells the machine of something, performs what it wants, and looks whether everything holds.
    pub fn tell(&mut self, event: Event) -> Result<Answer, String> {
        if self.aloud {
            eprintln!("  {event:?}");
        }
        self.look_at_begun()?;
        let is_tick = matches!(event, Event::Tick);
        let is_measured = matches!(event, Event::Measured(..) | Event::MachineMeasured(..));
        self.model.before(self.now, &event);
        let answer = event.tell(&mut self.machine, self.now);
        self.model.answered(&answer)?;
        self.model.reserve(&self.machine)?;
        self.perform()?;
        let asks_again = self.machine.next_tick().is_some_and(|at| at <= self.now);
        if is_tick && asks_again {
            return Err("a tick asks for itself: the driver would never sleep".into());
        }
        self.law
            .step(&self.machine, self.now, &self.ids, is_measured)?;
        self.model.after(&self.machine)?;
        Ok(answer)
    }

    pub fn perform(&mut self) -> Verdict {
        for news in self.machine.news() {
            if self.aloud {
                eprintln!("  {news:?}");
            }
            self.model.news(&news);
        }
        let actions: Vec<Action> = self.machine.actions().collect();
        for action in actions {
            self.keep_without_a_store(&action);
            if self.aloud {
                eprintln!("  {action:?}");
            }
            self.law.action(&action, &self.disk, &self.crew)?;
            self.model.action(&self.machine, &action)?;
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
                let deaths = 0; // no other server reads them
                let claimed = u32::MAX; // what was given back is not written
                self.disk.apply(Op::End {
                    id,
                    ending,
                    deaths,
                    claimed,
                });
            }
            _ => {}
        }
    }

    fn act(&mut self, action: Action) -> Verdict {
        match action {
            Action::Store(op) => {
                if let (Planted::ToldEarly, Op::End { id, ending, .. }) = (self.planted, &op) {
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
            Action::File(id, ending) => {
                let is_left = matches!(ending.outcome, Outcome::InFile(_));
                self.files.push((id, is_left));
            }
            Action::Accepted(_)
            | Action::Retried(..)
            | Action::Ended(..)
            | Action::Discard(..)
            | Action::Measure { .. } => {}
        }
        Ok(())
    }

    pub fn look_at_begun(&mut self) -> Verdict {
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

    /// No more faults: every request has to end, and nothing may be left behind.
    fn wind_up(&mut self) -> Verdict {
        if self.is_draining {
            self.crash()?;
        }
        self.disk.is_full = false;
        self.tell(Event::Hold(false))?;
        if self.cordons {
            self.tell(Event::Cordon(None))?;
        }
        self.tell(Event::MachineMeasured(0, 0.0))?;
        for _ in 0..20_000 {
            counted::step();
            while self.disk.has_work() {
                self.disk.turn(100);
            }
            self.hear_disk()?;
            self.file()?;
            self.tell(Event::RetryStore)?;
            for slot in self.crew.slots(|process| !process.up) {
                self.crew.ready(slot);
            }
            for slot in self.crew.slots(|process| !process.runs.is_empty()) {
                self.crew.finish(slot, 0, Ended::Succeeded);
            }
            self.hear_worker()?;
            let figures = self.machine.figures(self.now);
            let quiet = self.crew.is_silent() && !self.disk.has_work() && self.files.is_empty();
            if figures.unfinished == 0 && self.machine.is_idle() && quiet {
                return self.nothing_is_left();
            }
            if quiet && let Some(at) = self.machine.next_tick() {
                self.now = self.now.max(at);
                self.tell(Event::Tick)?;
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
