//! How long starts take, by key. A caller that has waited so long for a reset does better to start a service.

use std::collections::BTreeMap;

use crate::machine::Key;

/// A moving average of each key, in milliseconds.
#[derive(Debug, Default)]
pub struct StartTimes(BTreeMap<Key, u64>);

impl StartTimes {
    /// A start took so long.
    pub fn learn(&mut self, key: Key, took_ms: u64) {
        let known = self.0.entry(key).or_insert(took_ms);
        *known = (3 * *known + took_ms) / 4;
    }

    /// At least 1; None where no start has ended yet.
    pub fn known(&self, key: Key) -> Option<u64> {
        self.0.get(&key).map(|&known| known.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_starts_count_less_than_what_is_known() {
        let mut times = StartTimes::default();
        assert_eq!(times.known(7), None);
        times.learn(7, 100);
        times.learn(7, 200);
        assert_eq!((times.known(7), times.known(8)), (Some(125), None));
        times.learn(8, 0);
        assert_eq!(times.known(8), Some(1));
    }
}
