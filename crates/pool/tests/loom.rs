//! Every interleaving of a client and its keeper on the word of a service: one of them decides, never both.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p forebay-pool --test loom --release`
#![cfg(loom)]

// The word as it ships, over loom's atomics.
#[path = "../src/word.rs"]
#[allow(dead_code)]
mod word;

mod sync {
    pub use loom::sync::atomic::{AtomicU64, Ordering};
}

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;
use word::{Stamp, State};

fn begun(state: State, generation: u64) -> Arc<AtomicU64> {
    let word = Arc::new(AtomicU64::new(0));
    Stamp::new(state, generation).store(&word);
    word
}

/// The keeper, at a deadline that was set for a service of this state and generation.
fn deadline(word: &AtomicU64, state: State, generation: u64, answered: bool) -> Option<bool> {
    let seen = Stamp::load(word);
    if seen != Stamp::new(state, generation) {
        return None;
    }
    Some(if answered {
        seen.settle(word)
    } else {
        seen.expire(word)
    })
}

#[test]
fn a_caller_and_a_deadline_never_both_have_a_service() {
    for state in [State::Idle, State::Resetting, State::Starting] {
        loom::model(move || {
            let word = begun(state, 7);
            let keeper = {
                let word = Arc::clone(&word);
                thread::spawn(move || deadline(&word, state, 7, false) == Some(true))
            };
            let claimed = Stamp::claim(&word, 8);
            let retired = keeper.join().expect("no panic");
            assert_ne!(claimed, retired, "one of them, and not both");
            let end = if claimed {
                Stamp::new(State::Leased, 8)
            } else {
                Stamp::new(State::Retired, 7)
            };
            assert_eq!(Stamp::load(&word), end);
        });
    }
}

#[test]
fn who_answered_by_its_deadline_is_lost_to_nobody() {
    for state in [State::Resetting, State::Starting] {
        loom::model(move || {
            let word = begun(state, 7);
            let keeper = {
                let word = Arc::clone(&word);
                thread::spawn(move || deadline(&word, state, 7, true))
            };
            // It fails only where the keeper has made it idle in between; then it is there to be claimed.
            let claimed = Stamp::claim(&word, 8) || {
                assert_eq!(Stamp::load(&word), Stamp::new(State::Idle, 7));
                Stamp::claim(&word, 8)
            };
            keeper.join().expect("no panic");
            assert!(claimed);
            assert_eq!(Stamp::load(&word), Stamp::new(State::Leased, 8));
        });
    }
}

#[test]
fn the_deadline_of_an_earlier_lease_fits_no_later_one() {
    loom::model(|| {
        let word = begun(State::Resetting, 7);
        let keeper = {
            let word = Arc::clone(&word);
            thread::spawn(move || deadline(&word, State::Resetting, 7, false) == Some(true))
        };
        // It is lent, given back and reset once more while the keeper looks.
        let claimed = Stamp::claim(&word, 8);
        let reset =
            claimed && Stamp::new(State::Leased, 8).swap(&word, Stamp::new(State::Resetting, 8));
        assert_eq!(claimed, reset, "what is lent is its client's alone");
        let retired = keeper.join().expect("no panic");
        assert_ne!(claimed, retired);
        if claimed {
            assert_eq!(Stamp::load(&word), Stamp::new(State::Resetting, 8));
        }
    });
}

#[test]
fn what_is_discarded_stays_so_whatever_the_keeper_does() {
    for answered in [false, true] {
        loom::model(move || {
            let word = begun(State::Resetting, 7);
            let keeper = {
                let word = Arc::clone(&word);
                thread::spawn(move || deadline(&word, State::Resetting, 7, answered))
            };
            Stamp::retire(&word);
            assert_eq!(Stamp::load(&word).state, State::Retired);
            assert!(!Stamp::claim(&word, 8), "a retired service is lent");
            keeper.join().expect("no panic");
            assert_eq!(Stamp::load(&word), Stamp::new(State::Retired, 7));
        });
    }
}
