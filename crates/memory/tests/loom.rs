//! Every interleaving of a shelf's lock, and of those who hold a block, look it up, let go of it and use it again.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p forebay-memory --test loom --release`
#![cfg(loom)]
#![allow(dead_code)] // a part of each module is used here

#[path = "../src/holders.rs"]
mod holders;
#[path = "../src/shelf/sys.rs"]
mod sys;

use holders::Holders;
use loom::sync::Arc;
use loom::thread;
use sys::SpinLock;

#[test]
fn one_thread_at_a_time_has_what_is_locked() {
    loom::model(|| {
        let lock = Arc::new(SpinLock::new(0));
        let other = {
            let lock = Arc::clone(&lock);
            thread::spawn(move || u32::from(lock.try_with(|count| *count += 1).is_some()))
        };
        let mine = u32::from(lock.try_with(|count| *count += 1).is_some());
        let theirs = other.join().expect("no panic");
        // loom's cell fails where both are inside; who was refused has changed nothing.
        assert_eq!(lock.with(|count| *count), mine + theirs);
    });
}

#[test]
fn of_all_that_let_go_one_is_the_last() {
    loom::model(|| {
        let holders = Arc::new(Holders::unheld());
        holders.begin(7);
        holders.join();
        let other = {
            let holders = Arc::clone(&holders);
            thread::spawn(move || holders.leave())
        };
        let mine = holders.leave();
        assert!(mine != other.join().expect("no panic"));
        assert!(!holders.find(7));
    });
}

#[test]
fn a_lookup_joins_the_allocation_that_it_means_or_none() {
    loom::model(|| {
        let holders = Arc::new(Holders::unheld());
        holders.begin(7);
        let lookup = {
            let holders = Arc::clone(&holders);
            thread::spawn(move || {
                if !holders.find(7) {
                    return false;
                }
                assert_eq!(holders.generation(), 7);
                holders.leave()
            })
        };
        // Whoever lets go last may use the block again; a lookup that is late must not count itself in.
        let was_last = holders.leave();
        if was_last {
            holders.begin(8);
            assert!(holders.is_sole());
        }
        let lookup_was_last = lookup.join().expect("no panic");
        assert!(was_last != lookup_was_last);
    });
}
