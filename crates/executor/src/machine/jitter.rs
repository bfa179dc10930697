//! The random part of a wait before something is tried again.

use crate::request::Millis;

/// Pseudo-random numbers, the same for the same seed (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Jitter(pub u64);

impl Jitter {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// The wait before run `failed + 1`: `first` doubled for each failed run, at most `most`, of which a
    /// random part between a half and all, so that what failed together does not come back together.
    pub(crate) fn backoff(&mut self, first: u64, most: u64, failed: u32) -> Millis {
        let doubled = first.saturating_mul(1 << failed.saturating_sub(1).min(40));
        let whole = doubled.min(most);
        whole - whole / 2 + self.next() % (whole / 2 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backoff_doubles_up_to_its_limit_and_differs() {
        let mut jitter = Jitter(7);
        for (failed, whole) in [(1, 100), (2, 200), (3, 400), (60, 1_000)] {
            let waits: Vec<_> = (0..50)
                .map(|_| jitter.backoff(100, 1_000, failed))
                .collect();
            assert!(waits.iter().all(|wait| (whole / 2..=whole).contains(wait)));
            assert!(waits.iter().any(|wait| *wait != waits[0]));
        }
    }
}
