//! Uses the gauge's measurements: learns what runs need, ends a worker that outgrew its limit before the kernel acts.
//!
//! The kernel's OOM killer chooses a victim by size, possibly the server. So the guard acts a little below the limit,
//! and chooses a worker whose run needs more than it was admitted for (`expulsion_rank`).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::part;
use crate::action::Action;
use crate::machine::Machine;
use crate::machine::entry::Key;
use crate::machine::workers::{Expelled, Stage, Worker};
use crate::op::Op;
use crate::request::{Lane, Millis, Slot};

/// Readings without growth after which a run has levelled off; the gauge makes one each 100 ms.
const LEVEL_READINGS: u32 = 5;
/// Growth between two readings that does not count.
const LEVEL_BYTES: u64 = 1_000_000;
/// How long a worker that was told to end has to give its memory back, before the next one must.
const GUARD_MS: u64 = 500;

impl Machine {
    /// Records a worker's private bytes. Call it for all workers before `machine_measured`.
    pub fn measured(&mut self, now: Millis, slot: Slot, private_bytes: u64) {
        let Some(worker) = self.workers.get_mut(slot) else {
            return;
        };
        let grown = private_bytes.saturating_sub(worker.private);
        self.room.read(slot);
        self.room.worker_has(worker.private, private_bytes);
        worker.private = private_bytes;
        // A worker that has run nothing shows what a new one has.
        if worker.uses == 0 && worker.is_idle() {
            worker.base = private_bytes;
            self.room.base = Some(private_bytes);
        }
        if !worker.runs.is_empty() && worker.lane != Lane::Async {
            // Its growth so far is resident now, and no longer promised.
            let left = worker.estimate.saturating_sub(private_bytes);
            let run = worker.runs[0];
            self.set_promise(slot, left);
            self.note_peak(run, private_bytes);
        } else if let Some((name, code)) = worker.unmeasured.take() {
            self.learn_peak(now, name, &code, private_bytes);
        }
        if self.room.alone == Some(slot) {
            self.watch_level(slot, grown, private_bytes);
        }
        self.settle(now);
    }

    fn note_peak(&mut self, key: Key, bytes: u64) {
        let entry = self.register.get_mut(key);
        if let Some(run) = entry.and_then(|entry| entry.run_mut()) {
            run.peak = run.peak.max(Some(bytes));
        }
    }

    /// A run that runs alone has stopped growing: its memory now is the estimate of its name until it ends.
    fn watch_level(&mut self, slot: Slot, grown: u64, private: u64) {
        self.room.level = if grown > LEVEL_BYTES {
            0
        } else {
            self.room.level + 1
        };
        if self.room.level < LEVEL_READINGS {
            return;
        }
        self.room.alone = None;
        let Some(worker) = self.workers.get_mut(slot) else {
            return;
        };
        worker.estimate = private;
        let run = worker.runs.first().copied();
        if let Some(entry) = run.and_then(|key| self.register.get(key)) {
            let code = Arc::clone(&entry.request.submission.code);
            self.names.get_mut(entry.name).peaks.level(&code, private);
        }
    }

    /// Records that the machine or its cgroup has `resident` bytes of anonymous memory, and stalled for memory this
    /// fraction of the time (0 if the kernel does not say).
    pub fn machine_measured(&mut self, now: Millis, resident: u64, pressure: f32) {
        self.room.machine_has(resident);
        self.room.pressure = pressure;
        self.guard(now);
        self.settle(now);
    }

    /// A run has ended, with this peak if it was measured.
    pub(in crate::machine) fn learn(
        &mut self,
        now: Millis,
        key: Key,
        slot: Slot,
        peak: Option<u64>,
    ) {
        if self.policy.memory_limit.is_none() {
            return;
        }
        let Some(entry) = self
            .register
            .get(key)
            .filter(|entry| entry.lane() != Lane::Async)
        else {
            return;
        };
        let name = entry.name;
        let code = Arc::clone(&entry.request.submission.code);
        if let Some(bytes) = peak {
            self.learn_peak(now, name, &code, bytes);
        } else if self.names.get(name).peaks.estimate(&code).is_none()
            && let Some(worker) = self.workers.get_mut(slot)
        {
            // The run was too short for the gauge. What its worker has now is at least what the run left behind.
            worker.unmeasured = Some((name, code));
            self.actions.push(Action::Measure { slot });
        }
    }

