//! Maps keyed by numbers that this process generated: a peer cannot choose them, so they need no keyed hash.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A map keyed by such a number.
pub type ByNumber<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// A set of such numbers.
pub type Numbers<K> = HashSet<K, BuildHasherDefault<NumberHasher>>;

/// Spreads a number over all bits by one multiplication.
#[derive(Clone, Copy, Debug, Default)]
pub struct NumberHasher(u64);

/// 2^64 divided by the golden ratio: neighbours end far apart. Knuth, volume 3, 6.4.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        // The table takes its index from the low bits, which a multiplication mixes least.
        self.0.rotate_left(32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(SPREAD);
    }
}
