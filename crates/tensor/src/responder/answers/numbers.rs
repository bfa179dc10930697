//! Row numbers of requests, kept until the answers that need them have begun.
//!
//! A slot keeps its list for the next request, so that the steady state allocates nothing. The sum of a peer's lists is
//! bounded: above [`KEPT_BYTES`] an unneeded list is freed, and one of which at most half is needed is copied to a
//! list that fits. So a peer has at most [`KEPT_BYTES`] and twice what the grant allows.
use super::{Answers, Body, Slot};
use crate::sys::span::{Span, Words};

/// Bytes of a peer's lists before any is freed. Tests exceed it with the first list.
const KEPT_BYTES: usize = if cfg!(test) { 1 } else { 1 << 20 };

impl Answers {
    /// Memory for `bytes` of row numbers of the slot's request; it does not move until an answer of the request is
    /// added.
    pub(in crate::responder) fn indices(&mut self, slot: u32, bytes: usize) -> Span {
        let indices = &mut self.slots[slot as usize].indices;
        let before = indices.capacity();
        if before < bytes {
            *indices = vec![0; bytes];
        } else if indices.len() < bytes {
            indices.resize(bytes, 0);
        }
        self.indices_bytes += indices.capacity() - before;
        Span::of(&mut indices[..bytes])
    }

    /// Row numbers that came with the slot's request.
    pub(in crate::responder) fn words(&self, slot: u32, from: usize, rows: usize) -> Words {
        let indices = &self.slots[slot as usize].indices;
        Words::new(Span::sending(&indices[from..from + 8 * rows]))
    }

    /// After fewer of the slot's row numbers are needed: free what the peer must not keep.
    pub(super) fn settle_indices(&mut self, slot: u32) {
        let at = &self.slots[slot as usize];
        if self.indices_bytes <= KEPT_BYTES || at.is_coming {
            return;
        }
        let capacity = at.indices.capacity();
        let mut needed = 0;
        self.each_numbered(slot, |_, bytes, _| needed += bytes);
        if capacity == 0 || 2 * needed > capacity {
            return;
        }
        let mut fitting = Vec::with_capacity(needed);
        self.each_numbered(slot, |from, bytes, indices| {
            fitting.extend_from_slice(&indices[*from..*from + bytes]);
            *from = fitting.len() - bytes;
        });
        self.indices_bytes -= capacity - fitting.capacity();
        self.slots[slot as usize].indices = fitting;
    }

    /// Call `each` for each answer of a slot with row numbers: their offset, their bytes, and the list.
    fn each_numbered(&mut self, slot: u32, mut each: impl FnMut(&mut usize, usize, &[u8])) {
        let Slot {
            first,
            unread,
            ref indices,
            ..
        } = self.slots[slot as usize];
        for mut index in [first, unread] {
            while let Some((_, answer)) = self.waiting.at_mut(index) {
                if let Some((from, rows)) = answer.body.numbers() {
                    each(from, 8 * rows, indices);
                }
                index = answer.next;
            }
        }
    }
}

impl Body {
    /// The offset of its row numbers, in bytes, and their count.
    fn numbers(&mut self) -> Option<(&mut usize, usize)> {
        match self {
            Self::Gather { from, rows, .. } => Some((from, *rows)),
            Self::Unread(unread) => unread.numbers(),
            _ => None,
        }
    }
}