    fn learn_peak(&mut self, now: Millis, name: u32, code: &Arc<str>, bytes: u64) {
        let known = self.names.get_mut(name);
        if known.peaks.learn(code, bytes) && self.policy.durable {
            let (name, code) = (Arc::clone(&known.text), Arc::clone(code));
            self.write(now, Key::MAX, Op::Peak { name, code, bytes });
        }
    }

    /// Above the guard's limit, ends an idle worker that grew, or else the youngest that outgrew its estimate: one at a
    /// time, since each gives its memory back.
    fn guard(&mut self, now: Millis) {
        let Some(limit) = self.policy.memory_limit else {
            return;
        };
        let leaving =
            |worker: &Worker| worker.expelled.is_some() || worker.stage == Stage::Stopping;
        if self.room.resident() <= part(limit, self.policy.guard_fraction) {
            self.room.unread = None;
            return;
        }
        // The memory of an ended worker is free only once the kernel has torn it down.
        let waits = now < self.room.guard_at.saturating_add(GUARD_MS);
        if waits && self.workers.iter().any(|(_, worker)| leaving(worker)) {
            return;
        }
        let grown = |worker: &Worker| worker.private.saturating_sub(worker.base);
        let idle = self.staying().filter(|(_, worker)| {
            worker.is_idle() && (worker.burst || grown(worker) > worker.base)
        });
        if let Some((slot, _)) = idle.max_by_key(|(_, worker)| worker.private) {
            self.room.guard_at = now;
            self.stop(slot);
            return;
        }
        self.end_busy(now, limit);
    }

    /// Ends the busy worker that is to blame for the memory being full.
    ///
    /// A run may take its memory between the reading of its worker and that of the machine: then nobody seems to have
    /// outgrown an estimate, and the guard waits until every busy worker was read again.
    fn end_busy(&mut self, now: Millis, limit: u64) {
        let busy = || self.staying().filter(|(_, worker)| !worker.is_idle());
        let Some((slot, worker)) = busy().max_by_key(|(_, worker)| self.expulsion_rank(worker))
        else {
            return;
        };
        let all_read = self.room.unread.as_ref().map(BTreeSet::is_empty);
        if worker.outgrew() || all_read == Some(true) {
            self.room.unread = None;
            self.room.guard_at = now;
            self.expel(now, slot, limit);
        } else if all_read.is_none() {
            self.room.unread = Some(busy().map(|(slot, _)| slot).collect());
        }
    }

    /// The workers that the guard may end.
    fn staying(&self) -> impl Iterator<Item = (Slot, &Worker)> {
        let stays = |worker: &Worker| worker.stage == Stage::Up && worker.expelled.is_none();
        self.workers.iter().filter(move |(_, worker)| stays(worker))
    }

    /// The order in which the guard ends workers: the greatest first.
    fn expulsion_rank(&self, worker: &Worker) -> (bool, bool, bool, Millis) {
        let run = worker
            .runs
            .first()
            .and_then(|key| self.register.get(*key)?.run());
        let began = run.map_or(0, |run| run.began);
        // Many requests share a worker of the async lane, so it is the last to go.
        let single = worker.lane != Lane::Async;
        (single, worker.outgrew(), worker.burst, began)
    }

    fn expel(&mut self, now: Millis, slot: Slot, limit_bytes: u64) {
        // It is given nothing more until its death is known.
        self.workers.leave(slot);
        let Some(worker) = self.workers.get_mut(slot) else {
            return;
        };
        let peak_bytes = worker.private;
        worker.expelled = Some(Expelled {
            peak_bytes,
            limit_bytes,
            within: !worker.outgrew(),
        });
        let runs = worker.runs.clone();
        for key in runs {
            if let Some(entry) = self.register.get_mut(key) {
                let text = format!(
                    "its worker had {peak_bytes} bytes when the memory was full, and was ended"
                );
                entry.notes.add(now, text);
            }
        }
        self.actions.push(Action::Expel {
            slot,
            peak_bytes,
            limit_bytes,
        });
    }
}
