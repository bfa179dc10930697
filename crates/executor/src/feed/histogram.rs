//! Histograms of times: how many were at most so long.

/// Bounds of the times of requests, in milliseconds: from a function that does nothing to one that takes a day.
pub(super) const REQUEST_BOUNDS_MS: &[u64] = &[
    1, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000,
    1_800_000, 7_200_000, 86_400_000,
];
/// Bounds of commits, in microseconds: from a fast disk to one that hangs.
pub const COMMIT_BOUNDS_US: &[u64] = &[
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 10_000_000,
];

/// How many observations were at most as large as each bound.
#[derive(Clone, Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// How many of its units make a second.
    per_second: f64,
    /// One more than the bounds: the last is for what is above all of them.
    counts: Box<[u64]>,
    sum: u64,
}

impl Histogram {
    /// An empty one.
    pub fn new(bounds: &'static [u64], per_second: f64) -> Self {
        Self {
            bounds,
            per_second,
            counts: vec![0; bounds.len() + 1].into(),
            sum: 0,
        }
    }

    /// Count one more.
    pub fn observe(&mut self, value: u64) {
        let index = self.bounds.partition_point(|bound| *bound < value);
        self.counts[index] += 1;
        self.sum = self.sum.saturating_add(value);
    }

    /// The bounds in seconds, each with the number of those that were not above it.
    pub(super) fn buckets(&self) -> Vec<(f64, u64)> {
        let mut below = 0;
        let pairs = self.bounds.iter().zip(&self.counts);
        let buckets = pairs.map(|(bound, count)| {
            below += count;
            (self.seconds(*bound), below)
        });
        buckets.collect()
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their sum in seconds.
    pub(super) fn sum_seconds(&self) -> f64 {
        self.seconds(self.sum)
    }

    #[allow(clippy::cast_precision_loss)] // exact up to 285,000 years
    fn seconds(&self, value: u64) -> f64 {
        value as f64 / self.per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_at_a_bound_counts_below_it_and_one_above_all_in_none() {
        let mut histogram = Histogram::new(&[1, 10], 1e3);
        for value in [0, 1, 2, 10, 11] {
            histogram.observe(value);
        }
        assert_eq!(histogram.buckets(), [(0.001, 2), (0.01, 4)]);
        assert_eq!((histogram.count(), histogram.sum_seconds()), (5, 0.024));
    }
}
