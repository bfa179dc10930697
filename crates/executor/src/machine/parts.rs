//! The parts that the runs of requests work with, and what changes several of them in one step.
//!
//! Each part keeps its own data private. What is kept here is that they agree: a request that has a worker counts in
//! its name, in its lane and in its worker, and what it may still grow by is promised to that worker; a worker that
//! exists is known to the admission. Only methods of `Parts` call those that would break this alone: to occupy and
//! release a name or a worker, to promise, to add and remove a worker.
//!
//! What only the runs need of it stands with them: handing and recalling (`runs::ahead`), interrupts
//! (`runs::interrupt`).

use crate::action::Action;
use crate::machine::admission::{Admission, Blocked, Guarded};
use crate::machine::entry::Entry;
use crate::machine::policy::{LANES, Policy};
use crate::machine::queues::Queues;
use crate::machine::register::{Key, Register};
use crate::machine::workers::WorkerSet;
use crate::news::News;
use crate::request::{Lane, Millis, Slot};

/// The requests, and what they wait for, run in and are admitted by.
#[derive(Debug)]
pub(super) struct Parts {
    pub policy: Policy,
    pub register: Register,
    pub queues: Queues,
    pub workers: WorkerSet,
    pub admission: Admission,
    /// What the driver is to do, in order.
    pub actions: Vec<Action>,
    /// What became of requests since the driver last asked; `None`: it does not ask.
    news: Option<Vec<News>>,
}

impl Parts {
    pub(super) fn new(policy: Policy) -> Self {
        Self {
            register: Register::default(),
            queues: Queues::default(),
            workers: WorkerSet::new(policy.async_at_once),
            admission: Admission::default(),
            actions: Vec::new(),
            news: None,
            policy,
        }
    }

    /// Keeps what becomes of requests from now on until it is taken.
    pub(super) fn keep_news(&mut self) {
        self.news = Some(Vec::new());
    }

    /// Takes what has become of requests, in its order.
    pub(super) fn take_news(&mut self) -> impl Iterator<Item = News> + '_ {
        self.news.iter_mut().flat_map(|news| news.drain(..))
    }

    /// Tells what has become of a request, if that is wanted.
    pub(super) fn tell(&mut self, news: impl FnOnce() -> News) {
        if let Some(kept) = &mut self.news {
            kept.push(news());
        }
    }

    /// Whether a request may begin in a worker that has room, or in a new one.
    pub(super) fn fits(&self, key: Key, slot: Option<Slot>) -> Result<(), Blocked> {
        let Some(entry) = self.register.get(key) else {
            return Ok(());
        };
        self.admission
            .fits(&self.policy, &self.workers, entry, slot)
    }

    /// Counts a request as its worker's, before its run begins.
    pub(super) fn occupy(&mut self, key: Key, slot: Slot) {
        let Some(entry) = self.register.get(key) else {
            return;
        };
        self.queues.occupy_name(entry.name());
        // A handed run is covered by the promise of the run before it.
        if !self.workers.occupy(entry.lane(), slot, key) {
            self.admission.promise(&self.policy, entry, slot);
        }
    }

    /// Takes a request from its worker, which is free for the next one unless it is to be replaced.
    pub(super) fn release(&mut self, now: Millis, key: Key, slot: Slot) {
        let Some(entry) = self.register.get(key) else {
            return;
        };
        if entry.waits_for_children() {
            // Its name, cores and memory it has given back before.
            self.admission.waits_no_more(entry);
            self.workers.take_place(entry.lane(), slot);
            self.workers.release(entry.lane(), slot, key, now);
            return;
        }
        if !entry.is_handed() {
            self.admission.unpromise(entry, slot);
        }
        self.workers.release(entry.lane(), slot, key, now);
        self.release_name(now, key);
    }

    fn release_name(&mut self, now: Millis, key: Key) {
        let name = self.register.get(key).map(Entry::name);
        if let Some(next) = name.and_then(|name| self.queues.release_name(name)) {
            self.queues.make_ready(&mut self.register, now, next);
        }
    }

    /// A run waits for its children: it gives its place in its lane and its name back, its cores, and what it may still
    /// grow by. What was handed behind it is recalled. `false`: it waits already, or does not run.
    pub(super) fn begin_wait(&mut self, now: Millis, key: Key) -> bool {
        let waits = |entry: &mut Entry| entry.set_waits(true);
        let Some(slot) = self.register.get_mut(key).and_then(waits) else {
            return false;
        };
        let Some(entry) = self.register.get(key) else {
            return false;
        };
        self.admission.unpromise(entry, slot);
        self.admission.waits(entry);
        self.workers.give_place(entry.lane(), slot);
        if entry.lane() != Lane::Async {
            self.recall_behind(slot);
        }
        self.release_name(now, key);
        true
    }

    /// It goes on, at once: what has its place now is one too many until something ends. `false`: it does not wait.
    pub(super) fn end_wait(&mut self, key: Key) -> bool {
        let goes_on = |entry: &mut Entry| entry.set_waits(false);
        let Some(slot) = self.register.get_mut(key).and_then(goes_on) else {
            return false;
        };
        let Some(entry) = self.register.get(key) else {
            return false;
        };
        self.queues.occupy_name(entry.name());
        self.admission.waits_no_more(entry);
        self.admission.promise(&self.policy, entry, slot);
        self.workers.take_place(entry.lane(), slot);
        true
    }

    /// Sends a request to its worker, where it begins at once unless another one runs.
    pub(super) fn start_run(&mut self, now: Millis, key: Key, slot: Slot, journal: bool) {
        let worker = self.workers.get(slot);
        let first = worker.and_then(|worker| worker.runs().first());
        let is_first = first == Some(&key);
        let Some(entry) = self.register.get_mut(key) else {
            return;
        };
        let lane = entry.lane();
        let handed = lane != Lane::Async && !is_first;
        entry.start(slot, now, handed);
        // The time of a handed run starts when it begins (`begin_next`).
        if !handed {
            let timeout = entry.options().timeout_ms;
            let due = timeout.map(|span| now.saturating_add(span));
            self.queues.set_due(key, entry, due);
            self.workers.run_began(lane, now);
        }
        self.actions.push(Action::Dispatch {
            slot,
            id: entry.id(),
            attempt: entry.attempts(),
            journal,
        });
        self.workers.use_once(slot);
    }
}

