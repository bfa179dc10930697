//! Learns how much private memory a request of a name needs.

use std::collections::VecDeque;
use std::sync::Arc;

/// Newest peaks that count, per name and code.
const SAMPLES_MAX: usize = 64;
/// Codes of a name whose peaks are kept: the newest, and those whose requests are still queued.
const CODES_MAX: usize = 4;
/// An estimate that changed by more than one part in this many is stored.
const STORED_PART: u64 = 8;

#[derive(Debug)]
struct Learnt {
    code: Arc<str>,
    newest: VecDeque<u64>,
    /// 95th percentile of them.
    estimate: Option<u64>,
    /// What the first run had grown to when it stopped growing.
    levelled: Option<u64>,
    /// The estimate when a peak was last given to the store.
    stored: u64,
}

/// The peaks of one name, by code.
#[derive(Debug, Default)]
pub(crate) struct Peaks(Vec<Learnt>);

impl Peaks {
    fn of(&mut self, code: &Arc<str>) -> &mut Learnt {
        if let Some(found) = self.0.iter().position(|learnt| learnt.code == *code) {
            return &mut self.0[found];
        }
        // The oldest code goes: its requests have most likely ended.
        if self.0.len() == CODES_MAX {
            self.0.remove(0);
        }
        self.0.push(Learnt {
            code: Arc::clone(code),
            newest: VecDeque::new(),
            estimate: None,
            levelled: None,
            stored: 0,
        });
        let last = self.0.len() - 1;
        &mut self.0[last]
    }

    /// Records the peak of a run that ended. `true`: the estimate has changed so much that a restart should know it.
    pub(crate) fn learn(&mut self, code: &Arc<str>, bytes: u64) -> bool {
        let learnt = self.of(code);
        if learnt.newest.len() == SAMPLES_MAX {
            learnt.newest.pop_front();
        }
        learnt.newest.push_back(bytes);
        let mut sorted: Vec<u64> = learnt.newest.iter().copied().collect();
        let index = (sorted.len() * 95).div_ceil(100) - 1;
        let estimate = *sorted.select_nth_unstable(index).1;
        learnt.estimate = Some(estimate);
        // Most runs of a name end alike: peaks that a restart would not miss are not written.
        let moved = estimate.abs_diff(learnt.stored) > learnt.stored / STORED_PART;
        if moved {
            learnt.stored = estimate;
        }
        moved
    }

    /// Records where the first run of a name stopped growing.
    pub(crate) fn level(&mut self, code: &Arc<str>, bytes: u64) {
        self.of(code).levelled = Some(bytes);
    }

    /// Private bytes of a worker at the peak of such a run.
    pub(crate) fn estimate(&self, code: &str) -> Option<u64> {
        let learnt = self.0.iter().find(|learnt| &*learnt.code == code)?;
        learnt.estimate.or(learnt.levelled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_is_the_95th_percentile_of_the_newest() {
        let code: Arc<str> = "c".into();
        let mut peaks = Peaks::default();
        assert_eq!(peaks.estimate("c"), None);
        peaks.level(&code, 70);
        assert_eq!(peaks.estimate("c"), Some(70));
        peaks.learn(&code, 1_000);
        assert_eq!(peaks.estimate("c"), Some(1_000));
        for bytes in 1..=100 {
            peaks.learn(&code, bytes);
        }
        // 37..=100 are left; the 61st of these 64.
        assert_eq!(peaks.estimate("c"), Some(97));
        assert_eq!(peaks.estimate("other"), None);
    }
}
