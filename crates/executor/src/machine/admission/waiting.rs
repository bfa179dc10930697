//! Bounds the processes that wait for the children of what they run.
//!
//! A run that waits gives its place to another one, which may wait as well. From `workers_max` such runs of a lane on,
//! no process is started for what is not below the deepest of them: then the oldest trees do not grow, and the deepest
//! one ends first. What finds an idle worker begins all the same, and if nothing runs at all one request is admitted
//! whatever it is (`Admission::fits`), so that this holds up nothing for ever.

use super::Blocked;
use crate::limit::DEPTH_MAX;
use crate::machine::entry::Entry;
use crate::machine::policy::Policy;
use crate::request::Lane;

/// Runs of one lane, by their depth.
type Depths = [u32; DEPTH_MAX as usize + 1];

/// Runs of the lanes that run one request in a process at a time.
#[derive(Debug)]
pub(super) struct Waiting([Depths; 2]);

impl Default for Waiting {
    fn default() -> Self {
        Self([[0; DEPTH_MAX as usize + 1]; 2])
    }
}

impl Waiting {
    /// One more run waits, or one less. Those of the async lane share a process.
    pub(super) fn change(&mut self, entry: &Entry, by: i32) {
        let depth = entry.options().depth() as usize;
        let lane = entry.lane();
        if lane != Lane::Async
            && let Some(count) = self.0[lane as usize].get_mut(depth)
        {
            *count = count.saturating_add_signed(by);
        }
    }

    /// Whether a process may be started for a request of such a lane.
    pub(super) fn fits(&self, policy: &Policy, entry: &Entry) -> Result<(), Blocked> {
        let depths = &self.0[entry.lane() as usize];
        let (count, most) = (depths.iter().sum(), policy.workers_max);
        if count < most {
            return Ok(());
        }
        let deepest = depths.iter().rposition(|count| *count > 0);
        if deepest.is_none_or(|deepest| entry.options().depth() as usize > deepest) {
            return Ok(());
        }
        Err(Blocked::Waiting { count, most })
    }
}
