//! Hashes: of numbers that this process generated, which a peer cannot choose, so that they need no keyed hash; and of
//! texts that are compared over restarts.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A map keyed by such a number.
pub type ByNumber<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// A set of such numbers.
pub type Numbers<K> = HashSet<K, BuildHasherDefault<NumberHasher>>;

/// A hash of texts and their lengths, eight bytes at a time, which is the same in each process: it does not withstand an
/// adversary who wants a collision.
pub fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let mut hash = SPREAD;
    let mut mix = |word: u64| hash = (hash ^ word).wrapping_mul(SPREAD).rotate_left(29);
    for part in parts {
        let (words, rest) = part.as_chunks::<8>();
        for word in words {
            mix(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        mix(u64::from_le_bytes(last));
        mix(part.len() as u64);
    }
    hash
}

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
