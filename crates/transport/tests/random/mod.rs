//! Chance for tests of several crates, and mutations of what a decoder reads.
#![allow(dead_code)] // each test uses a part

pub mod mutation;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

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

/// The seed that `FOREBAY_SEED` names, or another one in every run; never 0.
///
/// # Panics
/// Where the variable is set and holds no number.
pub fn seed() -> u64 {
    let drawn = match std::env::var("FOREBAY_SEED") {
        Ok(text) => {
            let said = text
                .strip_prefix("0x")
                .map_or_else(|| text.parse(), |digits| u64::from_str_radix(digits, 16));
            said.unwrap_or_else(|_| {
                panic!("FOREBAY_SEED={text}: set it to a number such as 0x5eed")
            })
        }
        Err(_) => RandomState::new().build_hasher().finish(), // keyed by the kernel's chance
    };
    drawn.max(1)
}
