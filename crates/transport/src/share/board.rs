//! A board, on which a borrower shows its lender what it has done with: words in memory of the borrower.
//!
//! A word has one writer at a time, which is whoever has the segment, so that a release is one store by any thread. The
//! lender only reads. What the borrower read of a segment comes before the store, and the load before the lender's next
//! write there: release and acquire. `tests/loom.rs` tries every order of this.

use std::sync::atomic::Ordering;

use crate::limit::LENT_FRAMES_MAX;
use crate::stream::shm::ledger::Ledger;
use crate::stream::shm::sync::AtomicU64;

/// By place: twice the generation of the last segment that was received there, and one more while it is held.
pub const fn place(place: usize) -> usize {
    place * size_of::<u64>()
}
/// Not 0 once nothing more is received: what has not been by then never will be.
pub const CLOSED: usize = LENT_FRAMES_MAX * size_of::<u64>();
/// Whole pages.
pub const BYTES: usize = CLOSED + 4096;

/// The borrower holds a segment of this generation, or has let go of it.
pub fn show(word: &AtomicU64, generation: u64, held: bool) {
    let value = generation.wrapping_mul(2) + u64::from(held);
    word.store(value, Ordering::Release);
}

/// The borrower receives nothing more.
pub fn close(word: &AtomicU64) {
    word.store(1, Ordering::Release);
}

/// The lender takes back what has come back, by the words that `load` reads with `Acquire`.
pub fn settle<L>(ledger: &mut Ledger<L>, load: impl Fn(usize) -> u64) {
    // Looked at before the places: once it is closed these tell of everything that was received.
    let closed = load(CLOSED) != 0;
    ledger.settle_if(|ticket| {
        let word = load(place(ticket.place as usize));
        word == 2 * ticket.generation || (closed && word / 2 != ticket.generation)
    });
}
