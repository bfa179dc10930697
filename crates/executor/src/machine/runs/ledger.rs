//! The changes that the store has not answered, beside those that it could not write.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::id::RequestId;
use crate::limit::RESULTS_WRITING_BYTES_MAX;
use crate::machine::register::Key;
use crate::op::Op;
use crate::request::Outcome;

/// A change on its way to the disk.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub key: Key,
    pub op: Op,
}

impl Written {
    /// The request whose state it changes; peaks, schedules and who acted change none.
    pub(crate) fn id(&self) -> Option<RequestId> {
        match &self.op {
            Op::Accept(request) => Some(request.id),
            Op::Claim { id, .. }
            | Op::Unclaim { id, .. }
            | Op::Park { id, .. }
            | Op::Retry { id, .. }
            | Op::End { id, .. } => Some(*id),
            // Who acted makes no other change of its request out of date.
            Op::Acted { .. }
            | Op::Forget { .. }
            | Op::Peak { .. }
            | Op::Fired { .. }
            | Op::Paused { .. }
            | Op::Resumed { .. } => None,
        }
    }
}

/// Changes in the order in which they were given.
///
/// While the store is down nothing is given to it: changes are kept here, and given in their order when it works again.
/// A change that was already on its way may be committed after an older one of the same request has failed; the older
/// one is then out of date, and is not given again.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    in_flight: VecDeque<Written>,
    /// Changes that could not be written, each with the number of the answer.
    failed: Vec<(u64, Written)>,
    /// Changes that were made since then.
    kept: Vec<Written>,
    /// Requests of which a newer change was committed after one that failed, with the number of that answer.
    overtaken: HashMap<RequestId, u64>,
    /// Answers of the store so far.
    answers: u64,
    /// Why the store cannot write.
    down: Option<Arc<str>>,
    retry: bool,
    /// Bytes of results that are not on disk yet.
    results_bytes: usize,
}

impl Ledger {
    /// Counts a result that is to be written.
    pub(crate) fn hold(&mut self, outcome: &Outcome) {
        self.results_bytes += bytes_of(outcome);
    }

    /// Discounts a result that is on disk.
    pub(crate) fn free(&mut self, outcome: &Outcome) {
        self.results_bytes = self.results_bytes.saturating_sub(bytes_of(outcome));
    }

    /// Bytes of unwritten results, if they are too many to compute more of them.
    pub(crate) fn is_behind(&self) -> Option<usize> {
        Some(self.results_bytes).filter(|bytes| *bytes > RESULTS_WRITING_BYTES_MAX)
    }

    /// Records a change. `Some`: give it to the store now.
    pub(crate) fn add(&mut self, written: Written) -> Option<Op> {
        if self.down.is_some() {
            self.kept.push(written);
            return None;
        }
        // Cheap: requests, ends and texts are shared.
        let op = written.op.clone();
        self.in_flight.push_back(written);
        Some(op)
    }

    /// The oldest change in flight is on disk.
    pub(crate) fn committed(&mut self) -> Option<Written> {
        let written = self.in_flight.pop_front()?;
        self.answers += 1;
        // Without a failed change nothing is overtaken, and the map stays empty.
        if !self.failed.is_empty()
            && let Some(id) = written.id()
        {
            self.overtaken.insert(id, self.answers);
        }
        Some(written)
    }

    /// The oldest change in flight is not on disk; `keep` it unless it is dropped.
    pub(crate) fn not_committed(&mut self) -> Option<Written> {
        self.answers += 1;
        self.in_flight.pop_front()
    }

    pub(crate) fn keep(&mut self, written: Written) {
        self.failed.push((self.answers, written));
    }

    /// Changes that wait until the store works.
    pub(crate) fn kept(&self) -> usize {
        self.failed.len() + self.kept.len()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Why the store cannot write.
    pub(crate) fn down(&self) -> Option<&Arc<str>> {
        self.down.as_ref()
    }

    /// The store cannot write.
    pub(crate) fn fail(&mut self, why: Arc<str>) {
        self.down = Some(why);
        self.retry = false;
    }

    /// The store is to be tried again, once it has answered everything in flight: until then it is unknown which of the
    /// failed changes are out of date.
    pub(crate) fn retry(&mut self) {
        self.retry = self.down.is_some();
    }

    /// The changes to give to the store again, in order.
    pub(crate) fn resume(&mut self) -> Vec<Written> {
        if !self.retry || !self.in_flight.is_empty() {
            return Vec::new();
        }
        self.retry = false;
        self.down = None;
        let overtaken = std::mem::take(&mut self.overtaken);
        let out_of_date = |at: u64, written: &Written| {
            let newer = written.id().and_then(|id| overtaken.get(&id));
            newer.is_some_and(|newer| *newer > at)
        };
        let failed = std::mem::take(&mut self.failed).into_iter();
        let again = failed.filter(|(at, written)| !out_of_date(*at, written));
        let mut again: Vec<Written> = again.map(|(_, written)| written).collect();
        again.append(&mut self.kept);
        again
    }
}

fn bytes_of(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Succeeded(result) => result.len(),
        _ => 0, // in a file already, or as short as a failure is
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(id: u64, attempt: u32) -> Written {
        let id = RequestId(id);
        Written {
            key: 0,
            op: Op::Claim { id, attempt, at: 0 },
        }
    }

    fn attempts(written: &[Written]) -> Vec<u32> {
        let attempt = |written: &Written| match written.op {
            Op::Claim { attempt, .. } => attempt,
            _ => 0,
        };
        written.iter().map(attempt).collect()
    }

    #[test]
    fn what_failed_is_given_again_in_order_unless_something_newer_of_its_request_is_on_disk() {
        let mut ledger = Ledger::default();
        for (id, attempt) in [(1, 1), (2, 2), (1, 3), (1, 4), (2, 5)] {
            assert!(ledger.add(claim(id, attempt)).is_some());
        }
        for committed in [false, false, true, false, false] {
            if committed {
                ledger.committed();
            } else if let Some(written) = ledger.not_committed() {
                ledger.keep(written);
                ledger.fail("full".into());
            }
        }
        assert!(
            ledger.add(claim(3, 6)).is_none(),
            "nothing more while it is down"
        );
        assert!(ledger.resume().is_empty(), "not before somebody wants it");
        ledger.retry();
        assert_eq!(attempts(&ledger.resume()), [2, 4, 5, 6]);
        assert!(ledger.down().is_none() && ledger.kept() == 0);
    }
}
