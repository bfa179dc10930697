//! After how many steps a model or simulation found what is broken; for tests of several crates.
//!
//! Counted for each thread, as each test has one of its own. `make planted` reads what is printed.

use std::cell::Cell;

thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// One more step.
pub fn step() {
    STEPS.set(STEPS.get() + 1);
}

/// While it lives, a panic says after how many steps it came.
pub struct Watch;

impl Drop for Watch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("found after {} steps", STEPS.get());
        }
    }
}
