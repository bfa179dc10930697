//! Checks the counters of the parts against the state that they count; for the simulation.

use std::collections::HashMap;

use super::entry::{Entry, State};
use super::parts::Parts;
use super::policy::LANES;
use super::queues::Waits;
use super::workers::{Stage, Worker};
use crate::request::Lane;

/// Recounts everything that is counted incrementally, by a walk over all requests and workers.
pub(super) fn audit(parts: &Parts) -> Result<(), String> {
    let (workers, admission) = (&parts.workers, &parts.admission);
    audit_submitters(parts)?;
    audit_lanes(parts)?;
    audit_names(parts)?;
    audit_states(parts)?;
    audit_waits(parts)?;
    let slots = workers.iter().map(|(slot, _)| slot);
    let are_known = admission.slots().eq(slots);
    same("workers whose memory is known", are_known, true)?;
    let promised: u64 = workers
        .iter()
        .map(|(slot, _)| admission.promised_to(slot))
        .sum();
    same("promised bytes", promised, admission.promised())?;
    let private: u64 = workers
        .iter()
        .map(|(slot, _)| admission.private_of(slot))
        .sum();
    same("private bytes", private, admission.private())?;
    audit_cores(parts)?;
    if let Some(slot) = admission.alone() {
        let idle = workers.get(slot).is_none_or(Worker::is_idle);
        same("an idle or dead worker that runs alone", idle, false)?;
    }
    for (slot, worker) in workers.iter() {
        if worker.stage() == Stage::Up && worker.is_idle() {
            let promise = admission.promised_to(slot);
            same("bytes promised to an idle worker", promise, 0)?;
        }
        for key in worker.runs() {
            let slot_of_run = parts.register.get(*key).and_then(Entry::slot);
            same("the worker of a run", slot_of_run, Some(slot))?;
        }
    }
    let entries = parts.register.iter();
    let timed = entries.filter(|(_, entry)| entry.due().is_some()).count();
    same("timers", parts.queues.timed(), timed)
}

fn audit_submitters(parts: &Parts) -> Result<(), String> {
    let mut counts: HashMap<&str, u32> = HashMap::new();
    for (_, entry) in parts.register.iter() {
        *counts.entry(&entry.submission().submitter).or_default() += 1;
    }
    for (submitter, count) in counts {
        let recorded = parts.register.len_of(submitter);
        same("unfinished requests of a submitter", recorded, count)?;
    }
    Ok(())
}

/// A handed run is promised its cores when it begins.
fn audit_cores(parts: &Parts) -> Result<(), String> {
    let mut cores = [0; 3];
    for (_, worker) in parts.workers.iter() {
        let first = worker
            .runs()
            .first()
            .filter(|_| worker.lane() != Lane::Async && !worker.waits());
        if let Some(entry) = first.and_then(|key| parts.register.get(*key)) {
            cores[worker.lane() as usize] += entry.options().cpu_milli;
        }
    }
    same("promised cores", cores, parts.admission.cores_milli())
}

fn audit_lanes(parts: &Parts) -> Result<(), String> {
    for lane in LANES {
        let entries = || parts.register.iter().map(|(_, entry)| entry);
        let mine = || entries().filter(move |entry| entry.lane() == lane);
        let ready = mine().filter(|entry| matches!(entry.state(), State::Ready));
        same("ready requests", parts.queues.ready(lane), ready.count())?;
        let running = mine().filter(|entry| entry.place().is_some()).count();
        let counted = parts.workers.of_lane(lane).running();
        same("running requests", counted as usize, running)?;
        parts.workers.audit(lane)?;
    }
    Ok(())
}

/// Each request has what its state needs: a time, a reason to wait for its key, or a share of it.
fn audit_states(parts: &Parts) -> Result<(), String> {
    for (_, entry) in parts.register.iter() {
        let options = entry.options();
        let mine = |one: &Entry| one.holds_key() && one.options().key == options.key;
        let mut holding = 0;
        if options.key.is_some() {
            holding = parts.register.iter().filter(|(_, one)| mine(one)).count();
            let recorded = parts.queues.key_holders(options) as usize;
            same("holders of a key", recorded, holding)?;
        }
        let most = options.key_at_once.max(1) as usize;
        let has_reason = match entry.state() {
            State::After => entry.waits_for() > 0,
            State::Until => entry.due().is_some() && entry.due() == entry.not_before(),
            State::Keyed => holding >= most && !entry.holds_key(),
            State::Named | State::Ready => entry.holds_key() || options.key.is_none(),
            State::Running(run) => {
                let ends = options.timeout_ms.is_some() || run.stop.is_some();
                // The time of a handed run starts when it begins.
                run.handed || !ends || entry.due().is_some()
            }
            _ => true,
        };
        let id = entry.id();
        same("what its state needs", (id, has_reason), (id, true))?;
    }
    Ok(())
}

/// How many wait for what, and since when the oldest of each lane is ready.
fn audit_waits(parts: &Parts) -> Result<(), String> {
    let mut waits = Waits::default();
    for (_, entry) in parts.register.iter() {
        waits.enter(entry.state());
    }
    same("requests that wait", parts.queues.waits(), waits)?;
    for lane in LANES {
        let entries = parts.register.iter().map(|(_, entry)| entry);
        let ready = entries.filter(|entry| matches!(entry.state(), State::Ready));
        let mine = ready.filter(|entry| entry.lane() == lane);
        let oldest = mine.map(Entry::ready_at).min();
        let counted = parts.queues.ready_since(lane);
        same("since when the oldest is ready", counted, oldest)?;
    }
    Ok(())
}

fn audit_names(parts: &Parts) -> Result<(), String> {
    let mut running: HashMap<u32, u32> = HashMap::new();
    let mut waiting: HashMap<u32, usize> = HashMap::new();
    for (_, entry) in parts.register.iter() {
        *running.entry(entry.name()).or_default() += u32::from(entry.place().is_some());
        *waiting.entry(entry.name()).or_default() +=
            usize::from(matches!(entry.state(), State::Named));
    }
    for (index, name) in parts.queues.names() {
        same(
            "running of a name",
            name.running(),
            running.get(&index).copied().unwrap_or(0),
        )?;
        same(
            "waiting for a name",
            name.waiting(),
            waiting.get(&index).copied().unwrap_or(0),
        )?;
        // For each free slot of a name one waiting request was made ready.
        let is_ready =
            |entry: &Entry| entry.name() == index && matches!(entry.state(), State::Ready);
        let ready = parts.register.iter().filter(|(_, entry)| is_ready(entry));
        let taken = ready.count() + name.running() as usize;
        if name.waiting() > 0 && name.limit().is_none_or(|limit| taken < limit as usize) {
            return Err(format!(
                "{} wait for {} and none was made ready",
                name.waiting(),
                name.text()
            ));
        }
    }
    Ok(())
}

fn same<T: Copy + PartialEq + std::fmt::Debug>(what: &str, one: T, other: T) -> Result<(), String> {
    if one == other {
        Ok(())
    } else {
        Err(format!("{what}: {one:?} and {other:?}"))
    }
}
