//! Every interleaving of a writer and a reader of the shared ring: no side sleeps while there is something for it; and of
//! a lender and a borrower: no block is reused while it is read, nor forgotten when its connection closes.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p forebay-transport --test loom --release`
#![cfg(loom)]

// The cursors as they ship, over loom's atomics; what they name is small here, so that the ring fills up.
#[path = "../src/stream/shm/ring.rs"]
#[allow(dead_code)]
mod ring;

// The ledger of what is lent, and the words by which it is released.
#[path = "../src/share/ledger.rs"]
#[allow(dead_code)]
mod ledger;
#[path = "../src/share/return_table.rs"]
#[allow(dead_code)]
mod return_table;
// What peers may still read, of blocks and processes as they are below.
#[path = "../src/share/loans.rs"]
#[allow(dead_code)]
mod loans;

extern crate self as forebay_base;
extern crate self as forebay_memory;

mod sys;

mod error {
    /// What the cursors need of the crate's.
    #[derive(Debug)]
    pub enum Violation {
        Ring { what: &'static str, value: u64 },
    }
}

mod limit {
    pub const RING_BYTES: usize = 2;
    pub const LENT_FRAMES_MAX: usize = 2;
}

mod share {
    pub(crate) use crate::{ledger, return_table};
}

mod stream {
    pub mod shm {
        pub mod sync {
            pub use loom::sync::atomic::{AtomicU64, fence};
            pub use loom::sync::{Arc, Mutex, MutexGuard};
        }
    }
}

/// Of `forebay_base`: every peer lives, and nothing is forked.
mod process {
    pub fn has_ended(_: &std::os::fd::OwnedFd) -> bool {
        false
    }

    pub fn epoch() -> u64 {
        0
    }
}

use std::fs::File;
use std::os::fd::OwnedFd;

use ledger::{Ledger, Ticket};
use loans::{PeerLoans, Peers};
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use ring::{RingReader, RingWriter, Sleeper, Waker};
use sys::Plain;

const BYTES: u64 = 3;

/// What an eventfd is: a bit that can be waited for.
#[derive(Default)]
struct Wakeup {
    signalled: Mutex<bool>,
    changed: Condvar,
}

impl Wakeup {
    fn wake(&self) {
        *self.signalled.lock().expect("no panic") = true;
        self.changed.notify_one();
    }

    /// Sleep until it is signalled. loom reports a deadlock if no thread is left that could signal it.
    fn wait(&self) {
        let mut signalled = self.signalled.lock().expect("no panic");
        while !*signalled {
            signalled = self.changed.wait(signalled).expect("no panic");
        }
        *signalled = false;
    }
}

/// One direction, with a wakeup for each side.
#[derive(Default)]
struct Shared {
    tail: AtomicU64,
    head: AtomicU64,
    sleeps_for_input: AtomicU64,
    sleeps_for_room: AtomicU64,
    reader: Wakeup,
    writer: Wakeup,
}

fn load(word: &AtomicU64) -> u64 {
    word.load(Ordering::Acquire)
}

/// As `SharedStream::send` does, byte by byte.
fn write(shared: &Shared) {
    let (mut outgoing, mut sleeper, mut waker) =
        (RingWriter::default(), Sleeper::default(), Waker::default());
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
        if waker.must_wake(load(&shared.sleeps_for_input)) {
            shared.reader.wake();
        }
    }
}

