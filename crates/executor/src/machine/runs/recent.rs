//! How the latest requests ended, so that others can come after them.

use std::collections::VecDeque;

use crate::id::RequestId;
use crate::machine::register::IdMap;
use crate::request::Status;

/// Ended requests that are remembered, so that others can come after them.
const RECENT_MAX: usize = 16_384;

/// How the latest requests ended.
#[derive(Debug, Default)]
pub(super) struct Recent {
    ended: IdMap<Status>,
    order: VecDeque<RequestId>,
}

impl Recent {
    pub(super) fn add(&mut self, id: RequestId, status: Status) {
        if self.ended.insert(id, status).is_none() {
            self.order.push_back(id);
        }
        // A later submission that comes after a forgotten request makes the dispatcher ask the store.
        if self.order.len() > RECENT_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.ended.remove(&oldest);
        }
    }

    pub(super) fn get(&self, id: RequestId) -> Option<Status> {
        self.ended.get(&id).copied()
    }
}
