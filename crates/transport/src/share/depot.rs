//! The region that a process lends of, and the books about what each peer was lent.
//!
//! One for the process, so that a block that one peer has given back is warm for the next. A block is used again once
//! its reader has shown so on its board, or has ended, or has closed the board before it received it; whether the
//! connection still is makes no difference. The books of
//! connections that are over stay until then. Nobody waits for that: whoever opens, closes or lends next looks. The
//! memory goes when no connection lends any more, but for blocks that are still read.
//!
//! Locks: the list of books, then a book's ledger; the region's own lock below both.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_base::process::has_ended;
use forebay_memory::{Backing, Config, Lease, Region};

use crate::limit::{LEND_CHUNK_BYTES, LEND_REGION_BYTES_MAX, LENT_BYTES_MAX};
use crate::share::board;
use crate::stream::shm::ledger::{Ledger, Ticket};
use crate::sys::per_process::PerProcess;
use crate::sys::shared::{Aside, Theirs as Board};

/// That of this process, once something was lent.
static DEPOT: PerProcess<Mutex<Option<Arc<Depot>>>> = PerProcess::empty();

/// A region, and its books.
#[derive(Debug)]
pub struct Depot {
    region: Region,
    books: Mutex<Vec<Arc<Book>>>,
}

/// What one peer was lent.
#[derive(Debug)]
pub struct Book {
    board: Board,
    /// A pidfd of the peer.
    process: OwnedFd,
    ledger: Mutex<Ledger<Lease>>,
}

/// Where long segments for one peer are put before they are sent.
#[derive(Clone, Debug)]
pub struct Desk {
    pub(super) depot: Arc<Depot>,
    pub(super) book: Arc<Book>,
    /// Whether a segment above `LENT_BYTES_MAX` is lent where nothing else is.
    lends_any_length: bool,
}

impl Depot {
    /// The depot of this process; `None` where there is no memory for one.
    pub fn here() -> Option<Arc<Self>> {
        let mut slot = lock(DEPOT.get());
        if let Some(depot) = &*slot {
            return Some(Arc::clone(depot));
        }
        // Plain pages: borrowers copy those that they write, one by one.
        let config = Config::new("calls", LEND_REGION_BYTES_MAX)
            .chunk_bytes(LEND_CHUNK_BYTES)
            .backing(Backing::Pages)
            .shelf_bytes_max(0);
        let depot = Arc::new(Self {
            region: Region::new(config).ok()?,
            books: Mutex::new(Vec::new()),
        });
        *slot = Some(Arc::clone(&depot));
        Some(depot)
    }

    /// Open a book for a peer.
    pub fn open(self: Arc<Self>, board: Board, process: OwnedFd, lends_any_length: bool) -> Desk {
        let book = Arc::new(Book {
            board,
            process,
            ledger: Mutex::default(),
        });
        lock(&self.books).push(Arc::clone(&book));
        Desk {
            depot: self,
            book,
            lends_any_length,
        }
    }

    /// Take back what has been given back, and close the books that nobody needs.
    pub fn sweep(&self) {
        let mut books = lock(&self.books);
        books.retain(Book::is_needed);
        if !books.iter().any(Book::is_open) {
            let _ = self.region.trim(); // refused in a forked child alone, whose memory it is not
        }
    }

    /// The book of a connection that is over, of which so many segments are lent.
    #[cfg(test)]
    pub fn book_with(&self, lent: usize) -> Option<Arc<Book>> {
        let books = lock(&self.books);
        let found = books
            .iter()
            .find(|book| !book.is_open() && book.settle() == lent);
        found.map(Arc::clone)
    }

    fn allocate(&self, bytes: usize) -> Option<Lease> {
        if let Ok(lease) = self.region.allocate(bytes) {
            return Some(lease);
        }
        self.sweep();
        self.region.allocate(bytes).ok()
    }
}

impl Book {
    /// Whether its connection is there.
    fn is_open(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) > 1
    }

    /// Whether its connection is there, or its peer still reads.
    fn is_needed(self: &Arc<Self>) -> bool {
        let lent = self.settle();
        self.is_open() || (lent > 0 && !has_ended(&self.process))
    }

    /// Take back what the board shows; how many segments are still lent.
    pub fn settle(&self) -> usize {
        let mut ledger = lock(&self.ledger);
        board::settle(&mut ledger, |at| self.board.load(at, Ordering::Acquire));
        ledger.len()
    }
}

fn bytes_of(ledger: &Ledger<Lease>) -> u64 {
    ledger.loans().map(|lease| lease.len() as u64).sum()
}

impl Desk {
    /// Copy a segment to where the peer can read it; `None` where there is no room beside what is lent, and the `before`
    /// bytes that were put aside for the same frame.
    ///
    /// What other threads put aside meanwhile is not seen: [`Self::lend`] decides.
    /// Cost: one copy, into memory that was used before where some is free.
    pub fn put(&self, bytes: &[u8], before: u64) -> Option<Aside> {
        self.book.settle();
        let lent = bytes_of(&lock(&self.book.ledger));
        if !self.has_room(lent + before, bytes.len()) {
            return None;
        }
        Aside::new(self.depot.allocate(bytes.len())?, bytes)
    }

    /// Keep a block until the peer gives it back; `None` where too many are lent, or too much.
    pub fn lend(&self, lease: Lease) -> Option<Ticket> {
        let mut ledger = lock(&self.book.ledger);
        let lent = bytes_of(&ledger);
        self.has_room(lent, lease.len())
            .then(|| ledger.lend(lease).ok())
            .flatten()
    }

    fn has_room(&self, lent: u64, bytes: usize) -> bool {
        let alone = lent == 0 && self.lends_any_length;
        lent + bytes as u64 <= LENT_BYTES_MAX || alone
    }
}

/// Take back what peers have given back since their connections ended.
pub fn sweep_lent() {
    let depot = lock(DEPOT.get()).clone();
    if let Some(depot) = depot {
        depot.sweep();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
