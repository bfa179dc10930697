//! Which fields of a map were seen.

/// A set of numbers below [`Set::SIZE`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Set([u64; 4]);

impl Set {
    /// Fields that a map may name (`fields_max`).
    pub const SIZE: usize = 256;

    pub fn add(&mut self, number: usize) -> bool {
        let (word, bit) = (number / 64, 1 << (number % 64));
        let is_new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        is_new
    }

    pub fn contains(&self, number: usize) -> bool {
        number < Self::SIZE && self.0[number / 64] & (1 << (number % 64)) != 0
    }

    pub fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }

    /// The first number that is in this set and not in the other.
    pub fn first_beyond(&self, other: &Self) -> Option<usize> {
        let words = self.0.iter().zip(other.0).enumerate();
        let mut missing = words.map(|(word, (&ours, theirs))| (word, ours & !theirs));
        missing
            .find(|&(_, bits)| bits != 0)
            .map(|(word, bits)| word * 64 + bits.trailing_zeros() as usize)
    }
}
