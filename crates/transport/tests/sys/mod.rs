//! Memory that is read and written without atomics, for the model check.
#![allow(unsafe_code)]

use loom::cell::UnsafeCell;

/// Bytes that one side writes and the other reads; loom fails where nothing orders the two.
#[derive(Default)]
pub struct Plain(UnsafeCell<u64>);

// SAFETY: nothing is read or written; loom looks at each access, and fails where two of them race.
unsafe impl Sync for Plain {}

impl Plain {
    pub fn read(&self) {
        self.0.with(|_| ());
    }

    pub fn write(&self) {
        self.0.with_mut(|_| ());
    }
}

/// The return table of a peer that gives nothing back.
pub mod shared {
    use std::sync::atomic::Ordering;

    #[derive(Debug)]
    pub struct PeerBlock;

    impl PeerBlock {
        pub fn load(&self, _: usize, _: Ordering) -> u64 {
            0
        }
    }
}
