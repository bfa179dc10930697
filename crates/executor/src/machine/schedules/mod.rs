//! Schedules: requests that are submitted by themselves at their times.
//!
//! Times that passed while no server ran are made up for once, however many they were. A time at which the schedule's
//! last request has not ended is skipped, and counted. All times here are by the wall clock, which a person or NTP may
//! set: then they are computed anew, as after a restart.

pub(super) mod cron;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::Definition;
use crate::error::Refusal;
use crate::id::RequestId;
use crate::limit::STEP_MS;
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

impl Schedule {
    fn come_again(&mut self, now: Millis, refusal: &Refusal) {
        self.said = refusal.to_string();
        self.next = Some(now.saturating_add(AGAIN_MS));
    }
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
    /// How far the wall clock was set forward since the machine began. Schedules follow it; other waits do not: a run's
    /// time-out or a delay is a length, whatever the wall clock is set to meanwhile.
    ahead: i64,
}

/// What is due of one schedule.
pub(super) enum Due {
    Nothing,
    /// Its last request has not ended: the change to write.
    Skipped(Op),
    Submit(Submission),
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
        let now = self.wall(now);
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

    /// Takes over when each schedule last fired.
    pub(super) fn restore(&mut self, now: Millis, fired: &[(Arc<str>, Millis)]) {
        let now = self.wall(now);
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

    /// The wall clock's time at a machine time.
    fn wall(&self, now: Millis) -> Millis {
        now.saturating_add_signed(self.ahead)
    }

    /// Takes over the wall clock at `now`. `Some`: it was set ahead by this much since the last time, and the next
    /// times were computed anew.
    pub(super) fn set_wall(&mut self, now: Millis, wall: Millis) -> Option<i64> {
        let ahead = wall.cast_signed() - now.cast_signed();
        let step = ahead - self.ahead;
        if step.unsigned_abs() < STEP_MS {
            return None;
        }
        self.ahead = ahead;
        self.step(wall);
        Some(step)
    }

    /// The wall clock was set: computes the next times anew.
    fn step(&mut self, wall: Millis) {
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

    /// Whether a schedule has submitted this request, as its newest one.
    pub(super) fn has_submitted(&self, id: RequestId) -> bool {
        self.all.iter().any(|schedule| schedule.last == Some(id))
    }

    /// The request of a schedule was not written: its time comes again.
    pub(super) fn refused(&mut self, now: Millis, request: &Request, refusal: &Refusal) {
        let wall = self.wall(now);
        let mut all = self.all.iter_mut();
        let Some(schedule) = all.find(|one| one.last == Some(request.id)) else {
            return;
        };
        schedule.last = None;
        schedule.refused = true;
        schedule.come_again(wall, refusal);
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

    /// When the next schedule has something to do, by the machine's time.
    pub(super) fn due(&self) -> Option<Millis> {
        let due = self.due_by_wall();
        due.map(|wall| wall.saturating_add_signed(-self.ahead))
    }

    fn due_by_wall(&self) -> Option<Millis> {
        let going = self.all.iter().filter(|schedule| !schedule.paused);
        going.filter_map(|schedule| schedule.next).min()
    }

    /// Whether a schedule is due.
    pub(super) fn is_due(&self, now: Millis) -> bool {
        let wall = self.wall(now);
        self.due_by_wall().is_some_and(|due| due <= wall)
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// What is due of a schedule, once for all its times that passed.
    pub(super) fn take_due(
        &mut self,
        now: Millis,
        index: usize,
        code: &Arc<str>,
        is_unfinished: impl FnOnce(RequestId) -> bool,
    ) -> Due {
        let wall = self.wall(now);
        let schedule = &mut self.all[index];
        if schedule.paused || schedule.next.is_none_or(|at| at > wall) {
            return Due::Nothing;
        }
        schedule.next = schedule.cron.after(wall);
        // One request of a schedule at a time, so that slow ones do not pile up.
        if let Some(id) = schedule.last
            && is_unfinished(id)
        {
            schedule.skipped += 1;
            schedule.said = format!("skipped: {id} of the last time has not ended");
            return Due::Skipped(self.fired(now, index));
        }
        Due::Submit(Submission {
            name: Arc::clone(&schedule.name),
            code: Arc::clone(code),
            submitter: SUBMITTER.into(),
            arguments: NO_ARGUMENTS.into(),
            options: Arc::clone(&schedule.options),
        })
    }

    /// The request of a schedule was taken: the change to write.
    pub(super) fn submitted(&mut self, now: Millis, index: usize, id: RequestId) -> Op {
        let schedule = &mut self.all[index];
        schedule.last = Some(id);
        schedule.said.clear();
        self.fired(now, index)
    }

    /// The request of a schedule was refused at once: its time comes again.
    pub(super) fn not_submitted(&mut self, now: Millis, index: usize, refusal: &Refusal) {
        let wall = self.wall(now);
        self.all[index].come_again(wall, refusal);
    }

    fn fired(&mut self, now: Millis, index: usize) -> Op {
        let at = self.wall(now);
        let schedule = &mut self.all[index];
        let name = Arc::clone(&schedule.name);
        schedule.before = self.fired.insert(Arc::clone(&name), at);
        schedule.refused = false;
        Op::Fired { name, at }
    }

    /// The schedules of the newest code.
    pub(super) fn view(&self) -> Vec<ScheduleView> {
        let seen = self.all.iter().map(|schedule| ScheduleView {
            name: Arc::clone(&schedule.name),
            pattern: Arc::clone(&schedule.pattern),
            next_at: schedule.next.filter(|_| !schedule.paused),
            fired_at: self.fired.get(&schedule.name).copied(),
            paused: schedule.paused,
            skipped: schedule.skipped,
            last: schedule.last,
            said: schedule.said.clone(),
        });
        seen.collect()
    }

    /// Pauses a schedule, or resumes it from `now`; gives the change to write, if it is one. `Err`: there is none of
    /// that name.
    pub(super) fn set(
        &mut self,
        now: Millis,
        name: &str,
        paused: bool,
    ) -> Result<Option<Op>, Missing> {
        let at = self.wall(now);
        let mut all = self.all.iter_mut();
        let schedule = all
            .find(|schedule| &*schedule.name == name)
            .ok_or(Missing)?;
        if std::mem::replace(&mut schedule.paused, paused) == paused {
            return Ok(None);
        }
        let name = Arc::clone(&schedule.name);
        Ok(Some(if paused {
            self.paused.insert(Arc::clone(&name));
            Op::Paused { name }
        } else {
            schedule.next = schedule.cron.after(at);
            self.paused.remove(&name);
            self.resumed.insert(Arc::clone(&name), at);
            Op::Resumed { name, at }
        }))
    }

    /// Remembers a schedule that was paused when the last server ended.
    pub(super) fn remember_paused(&mut self, name: Arc<str>) {
        self.paused.insert(name);
    }

    /// Remembers when a schedule was resumed, under any server.
    pub(super) fn remember_resumed(&mut self, name: Arc<str>, at: Millis) {
        self.resumed.insert(name, at);
    }
}

/// There is no schedule of that name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missing;
