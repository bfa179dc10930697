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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_forgotten_when_so_many_newer_ones_are_remembered() {
        let most = RECENT_MAX as u64;
        let mut recent = Recent::default();
        for id in 1..=most {
            recent.add(RequestId(id), Status::Succeeded);
        }
        // It was retried, and has ended again: no further request.
        recent.add(RequestId(2), Status::Failed);
        assert_eq!(recent.get(RequestId(1)), Some(Status::Succeeded));
        recent.add(RequestId(most + 1), Status::Succeeded);
        assert_eq!(recent.get(RequestId(1)), None);
        assert_eq!(recent.get(RequestId(2)), Some(Status::Failed));
    }
}
