//! Allocation of parts of a block: first fit; free neighbours are merged.
use std::collections::BTreeMap;

/// Parts begin at multiples of this, as direct I/O needs at most.
pub(super) const ALIGN_BYTES: usize = 4096;

/// The free parts of a block.
#[derive(Debug)]
pub(super) struct Parts {
    /// Sizes, by offset.
    free: BTreeMap<usize, usize>,
}

impl Parts {
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            free: BTreeMap::from([(0, bytes)]),
        }
    }

    /// Allocate `bytes`; returns their offset, or `None` if no free part is large enough.
    pub(super) fn take(&mut self, bytes: usize) -> Option<usize> {
        let bytes = bytes.next_multiple_of(ALIGN_BYTES);
        let fits = |(&from, &size): (&usize, &usize)| (size >= bytes).then_some((from, size));
        let (from, size) = self.free.iter().find_map(fits)?;
        self.free.remove(&from);
        if size > bytes {
            self.free.insert(from + bytes, size - bytes);
        }
        Some(from)
    }

    /// Free the part at `from`, which was allocated with `bytes`.
    pub(super) fn give(&mut self, mut from: usize, bytes: usize) {
        let mut bytes = bytes.next_multiple_of(ALIGN_BYTES);
        if let Some(after) = self.free.remove(&(from + bytes)) {
            bytes += after;
        }
        if let Some((&before, &size)) = self.free.range(..from).next_back()
            && before + size == from
        {
            from = before;
            bytes += size;
        }
        self.free.insert(from, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_are_given_back_in_any_order_are_one_again() {
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]] {
            let mut parts = Parts::new(4 * ALIGN_BYTES);
            let taken: Vec<_> = (0..4).map(|_| parts.take(100).expect("room")).collect();
            assert_eq!(parts.take(1), None);
            for at in order {
                parts.give(taken[at], 100);
            }
            assert_eq!(parts.take(4 * ALIGN_BYTES), Some(0));
        }
    }

    #[test]
    fn no_byte_is_given_twice() {
        let mut parts = Parts::new(10 * ALIGN_BYTES);
        let first = parts.take(ALIGN_BYTES + 1).expect("room");
        let second = parts.take(3 * ALIGN_BYTES).expect("room");
        parts.give(first, ALIGN_BYTES + 1);
        let third = parts.take(3 * ALIGN_BYTES).expect("behind");
        assert!(third >= second + 3 * ALIGN_BYTES);
        assert_eq!(parts.take(2 * ALIGN_BYTES), Some(first));
    }
}
