//! Cursors of a ring of bytes with one writer and one reader, and who wakes whom.
//!
//! Counters only grow; a position in the ring is a counter modulo [`RING_BYTES`]. Each side keeps its own counter in
//! private memory and publishes a copy; the peer's is loaded once, checked against its possible range, and not reloaded.
//!
//! A sleeper stores an odd number in its own memory, checks the ring again, and only then sleeps; a writer publishes
//! first and reads that number after a full fence. One of the two must see the other (Dekker). The number counts up, so
//! that a writer wakes once per sleep, however much it writes.

use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

use crate::error::Violation;
use crate::limit::RING_BYTES;
use crate::stream::shm::sync::{AtomicU64, fence};

/// What we have written, and how far the peer has read.
#[derive(Debug, Default)]
pub struct RingWriter {
    tail: u64,
    head: u64,
}

impl RingWriter {
    /// How many bytes there is room for, by the head that the peer shows.
    pub fn room(&mut self, shown: u64) -> Result<usize, Violation> {
        if shown.wrapping_sub(self.head) > self.tail - self.head {
            return Err(Violation::Ring {
                what: "head",
                value: shown,
            });
        }
        self.head = shown;
        Ok(RING_BYTES - fit(self.tail - self.head))
    }

    /// Where the next bytes go: at most two ranges of the ring for `count` of them.
    pub fn ranges(&self, count: usize) -> [(usize, usize); 2] {
        ranges(self.tail, count)
    }

    /// Count bytes as written.
    pub fn advance(&mut self, count: usize) {
        self.tail += count as u64;
    }

    /// Let the peer see them.
    pub fn publish(&self, word: &AtomicU64) {
        word.store(self.tail, Release);
        fence(SeqCst); // before the look at the sleeper's word
    }
}

/// What we have read.
#[derive(Debug, Default)]
pub struct RingReader {
    head: u64,
}

impl RingReader {
    /// How many bytes are there, by the tail that the peer shows.
    pub fn available(&self, shown: u64) -> Result<usize, Violation> {
        let there = shown.wrapping_sub(self.head);
        if there > RING_BYTES as u64 {
            return Err(Violation::Ring {
                what: "tail",
                value: shown,
            });
        }
        Ok(fit(there))
    }

    /// Where the next bytes are: at most two ranges of the ring for `count` of them.
    pub fn ranges(&self, count: usize) -> [(usize, usize); 2] {
        ranges(self.head, count)
    }

    /// Count bytes as read.
    pub fn advance(&mut self, count: usize) {
        self.head += count as u64;
    }

    /// Let the peer see it.
    pub fn publish(&self, word: &AtomicU64) {
        word.store(self.head, Release);
        fence(SeqCst); // before the look at the sleeper's word
    }
}

/// Our side of one reason to sleep, input or room.
#[derive(Debug, Default)]
pub struct Sleeper {
    epoch: u64,
}

impl Sleeper {
    /// Ask to be woken. The caller checks the ring once more before it sleeps.
    pub fn arm(&mut self, word: &AtomicU64) {
        if self.epoch & 1 == 0 {
            self.epoch += 1;
            word.store(self.epoch, Release);
        }
        fence(SeqCst); // before the next look
    }

    /// We are awake.
    pub fn disarm(&mut self, word: &AtomicU64) {
        if self.epoch & 1 == 1 {
            self.epoch += 1;
            word.store(self.epoch, Relaxed);
        }
    }
}

/// The other side: which of the peer's sleeps was ended already.
#[derive(Debug, Default)]
pub struct Waker {
    ended: u64,
}

impl Waker {
    /// Whether to wake the peer now, by the number that it shows. Ask after publishing.
    pub fn must_wake(&mut self, shown: u64) -> bool {
        let must = shown & 1 == 1 && shown != self.ended;
        if must {
            self.ended = shown;
        }
        must
    }
}

fn ranges(counter: u64, count: usize) -> [(usize, usize); 2] {
    debug_assert!(count <= RING_BYTES);
    let from = fit(counter & (RING_BYTES as u64 - 1));
    let first = count.min(RING_BYTES - from);
    [(from, first), (0, count - first)]
}

/// Fits: what is counted is at most the size of the ring.
#[allow(clippy::cast_possible_truncation)]
fn fit(bytes: u64) -> usize {
    bytes as usize
}
