//! Trees of requests at random: runs submit, wait, go on, end, fail and die, are cancelled and run again. Whatever
//! happens, the counters agree, no child is submitted twice, what does not succeed leaves no unfinished child, and
//! everything ends.

#[path = "../../transport/tests/counted/mod.rs"]
mod counted;
mod rig;

use std::collections::{HashMap, HashSet};

use forebay_executor::action::Action;
use forebay_executor::id::RequestId;
use forebay_executor::machine::{Policy, Submitted};
use forebay_executor::request::{Child, Failure, Lane, Options, Outcome, Slot, Status};

use rig::{Rig, death, definition, options};

const SEEDS: u64 = 300;
const STEPS: usize = 600;
const ROOTS: usize = 12;
const CALLS: u32 = 4;

/// Numbers from a seed: xorshift64.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % most as u64).expect("small")
    }

    fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }
}

/// A run as its worker sees it.
#[derive(Clone, Copy)]
struct Run {
    slot: Slot,
    attempt: u32,
    calls: u32,
    waits_for: Option<RequestId>,
    is_interrupted: bool,
}

struct World {
    rig: Rig,
    chance: Chance,
    runs: HashMap<RequestId, Run>,
    /// By parent and call, with what was submitted.
    children: HashMap<(RequestId, u32), (RequestId, String, Options)>,
    /// They did not succeed.
    fallen: HashSet<RequestId>,
    parents: HashMap<RequestId, RequestId>,
    roots: Vec<RequestId>,
    /// Nothing dies or is cancelled: what waits for ever would be saved by that.
    is_calm: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut rig = Rig::new(Policy {
            durable: chance.one_in(2),
            guaranteed: [1, 1, 0],
            cores_milli: 2_000,
            workers_max: 3 + u32::try_from(chance.below(4)).expect("small"),
            memory_limit: chance.one_in(2).then_some(400_000_000),
            burst: chance.one_in(2),
            ..Policy::default()
        });
        let definitions = [Lane::Short, Lane::Long, Lane::Async].map(|lane| {
            let mut one = definition(&format!("{lane:?}"), options(|it| it.lane = lane));
            one.concurrency = chance.one_in(3).then_some(1);
            one
        });
        rig.machine
            .install(0, "code".into(), &definitions)
            .expect("definitions without schedules");
        Self {
            rig,
            chance,
            runs: HashMap::new(),
            children: HashMap::new(),
            parents: HashMap::new(),
            fallen: HashSet::new(),
            roots: Vec::new(),
            is_calm: false,
        }
    }

    fn options(&mut self) -> (String, Options) {
        let lane = [Lane::Short, Lane::Long, Lane::Async][self.chance.below(3)];
        let options = options(|it| {
            it.lane = lane;
            it.retries = u32::from(self.chance.one_in(3));
            it.backoff_ms = 1;
            it.ahead = u32::try_from(self.chance.below(2)).expect("small");
            it.priority = i32::try_from(self.chance.below(3)).expect("small");
        });
        (format!("{lane:?}"), options)
    }

    /// Performs what the machine has decided.
    fn perform(&mut self) {
        loop {
            if self.is_calm || self.chance.one_in(2) {
                self.rig.commit_all();
            }
            let actions = self.rig.take();
            if actions.is_empty() {
                break;
            }
            for action in actions {
                self.perform_one(&action);
            }
        }
        self.rig.machine.audit().expect("the counters agree");
        self.judge_fallen();
    }

    fn perform_one(&mut self, action: &Action) {
        match *action {
            Action::Start { slot, .. } => self.rig.machine.worker_ready(self.rig.now, slot),
            Action::Stop { slot } => {
                self.rig
                    .machine
                    .worker_gone(self.rig.now, slot, death("exit"));
            }
            Action::Dispatch {
                slot, id, attempt, ..
            } => {
                let run = Run {
                    slot,
                    attempt,
                    calls: 0,
                    waits_for: None,
                    is_interrupted: false,
                };
                let before = self.runs.insert(id, run);
                assert!(
                    before.is_none(),
                    "{id} runs twice at once: {:?}",
                    self.rig.machine.why(self.rig.now, id)
                );
            }
            Action::Recall { slot, id, attempt } => {
                // It has not begun: its worker runs another one.
                self.runs.remove(&id);
                self.rig.machine.returned(self.rig.now, slot, id, attempt);
            }
            Action::Interrupt { id, .. } => {
                if let Some(run) = self.runs.get_mut(&id) {
                    run.is_interrupted = true;
                }
            }
            Action::Ended(id, ref ending) if ending.status != Status::Succeeded => {
                self.fallen.insert(id);
            }
            _ => {}
        }
    }

    /// Nothing that is below what has fallen waits, or runs without being interrupted.
    fn judge_fallen(&self) {
        for (child, parent) in &self.parents {
            if !self.fallen.contains(parent) {
                continue;
            }
            let Some(view) = self.rig.machine.view(*child) else {
                continue;
            };
            let is_told = match self.runs.get(child) {
                Some(run) => run.is_interrupted,
                None => view.status == Status::Running || !view.accepted,
            };
            let why = self.rig.machine.why(self.rig.now, *child);
            // A change of it is on its way to the store, which comes first.
            let is_ending = why.as_ref().is_some_and(|why| {
                why.reason.contains("written to the store")
                    && why
                        .decisions
                        .iter()
                        .any(|(_, text)| text.contains("since its parent"))
            });
            assert!(
                is_told || is_ending,
                "{child} waits, and its parent {parent} has fallen: {why:?}"
            );
        }
    }

    /// Whether a run has begun: the first of its worker, or one of a shared worker.
    fn begun(&self) -> Vec<RequestId> {
        let mut begun: Vec<RequestId> = Vec::new();
        for worker in self.rig.machine.workers() {
            let most = if worker.lane == Lane::Async {
                usize::MAX
            } else {
                1
            };
            begun.extend(worker.running.into_iter().take(most));
        }
        begun.retain(|id| self.runs.contains_key(id));
        begun.sort_unstable();
        begun
    }

    fn step(&mut self) {
        counted::step();
        if !self.is_calm && self.roots.len() < ROOTS && self.chance.one_in(4) {
            let (name, options) = self.options();
            let id = self.rig.submit(&name, options);
            self.roots.push(id);
            self.perform();
        }
        let begun = self.begun();
        if begun.is_empty() || self.chance.one_in(5) {
            let now = self.rig.now;
            self.rig.now = self
                .rig
                .machine
                .next_tick()
                .map_or(now + 1, |at| at.max(now + 1));
            self.rig.machine.tick(self.rig.now);
        } else {
            let id = begun[self.chance.below(begun.len())];
            self.run(id);
        }
        if !self.is_calm && self.chance.one_in(60) {
            let all: Vec<RequestId> = self.parents.keys().chain(&self.roots).copied().collect();
            if !all.is_empty() {
                let id = all[self.chance.below(all.len())];
                self.rig.machine.cancel(self.rig.now, id);
            }
        }
        self.perform();
    }

    /// One run does something.
    fn run(&mut self, id: RequestId) {
        let run = self.runs[&id];
        if run.is_interrupted {
            return self.end(id, Outcome::Cancelled);
        }
        if !self.is_calm && self.chance.one_in(40) {
            return self.die(run.slot);
        }
        if let Some(child) = run.waits_for {
            if self.rig.machine.request(child).is_none() {
                self.wait(id, None);
            }
            return;
        }
        match self.chance.below(6) {
            0 | 1 if run.calls < CALLS => self.call(id, run),
            2 | 3 => {
                let mine = (0..run.calls).filter_map(|call| self.children.get(&(id, call)));
                let mine: Vec<RequestId> = mine.map(|(child, ..)| *child).collect();
                if !mine.is_empty() {
                    let child = mine[self.chance.below(mine.len())];
                    self.wait(id, Some(child));
                }
            }
            4 if self.chance.one_in(4) => {
                self.end(id, Outcome::Failed(Failure::Raised(Vec::new().into())));
            }
            _ => self.end(id, Outcome::Succeeded(Vec::new().into())),
        }
    }

    fn wait(&mut self, id: RequestId, child: Option<RequestId>) {
        let run = self.runs.get_mut(&id).expect("it runs");
        run.waits_for = child;
        let (slot, attempt) = (run.slot, run.attempt);
        let waits = child.is_some();
        self.rig
            .machine
            .waits(self.rig.now, slot, id, attempt, waits);
    }

    /// It submits a child: the same one as in its earlier runs.
    fn call(&mut self, id: RequestId, run: Run) {
        let known = self.children.get(&(id, run.calls)).cloned();
        let (name, options) = match &known {
            Some((_, name, options)) => (name.clone(), options.clone()),
            None => self.options(),
        };
        let mut asked = options.clone();
        asked.parent = Some(id);
        asked.child = Some(Child {
            call: run.calls,
            attempt: run.attempt,
            ..Child::default()
        });
        let known = known.map(|(child, ..)| child);
        match self.rig.try_submit(&name, asked) {
            Ok(Submitted::New(child)) => {
                assert_eq!(known, None, "a child of {id} is submitted twice");
                self.children
                    .insert((id, run.calls), (child, name, options));
                self.parents.insert(child, id);
            }
            Ok(Submitted::Known(child)) => assert_eq!(known, Some(child)),
            // Its interrupt is on its way.
            Err(refusal) if refusal.message.contains("is not being ended") => return,
            Err(refusal) => panic!("{refusal}"),
        }
        self.runs.get_mut(&id).expect("it runs").calls += 1;
    }

    fn end(&mut self, id: RequestId, outcome: Outcome) {
        let run = self.runs.remove(&id).expect("it runs");
        self.rig
            .machine
            .finished(self.rig.now, run.slot, id, run.attempt, outcome, None);
    }

    fn die(&mut self, slot: Slot) {
        self.runs.retain(|_, run| run.slot != slot);
        self.rig
            .machine
            .worker_gone(self.rig.now, slot, death("signal"));
    }

    fn depth(&self, id: RequestId) -> u32 {
        std::iter::successors(Some(&id), |id| self.parents.get(id))
            .skip(1)
            .fold(0, |depth, _| depth + 1)
    }
}

#[test]
fn trees_at_random_end_and_leave_every_counter_as_it_is_counted() {
    let _watch = counted::Watch;
    for seed in 1..=SEEDS {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
        }
        // From here on nothing is submitted, and all that is there ends.
        world.is_calm = true;
        for _ in 0..100_000 {
            if world.rig.machine.figures(world.rig.now).unfinished == 0 {
                break;
            }
            for run in world.runs.values_mut() {
                run.calls = CALLS;
            }
            world.step();
        }
        let left = world.rig.machine.figures(world.rig.now);
        assert_eq!(left.unfinished, 0, "seed {seed}: something waits for ever");
        let depths: HashSet<u32> = world.parents.keys().map(|id| world.depth(*id)).collect();
        assert!(depths.iter().all(|depth| *depth <= 64), "seed {seed}");
        assert!(seed != SEEDS || !depths.is_empty());
        let waiting: u32 = left.lanes.iter().map(|lane| lane.waiting).sum();
        assert_eq!((waiting, left.promised_bytes), (0, 0), "seed {seed}");
    }
}
