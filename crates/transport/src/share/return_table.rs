//! The return table: words in a borrower's memory that show its lender which segments or frames it has released.
//!
//! Each word has one writer at a time, the holder of the segment, so any thread releases a segment with one store. The
//! lender only reads. The borrower's reads of a segment come before its `Release` store, and the lender's `Acquire` load
//! comes before it writes there again. `tests/loom.rs` checks every interleaving.

use std::sync::atomic::Ordering;

use crate::limit::LENT_FRAMES_MAX;
use crate::share::ledger::{Ledger, Ticket};
use crate::stream::shm::sync::AtomicU64;

/// By slot: twice the generation of the last segment that was received there, plus one while it is held.
pub const fn slot_offset(slot: usize) -> usize {
    slot * size_of::<u64>()
}
/// Nonzero once the borrower receives nothing more: a segment that it has not received by then, it never will.
pub const CLOSED: usize = LENT_FRAMES_MAX * size_of::<u64>();
/// Whole pages.
pub const BYTES: usize = CLOSED + 4096;

/// The borrower holds a segment of this generation, or has released it.
pub fn show(word: &AtomicU64, generation: u64, held: bool) {
    let value = generation.wrapping_mul(2) + u64::from(held);
    word.store(value, Ordering::Release);
}

/// The borrower receives nothing more.
pub fn close(word: &AtomicU64) {
    word.store(1, Ordering::Release);
}

/// Take out what was released, each by `take`, by the words that `load` reads with `Acquire`.
pub fn settle<L>(ledger: &mut Ledger<L>, load: impl Fn(usize) -> u64, take: impl FnMut(L)) {
    // Loaded before the slots: once it is set, they show everything that was ever received.
    let closed = load(CLOSED) != 0;
    let is_back = |ticket: Ticket| {
        let word = load(slot_offset(ticket.slot as usize));
        word == 2 * ticket.generation || (closed && word / 2 != ticket.generation)
    };
    ledger.settle(|ticket, _| is_back(ticket), take);
}
