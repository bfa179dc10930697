//! Bounds the processes that wait for the children of what they run.
//!
//! A run that waits gives its place to another one, which may wait as well. From `workers_max` such runs on nothing
//! begins that is not below the deepest of them: then the oldest trees do not grow, and the deepest one ends first. If
//! nothing runs at all, one request is admitted whatever it is (`Admission::fits`), so that this cannot hold up
//! everything.

use super::Blocked;
use crate::limit::DEPTH_MAX;
use crate::machine::entry::Entry;
use crate::machine::policy::Policy;
use crate::request::Lane;

/// Runs of the lanes that run one request in a process at a time.
#[derive(Debug)]
pub(super) struct Waiting {
    count: u32,
    by_depth: [u32; DEPTH_MAX as usize + 1],
}

impl Default for Waiting {
    fn default() -> Self {
        Self {
            count: 0,
            by_depth: [0; DEPTH_MAX as usize + 1],
        }
    }
}

impl Waiting {
    /// One more run waits, or one less. Those of the async lane share a process.
    pub(super) fn change(&mut self, entry: &Entry, by: i32) {
        let depth = entry.options().depth() as usize;
        if entry.lane() == Lane::Async {
            return;
        }
        self.count = self.count.saturating_add_signed(by);
        if let Some(count) = self.by_depth.get_mut(depth) {
            *count = count.saturating_add_signed(by);
        }
    }

    /// Whether a request may begin beside them.
    pub(super) fn fits(&self, policy: &Policy, entry: &Entry) -> Result<(), Blocked> {
        let (count, most) = (self.count, policy.workers_max);
        if count < most {
            return Ok(());
        }
        let deepest = self.by_depth.iter().rposition(|count| *count > 0);
        if deepest.is_none_or(|deepest| entry.options().depth() as usize > deepest) {
            return Ok(());
        }
        Err(Blocked::Waiting { count, most })
    }
}