/// Runs that go from one server to the next.
impl Parts {
    /// Counts a run that its worker began under the last server.
    pub(super) fn adopt_run(&mut self, began: Millis, key: Key, slot: Slot) {
        self.occupy(key, slot);
        let Some(entry) = self.register.get_mut(key) else {
            return;
        };
        let lane = entry.lane();
        entry.start(slot, began, false);
        let timeout = entry.options().timeout_ms;
        let due = timeout.map(|span| began.saturating_add(span));
        self.queues.set_due(key, entry, due);
        self.workers.run_began(lane, began);
        self.workers.use_once(slot);
    }

    /// A worker that another server has started.
    pub(super) fn adopt_worker(&mut self, now: Millis, lane: Lane) -> Slot {
        let slot = self.workers.adopt(now, lane);
        self.admission.add_worker(&self.policy, slot, 0);
        slot
    }

    /// Whether every run has begun, and nobody ends it.
    pub(super) fn runs_undisturbed(&self) -> bool {
        let workers = self.workers.iter();
        let mut keys = workers.flat_map(|(_, worker)| worker.runs());
        keys.all(|key| {
            let run = self.register.get(*key).and_then(|entry| entry.run());
            run.is_some_and(|run| !run.handed && run.stop.is_none())
        })
    }
}

/// Workers.
impl Parts {
    /// Keeps the guaranteed workers of the lanes in use.
    pub(super) fn staff(&mut self, now: Millis) {
        if self.admission.is_held() {
            return;
        }
        for lane in LANES {
            while self.workers.wants_guaranteed(lane, &self.policy) && self.may_start(now, lane) {
                self.start(now, lane, false, 0);
            }
        }
    }

    fn start(&mut self, now: Millis, lane: Lane, burst: bool, need: u64) {
        let Self {
            policy,
            workers,
            actions,
            ..
        } = self;
        let slot = workers.start(now, lane, burst, policy, actions);
        self.admission.add_worker(&self.policy, slot, need);
    }

    pub(super) fn start_burst(&mut self, now: Millis, lane: Lane, key: Key) {
        let entry = self.register.get(key);
        let need = self.admission.need_of_new(&self.policy, entry);
        self.start(now, lane, true, need);
    }

    fn may_start(&self, now: Millis, lane: Lane) -> bool {
        !self.admission.is_stopped() && self.workers.may_start(now, lane, &self.policy)
    }

