//! Row numbers of a peer's requests, kept until the answers that need them have begun.
//!
//! A slot keeps its list for the next request, so that the steady state allocates nothing. The sum of a peer's lists is
//! bounded: above [`KEPT_BYTES`] an unneeded list is freed, and one of which at most half is needed is copied to a
//! list that fits. So a peer has at most [`KEPT_BYTES`] and twice what the grant allows.
use crate::sys::span::{Span, Words};

/// Bytes of a peer's lists before any is freed. Tests exceed it with the first list.
const KEPT_BYTES: usize = if cfg!(test) { 1 } else { 1 << 20 };

/// A list of row numbers for each slot of a peer.
#[derive(Debug)]
pub(super) struct RowNumbers {
    lists: Vec<Vec<u8>>,
    /// Capacity of all lists.
    bytes: usize,
}

impl RowNumbers {
    pub(super) fn new(slots: u32) -> Self {
        Self {
            lists: vec![Vec::new(); slots as usize],
            bytes: 0,
        }
    }

    /// Memory for `bytes` of row numbers of a slot; it does not move until [`Self::take_large`] returns the list.
    pub(super) fn room(&mut self, slot: u32, bytes: usize) -> Span {
        let list = &mut self.lists[slot as usize];
        let before = list.capacity();
        if before < bytes {
            *list = vec![0; bytes];
        } else if list.len() < bytes {
            list.resize(bytes, 0);
        }
        self.bytes += list.capacity() - before;
        Span::of(&mut list[..bytes])
    }

    /// The row numbers of a slot.
    pub(super) fn list(&self, slot: u32) -> &[u8] {
        &self.lists[slot as usize]
    }

    /// Some of them, from byte `from` on.
    pub(super) fn words(&self, slot: u32, from: usize, rows: usize) -> Words {
        Words::new(Span::sending(&self.list(slot)[from..from + 8 * rows]))
    }

    /// Whether the lists have more bytes than a peer may keep.
    pub(super) fn exceeds_kept(&self) -> bool {
        self.bytes > KEPT_BYTES
    }

    /// Take the list of a slot, if at most half of it is `needed`. The needed part comes back by [`Self::put`].
    pub(super) fn take_large(&mut self, slot: u32, needed: usize) -> Option<Vec<u8>> {
        let list = &mut self.lists[slot as usize];
        let capacity = list.capacity();
        if capacity == 0 || 2 * needed > capacity {
            return None;
        }
        self.bytes -= capacity;
        Some(std::mem::take(list))
    }

    /// The list of a slot from now on.
    pub(super) fn put(&mut self, slot: u32, list: Vec<u8>) {
        self.bytes += list.capacity();
        self.lists[slot as usize] = list;
    }
}
