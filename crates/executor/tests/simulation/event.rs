//! What a machine is told, as one value: the model hears of it before the machine does.

use std::sync::Arc;

use forebay_executor::error::Refusal;
use forebay_executor::id::RequestId;
use forebay_executor::machine::{Cancelled, Cordon, Definition, Machine, Submitted};
use forebay_executor::op::Restored;
use forebay_executor::request::{Death, Millis, Outcome, Slot, Submission};

/// Peaks of a name and a code, as the store has them.
pub type Learnt = (Arc<str>, Arc<str>, Vec<u64>);

#[derive(Clone, Debug)]
pub enum Event {
    Submit(Submission),
    Cancel(RequestId),
    Retry(Restored),
    Committed(usize),
    NotCommitted(usize),
    RetryStore,
    Filed(RequestId, Option<&'static str>),
    Ready(Slot),
    StartFailed(Slot),
    Gone(Slot, Death),
    Finished(Slot, RequestId, u32, Outcome, Option<u64>),
    Returned(Slot, RequestId, u32),
    Measured(Slot, u64),
    MachineMeasured(u64, f32),
    Tick,
    Install(Arc<str>, Vec<Definition>),
    Hold(bool),
    Drain,
    /// Whether what was accepted is dispatched; `None`: submissions are taken again.
    Cordon(Option<bool>),
    /// The store has pruned whoever had this idempotency key.
    Forget(Arc<str>),
    Restore(Vec<Restored>, Vec<Learnt>, RequestId),
}

/// What the machine said to it.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Nothing,
    Submitted(Submitted),
    Refused(Box<Refusal>),
    Cancelled(Cancelled),
    Retried(bool),
}

impl Event {
    pub fn tell(self, machine: &mut Machine, now: Millis) -> Answer {
        match self {
            Self::Submit(submission) => match machine.submit(now, submission) {
                Ok(submitted) => return Answer::Submitted(submitted),
                Err(refusal) => return Answer::Refused(refusal),
            },
            Self::Cancel(id) => return Answer::Cancelled(machine.cancel(now, id)),
            Self::Retry(ended) => match machine.retry(now, ended) {
                Ok(is_new) => return Answer::Retried(is_new),
                Err(refusal) => return Answer::Refused(refusal),
            },
            Self::Committed(count) => machine.committed(now, count),
            Self::NotCommitted(count) => {
                machine.not_committed(now, count, "the disk is full", false);
            }
            Self::RetryStore => machine.retry_store(now),
            Self::Filed(id, unfit) => machine.filed(now, id, unfit),
            Self::Ready(slot) => machine.worker_ready(now, slot),
            Self::StartFailed(slot) => machine.worker_failed(now, slot, "no memory".into()),
            Self::Gone(slot, death) => machine.worker_gone(now, slot, death),
            Self::Finished(slot, id, attempt, outcome, peak) => {
                machine.finished(now, slot, id, attempt, outcome, peak);
            }
            Self::Returned(slot, id, attempt) => machine.returned(now, slot, id, attempt),
            Self::Measured(slot, bytes) => machine.measured(now, slot, bytes),
            Self::MachineMeasured(bytes, part) => machine.machine_measured(now, bytes, part),
            Self::Tick => machine.tick(now),
            Self::Install(code, definitions) => machine
                .install(now, code, &definitions)
                .expect("no schedules"),
            Self::Hold(is_held) => machine.hold(now, is_held.then(|| "importing".into())),
            Self::Drain => machine.drain(now),
            Self::Cordon(asked) => {
                let cordon = |dispatches| Cordon {
                    by: "ann".into(),
                    reason: "a new kernel".into(),
                    at: now,
                    dispatches,
                };
                machine.cordon(now, asked.map(cordon));
            }
            Self::Forget(key) => machine.forget(&key),
            Self::Restore(restored, learnt, last) => {
                machine.restore(now, restored, &learnt, &[], last);
            }
        }
        Answer::Nothing
    }
}
