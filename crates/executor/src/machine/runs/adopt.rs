//! Runs that began under the last server and go on under this one.
//!
//! Their workers are the last server's: they take nothing more, and are ended after their runs.

use crate::hash::ByNumber;
use crate::id::RequestId;
use crate::machine::parts::Parts;
use crate::machine::register::Key;
use crate::machine::runs::Runs;
use crate::request::{Lane, Millis, Slot};

/// A worker of the last server, with what it runs.
#[derive(Clone, Debug)]
pub struct AdoptedWorker {
    pub lane: Lane,
    pub runs: Vec<AdoptedRun>,
}

/// A run of such a worker.
#[derive(Clone, Copy, Debug)]
pub struct AdoptedRun {
    pub id: RequestId,
    pub attempt: u32,
    /// How long it has run.
    pub ran_ms: u64,
    /// It waits for its children.
    pub waits: bool,
}

/// The workers, and their runs by request, until the requests are restored.
#[derive(Debug, Default)]
pub(super) struct Adopted {
    slots: Vec<Slot>,
    runs: ByNumber<RequestId, (Slot, AdoptedRun)>,
}

/// Takes over workers with what they run; see [`crate::machine::Machine::adopt`].
pub(in crate::machine) fn adopt(
    runs: &mut Runs,
    parts: &mut Parts,
    now: Millis,
    workers: &[AdoptedWorker],
) -> Vec<Slot> {
    let adopted = &mut runs.adopted;
    for worker in workers {
        let slot = parts.adopt_worker(now, worker.lane);
        adopted.slots.push(slot);
        let runs = worker.runs.iter().map(|run| (run.id, (slot, *run)));
        adopted.runs.extend(runs);
    }
    adopted.slots.clone()
}

/// Ends the adopted workers none of whose runs was found.
pub(in crate::machine) fn end_idle(runs: &mut Runs, parts: &mut Parts, now: Millis) {
    let Adopted { slots, .. } = std::mem::take(&mut runs.adopted);
    for slot in slots {
        parts.after_run(now, slot);
    }
}

impl Adopted {
    /// Whether this run of a restored request goes on.
    pub fn has(&self, id: RequestId, attempt: u32) -> bool {
        let run = self.runs.get(&id);
        run.is_some_and(|(_, run)| run.attempt == attempt)
    }

    /// Counts a restored request as running on the worker that has it. `false`: none has.
    pub fn go_on(&self, parts: &mut Parts, now: Millis, key: Key) -> bool {
        let Some(entry) = parts.register.get(key) else {
            return false;
        };
        let (id, attempt) = (entry.id(), entry.attempts());
        let Some(&(slot, run)) = self.runs.get(&id) else {
            return false;
        };
        if run.attempt != attempt {
            return false;
        }
        parts.queues.leave_list(&mut parts.register, now, key);
        parts.queues.take_key(&mut parts.register, key);
        parts.adopt_run(now.saturating_sub(run.ran_ms), key, slot);
        if run.waits {
            parts.begin_wait(now, key);
        }
        true
    }
}
