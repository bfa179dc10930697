//! Received segments, until they are released.
//!
//! One word in our return table releases a segment, so that its owner reuses the same memory while it is in the caches:
//! copying 10 MB to the same address each time takes 360 us, alternating between two addresses 560 us. Pages that were
//! written here are private copies, which would hide the next segment at that address. They are dropped later: before
//! this process sleeps or, at the latest, before the next segment is opened.
//! A forked child inherits our maps, but its pages follow the owner's writes, and it cannot hold the owner back by a
//! word. So a process copies what it holds before it forks: [`keep_borrowed`].
//!
//! Frames of messages (`stream::shm::peer`) are read-only, as frames of other connections are: their pages are never
//! copied here, so that nothing is restored (25 ns for each page) and no map counts in `RLIMIT_DATA`. They are not copied
//! before a fork either: a child must not use them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use forebay_base::{PerProcess, process};
use forebay_memory::Window;

use crate::limit::{COPIES_AFTER_WRITING, WRITTEN_PAGES_MAX};
use crate::share::return_table;
use crate::stream::shm::Name;
use crate::sys::buffer::Buffer;
use crate::sys::shared::{OwnBlock, PeerBlock};

/// Everything that this process holds, by address. A child begins empty: what it inherited is its parent's to release.
static HELD: PerProcess<Mutex<HashMap<usize, Weak<Hold>>>> = PerProcess::new();

/// Releases the segments of one connection.
#[derive(Debug)]
pub struct Returns {
    table: OwnBlock,
    owner: u64,
    /// Released segments whose pages may have been written here.
    unrestored: Mutex<Vec<Arc<Hold>>>,
    /// How many of the next segments are copied, because one was written.
    copies: AtomicU32,
}

impl Returns {
    pub fn new(table: OwnBlock) -> Self {
        Self {
            table,
            owner: process::epoch(),
            unrestored: Mutex::default(),
            copies: AtomicU32::new(0),
        }
    }

    /// Nothing more is received.
    pub fn close(&self) {
        if self.owner == process::epoch() {
            return_table::close(self.table.word(return_table::CLOSED));
        }
    }

    /// Drop our private copies of pages, so that released ranges show what their owner writes.
    ///
    /// # Errors
    /// The size of a range for which that failed.
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

    /// Whether to copy the next segment at once.
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
    /// It could not be copied before a fork, so it is never released.
    lost: AtomicBool,
}

/// A segment that the peer has lent us.
#[derive(Debug)]
pub struct Held {
    hold: Arc<Hold>,
    returns: Arc<Returns>,
    slot: usize,
    generation: u64,
    owner: u64,
}

impl Held {
    /// `range` (offset and length) lies within the window and begins at a page.
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
            slot: name.slot as usize,
            generation: name.generation,
            owner: process::epoch(),
        };
        held.show(true);
        held
    }

    /// Show in the return table whether it is held.
    fn show(&self, held: bool) {
        let offset = return_table::slot_offset(self.slot);
        return_table::show(self.returns.table.word(offset), self.generation, held);
    }

    /// Append a copy of the segment to `into`, and release it.
    pub fn copy_into(self, into: &mut Buffer) {
        let Hold { window, bytes, .. } = &*self.hold;
        let offset = self.hold.offset as u64;
        let part = PeerBlock::new(Arc::clone(window), offset, *bytes);
        let copied = into.receive_with(|room| {
            part.map(|part| part.read([(0, *bytes), (0, 0)], room))
                .ok_or(())
        });
        debug_assert_eq!(copied, Ok(*bytes));
    }

    /// A buffer over the bytes, which releases them when it is dropped.
    pub fn into_buffer(self) -> Buffer {
        lock(HELD.get_or_init(Mutex::default)).insert(self.start(), Arc::downgrade(&self.hold));
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
        // A forked child has a copy; the segment is its parent's to release.
        if process::epoch() == self.owner {
            lock(HELD.get_or_init(Mutex::default)).remove(&self.start());
            self.give_back();
        }
    }
}

/// Copy everything that this process holds of its peers' memory. Call it before a fork.
///
/// It leaves out what another thread receives meanwhile; the child does not know of that.
/// Cost: 1.8 us for each held page.
pub fn keep_borrowed() {
    for hold in lock(HELD.get_or_init(Mutex::default))
        .values()
        .filter_map(Weak::upgrade)
    {
        if hold.window.keep(hold.offset, hold.bytes).is_err() {
            hold.lost.store(true, Ordering::Relaxed);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Run `act` while this thread has the lock of what is held.
#[cfg(test)]
pub fn while_locked<R>(act: impl FnOnce() -> R) -> R {
    let _locked = lock(HELD.get_or_init(Mutex::default));
    act()
}
