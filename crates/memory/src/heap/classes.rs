//! The two-level index over free pieces: which class a size is in, and which classes have a piece.
//!
//! Sizes are in granules. Below 32 granules each size has a class of its own;
//! above, every power of two is divided into 32 classes, so a class is at most 1/32 wide.
//! Classes are numbered in the order of their sizes, and two levels of bits find the next one in use in O(1).
//! Source: Masmano, Ripoll, Crespo, Real, "TLSF: a new dynamic memory allocator for real-time systems", 2004.

/// No node: the end of a list.
pub(super) const NONE: u32 = u32::MAX;

const FINE_BITS: u32 = 5;
const FINE: usize = 1 << FINE_BITS;
/// One row for the small sizes, one for each power of two above.
const ROWS: usize = (u64::BITS - FINE_BITS) as usize + 1;

/// The class of the pieces of `size` granules.
#[allow(clippy::cast_possible_truncation)] // both numbers are below 64 * 32
pub(super) fn class_of(size: u64) -> usize {
    if size < FINE as u64 {
        return size as usize;
    }
    let shift = size.ilog2() - FINE_BITS;
    (shift as usize + 1) * FINE + (size >> shift) as usize - FINE
}

/// Heads of the free lists, with a bit for each that is not empty.
#[derive(Debug)]
pub(super) struct Index {
    rows: u64,
    fine: [u32; ROWS],
    heads: Box<[u32]>,
}

impl Index {
    pub(super) fn new() -> Self {
        Self {
            rows: 0,
            fine: [0; ROWS],
            heads: vec![NONE; ROWS * FINE].into(),
        }
    }

    pub(super) fn head(&self, class: usize) -> u32 {
        self.heads[class]
    }

    pub(super) fn set_head(&mut self, class: usize, node: u32) {
        self.heads[class] = node;
        let (row, column) = (class / FINE, class % FINE);
        if node == NONE {
            self.fine[row] &= !(1 << column);
        } else {
            self.fine[row] |= 1 << column;
        }
        if self.fine[row] == 0 {
            self.rows &= !(1 << row);
        } else {
            self.rows |= 1 << row;
        }
    }

    /// The first class from `class` upwards that has a piece.
    pub(super) fn next_used(&self, class: usize) -> Option<usize> {
        let (row, column) = (class / FINE, class % FINE);
        let fine = *self.fine.get(row)? & (u32::MAX << column);
        if fine != 0 {
            return Some(row * FINE + fine.trailing_zeros() as usize);
        }
        let rows = self.rows & u64::MAX.checked_shl(u32::try_from(row).ok()? + 1)?;
        if rows == 0 {
            return None;
        }
        let row = rows.trailing_zeros() as usize;
        Some(row * FINE + self.fine[row].trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::{Index, class_of};

    #[test]
    fn classes_grow_with_sizes_and_are_at_most_one_thirty_second_wide() {
        let mut start = 1;
        for size in 1..if cfg!(miri) { 2_000 } else { 100_000_u64 } {
            let (here, before) = (class_of(size), class_of(size - 1));
            assert!(here == before || here == before + 1, "size {size}");
            if here != before {
                start = size;
            }
            assert!(
                (size - start) * 32 <= start,
                "size {size} shares a class with {start}"
            );
        }
    }

    #[test]
    fn the_largest_size_has_a_class() {
        let mut index = Index::new();
        assert_eq!(index.heads.len(), class_of(u64::MAX) + 1);
        index.set_head(class_of(u64::MAX), 7);
        assert_eq!(index.next_used(0), Some(class_of(u64::MAX)));
        assert_eq!(index.next_used(class_of(u64::MAX) + 1), None);
    }

    #[test]
    fn the_next_used_class_is_found_in_its_row_in_a_later_row_or_not_at_all() {
        let mut index = Index::new();
        for class in [3, 40] {
            index.set_head(class, 1);
        }
        assert_eq!(
            [0, 3, 4, 40].map(|class| index.next_used(class)),
            [Some(3), Some(3), Some(40), Some(40)]
        );
        assert_eq!(index.next_used(41), None);
        index.set_head(40, super::NONE);
        assert_eq!(index.next_used(4), None);
    }
}
