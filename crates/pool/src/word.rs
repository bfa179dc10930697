//! The shared word of a service: its state and generation, changed by compare-and-swap wherever both sides may.
//!
//! ```text
//!   Free -> Starting -> Leased -> Idle -> Leased ...        client
//!                         |        ^
//!                         v        |
//!                       Resetting -+                        client, once the service acknowledged
//!   Starting | Resetting | Idle -> Retired                  keeper, when a deadline passed
//!   Starting | Resetting -> Idle                            keeper, when it has answered by then
//!   Starting -> Idle                                        client, answered but not wanted any more
//!   any but Free -> Retired                                 client, to discard
//!   Retired -> Free                                         client, once it read of the death
//! ```
//! Invariants: a service is lent only by the client's swap out of `Idle`, `Starting` or `Resetting`, so one swap
//! decides between a caller and a deadline; the generation grows with every lease, so a deadline that was set for
//! an earlier one can never fit a later one. No process waits on a word, and no lock lies in shared memory.

use crate::sync::{AtomicU64, Ordering};

/// What a service is doing, as far as leases are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// No service here.
    Free = 0,
    /// Started, not yet ready.
    Starting = 1,
    /// Ready and not lent.
    Idle = 2,
    /// Lent.
    Leased = 3,
    /// Given back, not yet reset.
    Resetting = 4,
    /// On its way out; never lent again.
    Retired = 5,
}

/// State and generation together, as they lie in the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The state.
    pub state: State,
    /// Grows with every lease of the slot, but a further one of a shared service.
    pub generation: u64,
}

const SHIFT: u32 = 8;

impl Stamp {
    /// A stamp of a state and a generation.
    pub const fn new(state: State, generation: u64) -> Self {
        Self { state, generation }
    }

    /// Read a word.
    pub fn load(word: &AtomicU64) -> Self {
        Self::unpack(word.load(Ordering::Acquire))
    }

    /// Swap a word from this stamp to another; false where the other side has changed it since.
    pub fn swap(self, word: &AtomicU64, to: Self) -> bool {
        word.compare_exchange(self.pack(), to.pack(), Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Set a word that the other side may not change now: of a free slot, or of one whose process is gone.
    pub fn store(self, word: &AtomicU64) {
        word.store(self.pack(), Ordering::Release);
    }

    /// The client takes a ready service for its next lease; false where a deadline was faster.
    pub fn claim(word: &AtomicU64, generation: u64) -> bool {
        let seen = Self::load(word);
        let lendable = matches!(seen.state, State::Idle | State::Resetting | State::Starting);
        lendable && seen.swap(word, Self::new(State::Leased, generation))
    }

    /// The keeper retires a service that has stayed as it was seen; false where the client has moved it since.
    pub fn expire(self, word: &AtomicU64) -> bool {
        self.swap(word, Self::new(State::Retired, self.generation))
    }

    /// The keeper makes idle a service that has answered by its deadline; false where the client has moved it since.
    pub fn settle(self, word: &AtomicU64) -> bool {
        self.swap(word, Self::new(State::Idle, self.generation))
    }

    /// The client discards a service, whatever it is doing.
    pub fn retire(word: &AtomicU64) {
        loop {
            let seen = Self::load(word);
            if seen.state == State::Retired || seen.expire(word) {
                return;
            }
        }
    }

    const fn pack(self) -> u64 {
        (self.generation << SHIFT) | self.state as u64
    }

    fn unpack(raw: u64) -> Self {
        let state = match raw & 0xff {
            0 => State::Free,
            1 => State::Starting,
            2 => State::Idle,
            3 => State::Leased,
            4 => State::Resetting,
            _ => State::Retired, // also an unknown state: never lent
        };
        Self {
            state,
            generation: raw >> SHIFT,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_swap_decides_between_caller_and_deadline() {
        let word = AtomicU64::new(0);
        let idle = Stamp::new(State::Idle, 7);
        idle.store(&word);
        assert!(idle.swap(&word, Stamp::new(State::Leased, 8)));
        assert!(
            !idle.swap(&word, Stamp::new(State::Retired, 7)),
            "the deadline came second"
        );
        assert_eq!(Stamp::load(&word), Stamp::new(State::Leased, 8));
    }

    #[test]
    fn what_nobody_wrote_is_never_lent() {
        assert_eq!(Stamp::unpack(0xfe).state, State::Retired);
        assert_eq!(Stamp::unpack(0).state, State::Free);
    }
}
