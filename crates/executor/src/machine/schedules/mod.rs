//! Schedules: requests that are submitted by themselves at their times.
//!
//! Times that passed while no server ran are made up for once, however many they were. A time at which the schedule's
//! last request has not ended is skipped, and counted. All times here are by the wall clock, which a person or NTP may
//! set: then they are computed anew, as after a restart.

pub(super) mod cron;
pub(super) mod wall;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::entry::Key;
use super::{Definition, Machine, Submitted};
use crate::error::Refusal;
use crate::id::RequestId;
use crate::op::Op;
use crate::request::{Millis, Options, Request, Submission};
use cron::Cron;

/// The submitter of scheduled requests.
pub const SUBMITTER: &str = "cron";
/// Their arguments: an empty map of msgpack.
const NO_ARGUMENTS: &[u8] = &[0x80];
/// Time until a refused request is submitted again.
const AGAIN_MS: Millis = 1_000;
/// A noted time further ahead than this was written by a clock that was wrong.
const AHEAD_MS_MAX: Millis = 3_600_000;

#[derive(Debug)]
struct Schedule {
    name: Arc<str>,
    pattern: Arc<str>,
    cron: Cron,
    options: Arc<Options>,
    next: Option<Millis>,
    paused: bool,
    skipped: u64,
    last: Option<RequestId>,
    /// When it fired the time before the last.
    before: Option<Millis>,
    /// The request of its last time was refused, after that time was given to the store.
    refused: bool,
    said: String,
}

/// The schedules of the newest code, and when each name last fired and was last resumed.
#[derive(Debug, Default)]
pub(super) struct Schedules {
    all: Vec<Schedule>,
    fired: HashMap<Arc<str>, Millis>,
    resumed: HashMap<Arc<str>, Millis>,
    /// Names that are paused.
    paused: HashSet<Arc<str>>,
    last: HashMap<Arc<str>, RequestId>,
}

/// One schedule for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleView {
    pub name: Arc<str>,
    pub pattern: Arc<str>,
    pub next_at: Option<Millis>,
    pub fired_at: Option<Millis>,
    pub paused: bool,
    /// Times at which the last request had not ended.
    pub skipped: u64,
    /// The last request that it submitted.
    pub last: Option<RequestId>,
    /// Why the last time submitted nothing; empty if it did.
    pub said: String,
}

impl Schedules {
    /// Takes over the schedules of a code, or nothing if one is invalid.
    pub(super) fn install(
        &mut self,
        now: Millis,
        definitions: &[Definition],
    ) -> Result<(), Box<Refusal>> {
        let mut schedules = Vec::new();
        for definition in definitions {
            let Some(pattern) = &definition.cron else {
                continue;
            };
            let cron = Cron::parse(pattern).map_err(|wrong| {
                let object = format!("cron of {}", definition.name);
                let next = format!(
                    "{wrong}; write minute hour day month weekday, such as '0 9 * * mon-fri'"
                );
                Box::new(Refusal::invalid(&object, "a cron pattern", pattern, next))
            })?;
            // A reload keeps what a person sees of a schedule: the skipped times and the last request.
            let before = self.all.iter().find(|one| one.name == definition.name);
            // Not from now on: times that passed while no server ran are made up for.
            let since = self.since(now, &definition.name);
            schedules.push(Schedule {
                name: Arc::clone(&definition.name),
                pattern: Arc::clone(pattern),
                cron,
                options: Arc::clone(&definition.options),
                next: cron.after(since),
                paused: self.paused.contains(&definition.name),
                skipped: before.map_or(0, |before| before.skipped),
                last: before
                    .and_then(|before| before.last)
                    .or_else(|| self.last.get(&definition.name).copied()),
                before: None,
                refused: false,
                said: String::new(),
            });
        }
        self.all = schedules;
        Ok(())
    }

    pub(super) fn restore(&mut self, now: Millis, fired: &[(Arc<str>, Millis)]) {
        self.fired.extend(fired.iter().cloned());
        let mut all = std::mem::take(&mut self.all);
        for schedule in &mut all {
            // A schedule that never fired has nothing to make up for.
            if self.fired.contains_key(&schedule.name) {
                schedule.next = schedule.cron.after(self.since(now, &schedule.name));
            }
        }
        self.all = all;
    }

    /// The wall clock was set: computes the next times anew.
    pub(super) fn step(&mut self, wall: Millis) {
        let mut all = std::mem::take(&mut self.all);
        for schedule in &mut all {
            // A schedule that is due fires first, and computes its next time then.
            if schedule.next.is_none_or(|next| next > wall) {
                schedule.next = schedule.cron.after(self.since(wall, &schedule.name));
            }
        }
        self.all = all;
    }

    /// The time after which the times of a schedule count: when it last fired or was resumed.
    fn since(&self, now: Millis, name: &str) -> Millis {
        let times = [self.fired.get(name), self.resumed.get(name)];
        // A time far ahead would silence the schedule until then.
        let right = |at: &Millis| *at <= now.saturating_add(AHEAD_MS_MAX);
        let last = times.into_iter().flatten().copied().filter(right).max();
        last.unwrap_or(now)
    }

    /// Notes an unfinished request of the last server that a schedule submitted.
    pub(super) fn restored(&mut self, request: &Request) {
        let submission = &request.submission;
        if &*submission.submitter != SUBMITTER {
            return;
        }
        let last = self.last.entry(Arc::clone(&submission.name));
        let last = last.or_insert(request.id);
        *last = request.id.max(*last);
    }

