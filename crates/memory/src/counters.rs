//! Counting without the region's lock; the counts are added up by the next thread that has it.

/// What was allocated and freed since it was last taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Bytes and blocks allocated less those freed: below nought where others allocated what was freed here.
    pub(crate) live: i64,
    pub(crate) blocks: i64,
    /// The most that `live` has been.
    pub(crate) high: i64,
    pub(crate) allocations: u64,
}

impl Counters {
    pub(crate) fn allocated(&mut self, length: u64) {
        self.live += length.cast_signed();
        self.blocks += 1;
        self.high = self.high.max(self.live);
        self.allocations += 1;
    }

    pub(crate) fn freed(&mut self, length: u64) {
        self.live -= length.cast_signed();
        self.blocks -= 1;
    }

    /// Add what was counted elsewhere, as if it had happened now.
    pub(crate) fn add(&mut self, other: Self) {
        self.high = self.high.max(self.live + other.high);
        self.live += other.live;
        self.blocks += other.blocks;
        self.allocations += other.allocations;
    }
}

#[cfg(test)]
mod tests {
    use super::Counters;

    #[test]
    fn the_most_that_was_live_is_seen_whoever_counted_it() {
        let (mut here, mut there) = (Counters::default(), Counters::default());
        here.allocated(600);
        there.allocated(1000);
        there.freed(1000);
        here.add(there);
        assert_eq!(
            (here.live, here.high, here.blocks, here.allocations),
            (600, 1600, 1, 2)
        );
    }

    #[test]
    fn what_one_allocates_and_another_frees_comes_to_nought() {
        let (mut here, mut there) = (Counters::default(), Counters::default());
        there.freed(300);
        here.add(there);
        here.allocated(300);
        assert_eq!((here.live, here.high, here.blocks), (0, 0, 0));
    }
}
