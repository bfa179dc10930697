//! What the store was given, and what has to be given to it again.

use std::collections::{HashMap, VecDeque};

use forebay_executor::id::RequestId;
use forebay_executor::op::Op;

/// A change, as the model foresees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    Accept(RequestId),
    Claim(RequestId, u32),
    Unclaim(RequestId, u32),
    Park(RequestId, u32),
    Retry(RequestId),
    End(RequestId),
    Peak(u64),
    /// Of a schedule; the simulation has none.
    Schedule,
}

impl Change {
    pub fn of(op: &Op) -> Self {
        match op {
            Op::Accept(request) => Self::Accept(request.id),
            Op::Claim { id, attempt, .. } => Self::Claim(*id, *attempt),
            Op::Unclaim { id, attempt } => Self::Unclaim(*id, *attempt),
            Op::Park { id, attempt, .. } => Self::Park(*id, *attempt),
            Op::Retry { id, .. } => Self::Retry(*id),
            Op::End { id, .. } => Self::End(*id),
            Op::Peak { bytes, .. } => Self::Peak(*bytes),
            Op::Fired { .. } | Op::Paused { .. } | Op::Resumed { .. } => Self::Schedule,
            Op::Acted { .. } | Op::Forget { .. } => {
                unreachable!("the simulation says of nobody that he acted, and has no children")
            }
        }
    }

    pub fn id(self) -> Option<RequestId> {
        match self {
            Self::Accept(id)
            | Self::Claim(id, _)
            | Self::Unclaim(id, _)
            | Self::Park(id, _)
            | Self::Retry(id)
            | Self::End(id) => Some(id),
            Self::Peak(_) | Self::Schedule => None,
        }
    }
}

/// Changes in the order in which they happened.
#[derive(Default)]
pub struct Ledger {
    pub in_flight: VecDeque<Change>,
    /// Not written, and at which answer of the store that was told.
    failed: Vec<(u64, Change)>,
    /// Happened while the store took nothing.
    kept: Vec<Change>,
    /// The last answer by which something of a request came on disk.
    on_disk: HashMap<RequestId, u64>,
    answers: u64,
    pub is_down: bool,
    pub is_wanted: bool,
}

impl Ledger {
    pub fn kept(&self) -> usize {
        self.failed.len() + self.kept.len()
    }

    pub fn keep(&mut self, change: Change) {
        self.kept.push(change);
    }

    pub fn keep_failed(&mut self, change: Change) {
        self.failed.push((self.answers, change));
    }

    pub fn committed(&mut self) -> Option<Change> {
        let change = self.in_flight.pop_front()?;
        self.answers += 1;
        if let Some(id) = change.id() {
            self.on_disk.insert(id, self.answers);
        }
        Some(change)
    }

    pub fn not_committed(&mut self) -> Option<Change> {
        self.answers += 1;
        self.in_flight.pop_front()
    }

    /// What the store is to be given again: all that is not on disk, but what something newer of its request is
    /// before. Not before everything on its way is answered.
    pub fn resume(&mut self) -> Vec<Change> {
        if !self.is_wanted || !self.in_flight.is_empty() {
            return Vec::new();
        }
        (self.is_wanted, self.is_down) = (false, false);
        let newer = |change: &Change| change.id().and_then(|id| self.on_disk.get(&id)).copied();
        let failed = std::mem::take(&mut self.failed).into_iter();
        let again = failed.filter(|(at, change)| newer(change).is_none_or(|newer| newer < *at));
        let mut again: Vec<Change> = again.map(|(_, change)| change).collect();
        again.append(&mut self.kept);
        again
    }
}