    /// The request of a schedule was not written: its time comes again.
    pub(super) fn refused(&mut self, now: Millis, request: &Request, refusal: &Refusal) {
        let mut all = self.all.iter_mut();
        let Some(schedule) = all.find(|one| one.last == Some(request.id)) else {
            return;
        };
        schedule.last = None;
        schedule.refused = true;
        schedule.come_again(now, refusal);
        // As if it had not fired, so that a restart makes up for this time.
        match schedule.before {
            Some(before) => self.fired.insert(Arc::clone(&schedule.name), before),
            None => self.fired.remove(&schedule.name),
        };
    }

    /// Whether the last time of a schedule need not be written, since its request was refused.
    pub(super) fn take_back(&mut self, name: &str) -> bool {
        let mut all = self.all.iter_mut();
        let schedule = all.find(|schedule| &*schedule.name == name);
        schedule.is_some_and(|schedule| std::mem::take(&mut schedule.refused))
    }

    pub(super) fn due(&self) -> Option<Millis> {
        let going = self.all.iter().filter(|schedule| !schedule.paused);
        going.filter_map(|schedule| schedule.next).min()
    }
}

impl Schedule {
    fn come_again(&mut self, now: Millis, refusal: &Refusal) {
        self.said = refusal.to_string();
        self.next = Some(now.saturating_add(AGAIN_MS));
    }
}

impl Machine {
    /// Submits what is due.
    pub(super) fn fire(&mut self, now: Millis) {
        let wall = self.wall.of(now);
        if self.schedules.due().is_none_or(|due| due > wall) || self.draining {
            return;
        }
        for index in 0..self.schedules.all.len() {
            let schedule = &mut self.schedules.all[index];
            if schedule.paused || schedule.next.is_none_or(|at| at > wall) {
                continue;
            }
            // Once, for all the times that passed.
            schedule.next = schedule.cron.after(wall);
            // One request of a schedule at a time, so that slow ones do not pile up.
            let unfinished = schedule.last.filter(|id| self.register.key(*id).is_some());
            if let Some(id) = unfinished {
                schedule.skipped += 1;
                schedule.said = format!("skipped: {id} of the last time has not ended");
                self.fired(now, index);
            } else {
                self.fire_one(now, index);
            }
        }
    }

    fn fire_one(&mut self, now: Millis, index: usize) {
        let schedule = &self.schedules.all[index];
        let submission = Submission {
            name: Arc::clone(&schedule.name),
            code: Arc::clone(&self.code),
            submitter: SUBMITTER.into(),
            arguments: NO_ARGUMENTS.into(),
            options: Arc::clone(&schedule.options),
        };
        match self.submit(now, submission) {
            Ok(Submitted::New(id) | Submitted::Known(id)) => {
                let schedule = &mut self.schedules.all[index];
                schedule.last = Some(id);
                schedule.said.clear();
                self.fired(now, index);
            }
            Err(refusal) => self.schedules.all[index].come_again(self.wall.of(now), &refusal),
        }
    }

    fn fired(&mut self, now: Millis, index: usize) {
        let name = Arc::clone(&self.schedules.all[index].name);
        let at = self.wall.of(now);
        let before = self.schedules.fired.insert(Arc::clone(&name), at);
        let schedule = &mut self.schedules.all[index];
        (schedule.before, schedule.refused) = (before, false);
        if self.policy.durable {
            self.write(now, Key::MAX, Op::Fired { name, at });
        }
    }

    /// When the next schedule has something to do.
    pub(super) fn schedules_due(&self) -> Option<Millis> {
        let due = self.schedules.due().filter(|_| !self.draining);
        due.map(|wall| self.wall.when(wall))
    }

    /// The schedules of the newest code.
    pub fn schedules(&self) -> Vec<ScheduleView> {
        let all = self.schedules.all.iter();
        let seen = all.map(|schedule| ScheduleView {
            name: Arc::clone(&schedule.name),
            pattern: Arc::clone(&schedule.pattern),
            next_at: schedule.next.filter(|_| !schedule.paused),
            fired_at: self.schedules.fired.get(&schedule.name).copied(),
            paused: schedule.paused,
            skipped: schedule.skipped,
            last: schedule.last,
            said: schedule.said.clone(),
        });
        seen.collect()
    }

    /// Pauses a schedule, or resumes it from `now`: times that passed meanwhile are not made up for. `false`: there is
    /// none of that name.
    pub fn set_schedule(&mut self, now: Millis, name: &str, paused: bool) -> bool {
        let mut all = self.schedules.all.iter_mut();
        let Some(schedule) = all.find(|schedule| &*schedule.name == name) else {
            return false;
        };
        if std::mem::replace(&mut schedule.paused, paused) == paused {
            return true;
        }
        let name = Arc::clone(&schedule.name);
        let op = if paused {
            self.schedules.paused.insert(Arc::clone(&name));
            Op::Paused { name }
        } else {
            let at = self.wall.of(now);
            schedule.next = schedule.cron.after(at);
            self.schedules.paused.remove(&name);
            self.schedules.resumed.insert(Arc::clone(&name), at);
            Op::Resumed { name, at }
        };
        if self.policy.durable {
            self.write(now, Key::MAX, op);
        }
        true
    }

    /// Remembers a schedule that was paused when the last server ended.
    pub fn remember_paused(&mut self, name: Arc<str>) {
        self.schedules.paused.insert(name);
    }

    /// Remembers when a schedule was resumed, under any server: times before that are not made up for.
    pub fn remember_resumed(&mut self, name: Arc<str>, at: Millis) {
        self.schedules.resumed.insert(name, at);
    }
}
