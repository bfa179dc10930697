//! Chance that is the same on every machine, for tests of several crates.

/// xorshift64*, from a seed that is not 0.
pub struct Random(pub u64);

impl Random {
    /// The next number below the limit.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let value = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(value).expect("31 bits") % limit.max(1)
    }
}