/// As `SharedStream::receive` does.
fn read(shared: &Shared) {
    let (mut incoming, mut sleeper, mut waker) =
        (RingReader::default(), Sleeper::default(), Waker::default());
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
        if waker.must_wake(load(&shared.sleeps_for_room)) {
            shared.writer.wake();
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

/// A block that is lent. When its lender has it back it is written for the next: loom fails where somebody still reads.
struct Block(Arc<Plain>);

impl Drop for Block {
    fn drop(&mut self) {
        self.0.write();
    }
}

#[derive(Default)]
struct ReturnTable {
    slots: [AtomicU64; 2],
    closed: AtomicU64,
}

impl ReturnTable {
    fn word(&self, offset: usize) -> &AtomicU64 {
        let slot = offset / size_of::<u64>();
        self.slots.get(slot).unwrap_or(&self.closed)
    }

    fn show(&self, ticket: Ticket, held: bool) {
        let word = self.word(return_table::slot_offset(ticket.slot as usize));
        return_table::show(word, ticket.generation, held);
    }
}

fn settle(ledger: &mut Ledger<Block>, return_table: &ReturnTable) -> usize {
    let load = |at| return_table.word(at).load(Ordering::Acquire);
    return_table::settle(ledger, load, drop);
    ledger.len()
}

fn lent(ledger: &mut Ledger<Block>) -> (Ticket, Arc<Plain>) {
    let memory = Arc::new(Plain::default());
    let ticket = ledger.lend(Block(Arc::clone(&memory)));
    (ticket.ok().expect("room"), memory)
}

#[test]
fn a_block_is_written_again_only_behind_whoever_read_it() {
    loom::model(|| {
        let (return_table, mut ledger) = (Arc::new(ReturnTable::default()), Ledger::default());
        let (ticket, memory) = lent(&mut ledger);
        let borrower = {
            let return_table = Arc::clone(&return_table);
            thread::spawn(move || {
                return_table.show(ticket, true);
                // Another thread has the last of it.
                let last = Arc::clone(&return_table);
                let reader = thread::spawn(move || {
                    memory.read();
                    last.show(ticket, false);
                });
                reader.join().expect("no panic");
            })
        };
        if settle(&mut ledger, &return_table) == 0 {
            let (next, _) = lent(&mut ledger);
            assert_eq!(next.slot, ticket.slot);
            assert_eq!(
                settle(&mut ledger, &return_table),
                1,
                "an earlier word gives it back"
            );
        }
        borrower.join().expect("no panic");
        settle(&mut ledger, &return_table);
        assert!(ledger.len() <= 1);
    });
}

#[test]
fn what_a_closed_borrower_never_received_comes_back_and_what_it_holds_does_not() {
    loom::model(|| {
        let (return_table, mut ledger) = (Arc::new(ReturnTable::default()), Ledger::default());
        let (received, memory) = lent(&mut ledger);
        let (_unread, _) = lent(&mut ledger);
        let borrower = {
            let return_table = Arc::clone(&return_table);
            thread::spawn(move || {
                return_table.show(received, true);
                return_table::close(return_table.word(return_table::CLOSED));
                memory.read();
                return_table.show(received, false);
            })
        };
        settle(&mut ledger, &return_table);
        borrower.join().expect("no panic");
        assert_eq!(
            settle(&mut ledger, &return_table),
            0,
            "nothing is lent for ever"
        );
    });
}

/// Of `forebay_memory`: no chunk goes with a block.
#[derive(Debug)]
pub struct Lease;

pub struct Reference {
    pub region: u64,
}

#[derive(Debug)]
pub struct Unused;

impl Lease {
    pub fn reference(&self) -> Reference {
        Reference { region: 0 }
    }

    pub fn give_back(self) -> Unused {
        Unused
    }
}

impl Unused {
    pub fn is_empty(&self) -> bool {
        true
    }
}

#[test]
fn what_is_lent_just_before_the_close_is_not_forgotten() {
    loom::model(|| {
        let peers = Arc::new(Peers::default());
        let (returns, process) = (sys::shared::PeerBlock, nobody());
        let connection = PeerLoans::new(returns, process);
        peers.add(&connection);
        let sweeper = {
            let peers = Arc::clone(&peers);
            thread::spawn(move || peers.sweep())
        };
        let lent = connection.settled(|ledger| ledger.lend(Lease));
        assert!(lent.is_ok());
        drop(connection);
        assert!(!sweeper.join().expect("no panic"), "its peer reads it");
        assert!(peers.closed_with(1).is_some());
    });
}

/// A descriptor, which nothing asks.
fn nobody() -> OwnedFd {
    File::open("/dev/null").expect("a descriptor").into()
}
