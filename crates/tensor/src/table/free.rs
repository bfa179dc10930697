//! Ids of dropped tensors, for reuse.
use std::collections::{BTreeMap, VecDeque};

/// An id keeps its row size until this many others were dropped after it.
pub(super) const REMEMBERED: usize = 64;

/// Free ids, by row size and in the order of their drops.
#[derive(Debug, Default)]
pub(super) struct FreeIds {
    /// By drop number: each id with its row size.
    order: BTreeMap<u64, (u32, u64)>,
    /// By row size: drop numbers, ascending.
    sizes: BTreeMap<u64, VecDeque<u64>>,
    drops: u64,
}

impl FreeIds {
    pub(super) fn add(&mut self, id: u32, row_bytes: u64) {
        self.drops += 1;
        self.order.insert(self.drops, (id, row_bytes));
        self.sizes
            .entry(row_bytes)
            .or_default()
            .push_back(self.drops);
    }

    /// The id with this row size that was dropped last.
    pub(super) fn take(&mut self, row_bytes: u64) -> Option<u32> {
        let drops = self.sizes.get_mut(&row_bytes)?;
        let dropped = drops.pop_back();
        if drops.is_empty() {
            self.sizes.remove(&row_bytes);
        }
        self.order.remove(&dropped?).map(|(id, _)| id)
    }

    /// The id that was dropped first, of any row size, if more than [`REMEMBERED`] are free.
    pub(super) fn take_oldest(&mut self) -> Option<u32> {
        if self.order.len() <= REMEMBERED {
            return None;
        }
        let (_, (id, row_bytes)) = self.order.pop_first()?;
        if let Some(drops) = self.sizes.get_mut(&row_bytes) {
            drops.pop_front(); // the first of all is the first of its size
            if drops.is_empty() {
                self.sizes.remove(&row_bytes);
            }
        }
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_back_by_their_size_and_the_oldest_by_any() {
        let mut free = FreeIds::default();
        for id in 0..100 {
            free.add(id, u64::from(id % 2));
        }
        assert_eq!(
            [free.take(0), free.take(1), free.take(7)],
            [Some(98), Some(99), None]
        );
        assert_eq!([free.take_oldest(), free.take_oldest()], [Some(0), Some(1)]);
        let rest: Vec<_> = std::iter::from_fn(|| free.take_oldest()).collect();
        assert_eq!(rest, (2..34).collect::<Vec<_>>());
        assert_eq!(free.take(0), Some(96));
        while free.take(0).or_else(|| free.take(1)).is_some() {}
        assert!(free.order.is_empty() && free.sizes.is_empty());
    }
}
