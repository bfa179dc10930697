//! The requests with events in the ring, with the chains of those.

use std::sync::Arc;

use super::chain::Chain;
use crate::hash::ByNumber;
use crate::id::RequestId;
use crate::request::Status;

/// What is known of one request.
#[derive(Debug)]
pub(super) struct RequestChain {
    pub chain: Chain,
    /// `None` until an event of it says so.
    pub submitter: Option<Arc<str>>,
    /// The number of its newest progress, or 0.
    pub progress: u64,
    /// The number of its newest end, or 0.
    pub end: u64,
    /// How it ended, with its attempts.
    pub ended: Option<(Status, u32)>,
}

/// All of them by id. Bounded by the events in the ring, and by the readers.
#[derive(Debug, Default)]
pub(super) struct RequestChains {
    requests: ByNumber<RequestId, RequestChain>,
    /// The newest number that a forgotten request has lost.
    forgotten: u64,
}

impl RequestChains {
    /// The request of an id, which is new or known.
    pub(super) fn open(&mut self, id: RequestId) -> &mut RequestChain {
        let forgotten = self.forgotten;
        self.requests.entry(id).or_insert_with(|| RequestChain {
            chain: Chain::after(forgotten),
            submitter: None,
            progress: 0,
            end: 0,
            ended: None,
        })
    }

    pub(super) fn get(&self, id: RequestId) -> Option<&RequestChain> {
        self.requests.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: RequestId) -> Option<&mut RequestChain> {
        self.requests.get_mut(&id)
    }

    /// Forget a request of which nothing is kept and that nobody reads.
    pub(super) fn release(&mut self, id: RequestId) {
        if let Some(known) = self.requests.get(&id).filter(|one| one.chain.is_unused()) {
            self.forgotten = self.forgotten.max(known.chain.dropped());
            self.requests.remove(&id);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }
}
