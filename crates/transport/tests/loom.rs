//! Every interleaving of a writer and a reader of the shared ring: nobody sleeps while there is something for it.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p forebay-transport --test loom --release`
#![cfg(loom)]

// The cursors as they ship, over loom's atomics; what they name is small here, so that the ring fills up.
#[path = "../src/shm/ring.rs"]
#[allow(dead_code)]
mod ring;

mod error {
    /// What the cursors need of the crate's.
    #[derive(Debug)]
    pub enum Violation {
        Ring { what: &'static str, value: u64 },
    }
}

mod limit {
    pub const RING_BYTES: usize = 2;
}

mod shm {
    pub mod sync {
        pub use loom::sync::atomic::{AtomicU64, fence};
    }
}

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use ring::{Incoming, Outgoing, Sleeper, Waker};

const BYTES: u64 = 3;

/// What an eventfd is: a bit that can be waited for.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.rung.lock().expect("no panic") = true;
        self.changed.notify_one();
    }

    /// Sleep until it rings. loom reports a deadlock where nobody is left who could ring it.
    fn wait(&self) {
        let mut rung = self.rung.lock().expect("no panic");
        while !*rung {
            rung = self.changed.wait(rung).expect("no panic");
        }
        *rung = false;
    }
}

/// One direction, with a bell for each side.
#[derive(Default)]
struct Shared {
    tail: AtomicU64,
    head: AtomicU64,
    sleeps_for_input: AtomicU64,
    sleeps_for_room: AtomicU64,
    reader: Bell,
    writer: Bell,
}

fn load(word: &AtomicU64) -> u64 {
    word.load(Ordering::Acquire)
}

/// As `SharedStream::send` does, byte by byte.
fn write(shared: &Shared) {
    let (mut outgoing, mut sleeper, mut waker) =
        (Outgoing::default(), Sleeper::default(), Waker::default());
    for _ in 0..BYTES {
        sleeper.disarm(&shared.sleeps_for_room);
        while outgoing.room(load(&shared.head)).expect("sane") == 0 {
            sleeper.disarm(&shared.sleeps_for_room);
            sleeper.arm(&shared.sleeps_for_room);
            if outgoing.room(load(&shared.head)).expect("sane") == 0 {
                shared.writer.wait();
            }
        }
        outgoing.advance(1);
        outgoing.publish(&shared.tail);
        if waker.must_ring(load(&shared.sleeps_for_input)) {
            shared.reader.ring();
        }
    }
}

/// As `SharedStream::receive` does.
fn read(shared: &Shared) {
    let (mut incoming, mut sleeper, mut waker) =
        (Incoming::default(), Sleeper::default(), Waker::default());
    let mut read = 0;
    while read < BYTES {
        sleeper.disarm(&shared.sleeps_for_input);
        let mut there = incoming.available(load(&shared.tail)).expect("sane");
        if there == 0 {
            sleeper.arm(&shared.sleeps_for_input);
            there = incoming.available(load(&shared.tail)).expect("sane");
            if there == 0 {
                shared.reader.wait();
                continue;
            }
        }
        incoming.advance(there);
        read += there as u64;
        incoming.publish(&shared.head);
        if waker.must_ring(load(&shared.sleeps_for_room)) {
            shared.writer.ring();
        }
    }
}

#[test]
fn neither_side_sleeps_for_ever() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let shared = Arc::new(Shared::default());
        let writer = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || write(&shared))
        };
        read(&shared);
        writer.join().expect("no panic");
    });
}
