//! Decides whether more workers than cores would help a lane.
//!
//! They do if runs wait for something; runs that end within a millisecond would only take the cores from each other,
//! and from the store. Two signs count: the mean time of the lane's runs, and that no worker has become free for a
//! while though each has a run. Either alone misleads: a stalled commit or a loaded machine delays ends now and then,
//! and a mean ignores the runs that have not ended. So if the mean is short, a stall brings one more worker; if it is
//! long, or nothing has ended lately, their number may double, each time after that while.

use crate::request::Millis;

/// Weight of the past in the mean.
const PAST: u64 = 15;
/// A run counts at most this many times the smallest mean, so that one long run alone changes nothing.
const OUTLIER: u64 = 4;
/// Ends longer ago than this say nothing about the runs that have not ended.
const LATELY_MS: u64 = 1_000;

/// What one lane's runs were like lately.
#[derive(Debug, Default)]
pub(crate) struct Burst {
    /// Moving mean of a run's time, in 1/16 ms.
    mean_sixteenths: u64,
    began_at: Millis,
    ended_at: Option<Millis>,
    /// When starts were last allowed, and how many of them are left.
    step_at: Option<Millis>,
    left: u32,
}

impl Burst {
    pub(crate) fn began(&mut self, now: Millis) {
        self.began_at = now;
    }

    /// A run took this long; `while_ms` is the greatest mean that any caller asks about.
    pub(crate) fn ended(&mut self, now: Millis, took: u64, while_ms: u64) {
        let counted = took.min(OUTLIER * while_ms) * 16;
        self.mean_sixteenths = (self.mean_sixteenths * PAST + counted).div_ceil(PAST + 1);
        self.ended_at = Some(now);
    }

    /// Whether one more worker helps, beside those that are `alive`, of which some are `running` something.
    pub(crate) fn helps(&mut self, now: Millis, while_ms: u64, alive: u32, running: u32) -> bool {
        let long = self.mean_sixteenths >= while_ms * 16;
        let stalled = running > 0 && now.saturating_sub(self.began_at) >= while_ms;
        if !long && !stalled {
            return false;
        }
        if self
            .step_at
            .is_none_or(|at| now.saturating_sub(at) >= while_ms)
        {
            self.step_at = Some(now);
            let lately = self
                .ended_at
                .is_some_and(|at| now.saturating_sub(at) < LATELY_MS);
            self.left = if long || !lately { alive } else { 1 };
        }
        self.left > 0
    }

    /// Runs were so short lately that more workers than cores do not help.
    pub(crate) fn is_short(&self, while_ms: u64) -> bool {
        self.ended_at.is_some() && self.mean_sixteenths < while_ms * 16
    }

    /// How many runs of the mean take this long; none before one has ended.
    pub(crate) fn runs_within(&self, span_ms: u64) -> u64 {
        match self.ended_at {
            Some(_) => span_ms * 16 / self.mean_sixteenths.max(1),
            None => 0,
        }
    }

    pub(crate) fn started(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// When `helps` may change its answer if nothing happens before.
    pub(crate) fn due(&self, while_ms: u64) -> Millis {
        let last = self.began_at.max(self.step_at.unwrap_or(0));
        last.saturating_add(while_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Workers that may be started at once.
    fn allowed(burst: &mut Burst, now: Millis, alive: u32) -> u32 {
        let mut started = 0;
        while burst.helps(now, 10, alive + started, alive) {
            burst.started();
            started += 1;
            assert!(started < 1_000, "there is no end of starts");
        }
        started
    }

    #[test]
    fn short_runs_never_and_a_stall_among_them_brings_one() {
        let mut burst = Burst::default();
        for now in 1..100 {
            burst.began(now);
            burst.ended(now, 0, 10);
            assert_eq!(allowed(&mut burst, now, 2), 0);
        }
        burst.began(100);
        assert_eq!(allowed(&mut burst, 109, 2), 0);
        assert_eq!((burst.due(10), allowed(&mut burst, 110, 2)), (110, 1));
        assert_eq!(
            (allowed(&mut burst, 119, 3), allowed(&mut burst, 120, 3)),
            (0, 1)
        );
        // One run of a minute is no mean.
        burst.began(121);
        burst.ended(121, 60_000, 10);
        assert_eq!(allowed(&mut burst, 121, 4), 0);
    }

    #[test]
    fn long_runs_double_the_workers() {
        let mut burst = Burst::default();
        burst.began(5);
        let mut alive = 2;
        let mut grown = Vec::new();
        for now in [14, 15, 24, 25, 35, 45] {
            alive += allowed(&mut burst, now, alive);
            grown.push(alive);
        }
        assert_eq!(grown, [2, 4, 4, 8, 16, 32]);
        for end in 0..20 {
            burst.ended(50 + end, 30, 10);
        }
        assert_eq!(allowed(&mut burst, 100, 3), 3);
    }

    #[test]
    fn runs_are_long_from_the_time_on_that_is_asked_about() {
        for (took, workers) in [(5, 0), (9, 0), (10, 2)] {
            let mut burst = Burst::default();
            for now in 0..200 {
                burst.began(now);
                burst.ended(now, took, 10);
            }
            assert_eq!(allowed(&mut burst, 200, 2), workers, "runs of {took} ms");
        }
    }
}
