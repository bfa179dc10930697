//! Received segments, until they are given back.
//!
//! A segment is given back by one word on our board, so that its owner uses the same memory, which is in the caches, for
//! the next one: 10 MB are copied in 360 us where they are copied to the same place each time, in 560 us where two places
//! take turns. Pages that were written here would hide what comes there next. They are given up later: before this
//! process sleeps, or, at the latest, before a segment is opened.
//! A forked child has a copy of our maps, but its pages follow the owner's writes, and it cannot keep the owner from
//! writing. So whoever forks first makes what is held its own, by [`keep_borrowed`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use forebay_memory::Window;

use crate::limit::{COPIES_AFTER_WRITING, WRITTEN_PAGES_MAX};
use crate::share::board;
use crate::stream::shm::Name;
use crate::sys::buffer::Buffer;
use crate::sys::per_process::PerProcess;
use crate::sys::process;
use crate::sys::shared::{Own as Board, Theirs as Part};

/// All that this process holds, by address. A child begins with nothing: what it has a copy of is its parent's to keep.
static HELD: PerProcess<Mutex<HashMap<usize, Weak<Hold>>>> = PerProcess::empty();

/// How segments of one connection are given back.
#[derive(Debug)]
pub struct Returns {
    board: Board,
    owner: u64,
    /// Where segments lay of which pages may have been written here.
    unrestored: Mutex<Vec<Arc<Hold>>>,
    /// Segments that are still to be copied, since one was written.
    copies: AtomicU32,
}

impl Returns {
    pub fn new(board: Board) -> Self {
        Self {
            board,
            owner: process::current(),
            unrestored: Mutex::default(),
            copies: AtomicU32::new(0),
        }
    }

    /// Nothing more is received.
    pub fn close(&self) {
        if self.owner == process::current() {
            board::close(self.board.word(board::CLOSED));
        }
    }

    /// Have every place that was given back show what its owner writes.
    ///
    /// # Errors
    /// The size of one that still does not.
    pub fn restore(&self) -> Result<(), usize> {
        let mut unrestored = lock(&self.unrestored);
        while let Some(hold) = unrestored.last() {
            let Hold {
                window,
                offset,
                bytes,
                ..
            } = &**hold;
            let written = window.restore(*offset, *bytes).map_err(|_| *bytes)?;
            if written >= WRITTEN_PAGES_MAX {
                let copies = COPIES_AFTER_WRITING;
                self.copies.store(copies, Ordering::Relaxed);
            }
            unrestored.pop();
        }
        Ok(())
    }

    /// Whether the next segment is better copied at once.
    pub fn wants_copies(&self) -> bool {
        let less = |copies: u32| copies.checked_sub(1);
        self.copies
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
            .is_ok()
    }
}

/// Where a segment lies.
#[derive(Debug)]
struct Hold {
    window: Arc<Window>,
    offset: usize,
    bytes: usize,
    /// It could not be made ours before a fork: it is never given back.
    lost: AtomicBool,
}

/// A segment that the peer has lent us.
#[derive(Debug)]
pub struct Held {
    hold: Arc<Hold>,
    returns: Arc<Returns>,
    place: usize,
    generation: u64,
    owner: u64,
}

impl Held {
    /// `range` (offset and length) lies in the window, from a page on.
    pub fn new(
        window: &Arc<Window>,
        returns: &Arc<Returns>,
        range: (usize, usize),
        name: &Name,
    ) -> Self {
        let held = Self {
            hold: Arc::new(Hold {
                window: Arc::clone(window),
                offset: range.0,
                bytes: range.1,
                lost: AtomicBool::new(false),
            }),
            returns: Arc::clone(returns),
            place: name.place as usize,
            generation: name.generation,
            owner: process::current(),
        };
        held.show(true);
        held
    }

    /// Show on the board that it is held, or that it is not.
    fn show(&self, held: bool) {
        let word = self.returns.board.word(board::place(self.place));
        board::show(word, self.generation, held);
    }

    /// Copy the segment behind what `into` holds, and give it back.
    pub fn copy_into(self, into: &mut Buffer) {
        let Hold { window, bytes, .. } = &*self.hold;
        let offset = self.hold.offset as u64;
        let part = Part::new(Arc::clone(window), offset, *bytes);
        let copied = into.receive_with(|room| {
            part.map(|part| part.read([(0, *bytes), (0, 0)], room))
                .ok_or(())
        });
        debug_assert_eq!(copied, Ok(*bytes));
    }

    /// Lend the bytes out.
    pub fn into_buffer(self) -> Buffer {
        lock(HELD.get()).insert(self.start(), Arc::downgrade(&self.hold));
        let Hold {
            window,
            offset,
            bytes,
            ..
        } = &*self.hold;
        let (window, offset, bytes) = (Arc::clone(window), *offset, *bytes);
        Buffer::shared(window, offset, bytes, self)
    }

    fn start(&self) -> usize {
        self.hold.window.as_ptr() as usize + self.hold.offset
    }

    fn give_back(&self) {
        if !self.hold.lost.load(Ordering::Relaxed) {
            lock(&self.returns.unrestored).push(Arc::clone(&self.hold));
            self.show(false);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // In a child it is its parent's to give back.
        if process::current() == self.owner {
            lock(HELD.get()).remove(&self.start());
            self.give_back();
        }
    }
}

/// Make everything that this process holds of its peers' memory its own: called before it forks.
///
/// What is received meanwhile by another thread is not meant, nor does the child know of it.
/// Cost: 1.8 us for each page that is held.
pub fn keep_borrowed() {
    for hold in lock(HELD.get()).values().filter_map(Weak::upgrade) {
        if hold.window.keep(hold.offset, hold.bytes).is_err() {
            hold.lost.store(true, Ordering::Relaxed);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Have `act` run while this thread holds the lock of what is held.
#[cfg(test)]
pub fn while_locked<R>(act: impl FnOnce() -> R) -> R {
    let _locked = lock(HELD.get());
    act()
}