    /// Whether one more worker of a lane would help the first of its queue, and may be started.
    pub(super) fn may_burst(&mut self, now: Millis, lane: Lane) -> bool {
        let ready = self.queues.ready(lane);
        if !self.workers.wants_burst(now, lane, ready, &self.policy) {
            return false;
        }
        self.may_start(now, lane) || self.make_room(now, lane)
    }

    /// Ends other lanes' idle burst workers if the number of workers is what keeps this lane waiting.
    fn make_room(&mut self, now: Millis, lane: Lane) -> bool {
        if self.workers.waits_to_start(now) {
            return false;
        }
        while !self.workers.has_worker_slot(lane, &self.policy) {
            let mut others = LANES.iter().filter(|other| {
                **other != lane
                    && self.workers.of_lane(**other).alive() > 1
                    && self.queues.is_empty(**other)
            });
            let Some((slot, _)) = others.find_map(|other| self.workers.idle(*other).next()) else {
                return false;
            };
            if !self.may_begin_in_new(lane) {
                return false; // no waiting request would use the slot
            }
            self.workers.stop(slot, &mut self.actions);
        }
        self.may_start(now, lane)
    }

    /// Whether a waiting request would begin in a new worker.
    fn may_begin_in_new(&self, lane: Lane) -> bool {
        let mut waiting = self.queues.candidates(&self.register, lane);
        waiting.any(|key| self.fits(key, None).is_ok())
    }

    /// When a worker may be started, by the passing of time alone.
    pub(super) fn starts_due(&self, now: Millis) -> Option<Millis> {
        // A lane with a queue may be allowed another worker.
        let late = LANES
            .into_iter()
            .filter(|lane| !self.queues.is_empty(*lane));
        let burst = late.map(|lane| {
            let burst = self.workers.of_lane(lane).burst();
            burst.due(self.policy.burst_run_ms_min)
        });
        let burst = burst.filter(|at| *at > now).min();
        let again = self.workers.starts_due().filter(|at| *at > now);
        [again, burst].into_iter().flatten().min()
    }

    /// A worker can take requests. `false`: it was not being started.
    pub(super) fn worker_ready(&mut self, now: Millis, slot: Slot) -> bool {
        let is_ready = self.workers.started(now, slot, &mut self.actions);
        if is_ready {
            // The need of the request that it was started for, which is promised again when that begins.
            self.admission.clear_promise(slot);
        }
        is_ready
    }

    /// The death of a worker is known, and it has no runs.
    pub(super) fn forget_worker(&mut self, slot: Slot) {
        self.admission.remove_worker(slot);
        self.workers.remove(slot);
    }

    /// Between two requests: replaces a worker that is worn, ends one that is leaving.
    pub(super) fn after_run(&mut self, now: Millis, slot: Slot) {
        let grown = self.admission.grown(slot);
        self.workers
            .after_run(now, slot, grown, &self.policy, &mut self.actions);
    }

    /// Makes workers of another code end after their runs.
    pub(super) fn replace_old_code(&mut self) {
        for slot in self.workers.replace_old_code(&mut self.actions) {
            self.admission.clear_promise(slot);
        }
    }

    /// Ends burst workers that have been idle for their time.
    pub(super) fn end_idle(&mut self, now: Millis) {
        self.workers.end_idle(now, &self.policy, &mut self.actions);
    }

    /// Ends a worker if the memory is full.
    pub(super) fn guard(&mut self, now: Millis) {
        let guarded = self
            .admission
            .guard(&self.policy, &self.workers, &self.register, now);
        match guarded {
            Some(Guarded::Idle(slot)) => self.workers.stop(slot, &mut self.actions),
            Some(Guarded::Busy(slot, expelled)) => {
                self.workers.expel(slot, expelled);
                let (peak_bytes, limit_bytes) = (expelled.peak_bytes, expelled.limit_bytes);
                let runs = self
                    .workers
                    .get(slot)
                    .map_or(&[][..], |worker| worker.runs());
                for key in runs {
                    if let Some(entry) = self.register.get_mut(*key) {
                        let text = format!(
                            "its worker had {peak_bytes} bytes when the memory was full, and was ended"
                        );
                        entry.note(now, text);
                    }
                }
                self.actions.push(Action::Expel {
                    slot,
                    peak_bytes,
                    limit_bytes,
                });
            }
            None => {}
        }
    }
}
